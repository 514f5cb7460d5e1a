//! The table of functions that Outboard's driver library has for this one.

use core::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use outboard_abi::own_tables::COLLECTIVES;

use crate::exports::{FUNCTIONS, MARK};
use crate::own::Own;

/// `ncclUniqueId`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(unreachable_pub)]
pub struct Id([u8; 128]);

/// `ncclSystemError`: the driver library is not Outboard's.
pub(crate) const MISSING: u32 = 2;

/// What `ncclGetLastError` says then.
pub(crate) const NO_DRIVER: &CStr = c"this libnccl.so.2 is Outboard's, but the process has not Outboard's libcuda.so.1 of the same release: start the program with `outboard run`";

/// What the table begins with: its size in bytes, which description it is of, a function that
/// refuses, and one that says whether the server makes collectives.
const BEGINNING: usize = 4;
const REFUSE: usize = 2;
const OFFERS: usize = 3;

type Offers = unsafe extern "C" fn() -> u32;
type Refuse = unsafe extern "C" fn(*const c_char, *const c_char) -> u32;

/// The table, once it has been found.
static TABLE: OnceLock<&'static [usize]> = OnceLock::new();

fn table() -> Option<&'static [usize]> {
    if let Some(table) = TABLE.get() {
        return Some(table);
    }
    let found = find()?;
    Some(TABLE.get_or_init(|| found))
}

fn find() -> Option<&'static [usize]> {
    let table = outboard_table::find(&COLLECTIVES)?;
    (table.len() == BEGINNING + FUNCTIONS && table.get(1) == Some(&MARK)).then_some(table)
}

/// The function of that number and name. With servers that make no collectives, the program's own
/// NCCL has it, if it has one.
pub(crate) fn function(index: usize, name: &CStr) -> Option<*const c_void> {
    static OWN: OnceLock<Option<Own>> = OnceLock::new();
    let table = table()?;
    let own = OWN.get_or_init(|| {
        // SAFETY: the function that stands there.
        let offers = unsafe {
            core::mem::transmute::<*const c_void, Offers>(table[OFFERS] as *const c_void)()
        };
        if offers == 0 { Own::find() } else { None }
    });
    match own {
        Some(own) => own.function(name),
        None => Some(*table.get(BEGINNING + index)? as *const c_void),
    }
}

/// Refuses a function by its name.
pub(crate) fn refuse(name: &CStr, why: &CStr) -> u32 {
    let Some(refuse) = table().and_then(|table| table.get(REFUSE)) else { return MISSING };
    // SAFETY: the function that stands there, and strings.
    unsafe {
        core::mem::transmute::<*const c_void, Refuse>(*refuse as *const c_void)(
            name.as_ptr(),
            why.as_ptr(),
        )
    }
}
