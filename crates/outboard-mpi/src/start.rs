//! The beginning and the end of MPI.

use std::ffi::{c_char, c_int};

use crate::job::{meet, part};
use crate::mpi::{SUCCESS, real};

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Init(count: *mut c_int, arguments: *mut *mut *mut c_char) -> c_int {
    // SAFETY: the caller's.
    let result =
        unsafe { real!(c"PMPI_Init", fn(*mut c_int, *mut *mut *mut c_char))(count, arguments) };
    if result == SUCCESS {
        meet();
    }
    result
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Init_thread(
    count: *mut c_int,
    arguments: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    let begin =
        real!(c"PMPI_Init_thread", fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int));
    // SAFETY: the caller's.
    let result = unsafe { begin(count, arguments, required, provided) };
    if result == SUCCESS {
        meet();
    }
    result
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Finalize() -> c_int {
    // A process that ends takes its worker along, which may have messages for others.
    part();
    // SAFETY: it has no requirements.
    unsafe { real!(c"PMPI_Finalize", fn())() }
}
