//! What libraries beside Outboard's driver library find in it: its functions, and the private
//! tables by which it offers them more.
#![warn(missing_docs)]

use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr::NonNull;

type GetExportTable = unsafe extern "C" fn(*mut *const usize, *const [u8; 16]) -> u32;

/// A function of the driver library, if there is one.
pub fn function(name: &CStr) -> Option<NonNull<c_void>> {
    // For libraries that start no thread of their own: threads of the program must not wait for the
    // loader either.
    outboard_threads::prepare();
    // SAFETY: strings; the driver library is the one that the process has, or would have. It is
    // never closed.
    let found = unsafe {
        let driver = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY);
        if driver.is_null() {
            return None;
        }
        libc::dlsym(driver, name.as_ptr())
    };
    NonNull::new(found)
}

/// The private table of this name, if the driver library is Outboard's and has it. Its first word
/// is its size in bytes.
pub fn find(name: &[u8; 16]) -> Option<&'static [usize]> {
    let get = function(c"cuGetExportTable")?;
    let mut table = core::ptr::null();
    // SAFETY: the driver's function of that name, with a place and an id.
    let status =
        unsafe { transmute::<*mut c_void, GetExportTable>(get.as_ptr())(&raw mut table, name) };
    if status != 0 || table.is_null() {
        return None;
    }
    // SAFETY: tables of such names begin with their size in bytes, and are never freed.
    Some(unsafe { core::slice::from_raw_parts(table, *table / size_of::<usize>()) })
}
