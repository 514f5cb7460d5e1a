//! Private tables of Outboard's own that a driver library may have.

use core::ffi::{c_char, c_void};

use outboard_abi::CUuuid;
use outboard_abi::own_tables::Name;
use outboard_driver::{Table, call};

/// The table of this name as a `T`, if the driver has it. `T` is the layout that
/// [`outboard_abi::own_tables`] has for the name; it begins with the table's size in bytes.
pub(crate) fn own_table<T>(table: &Table, name: Name) -> Option<&'static T> {
    let name = CUuuid { bytes: name.map(|byte| byte as c_char) };
    let mut found: *const c_void = core::ptr::null();
    call!(table, cuGetExportTable(&raw mut found, &raw const name)).ok()?;
    // SAFETY: such a table begins with its size, and stays.
    let size = unsafe { found.cast::<usize>().as_ref() }?;
    // SAFETY: the table has as many bytes, and functions where `T` has them.
    (*size >= size_of::<T>()).then(|| unsafe { &*found.cast::<T>() })
}
