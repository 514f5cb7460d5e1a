//! The functions behind Outboard's `libcufile.so.0`.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use outboard_abi::CUresult;

use crate::calls::files::{self, Errno, Way};
use crate::entry::enter;
use crate::process::Library;
use crate::profile::PRIVATE;

/// The second word: a library with another number means other functions.
const FORM: usize = 1;

/// The table, whose first word is its size in bytes.
pub(super) fn table<L: Library>() -> Box<[usize]> {
    let functions = [
        open::<L> as *const (),
        close::<L> as *const (),
        read::<L> as *const (),
        write::<L> as *const (),
        sync::<L> as *const (),
        statistics::<L> as *const (),
    ];
    let functions = functions.map(|function| function as usize);
    let mut table: Box<[usize]> = [0, FORM].into_iter().chain(functions).collect();
    table[0] = size_of_val(&*table);
    table
}

/// Gives an error number to C, 0 for none.
fn errno(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(libc::EIO));
    outcome.err().unwrap_or(0)
}

/// Bit 0 of `flags`: the program may write.
unsafe extern "C" fn open<L: Library>(fd: c_int, flags: u32, out: *mut u64) -> c_int {
    // SAFETY: the library's out parameter.
    errno(|| unsafe { files::open(L::process(), fd, flags & 1 != 0, out) })
}

unsafe extern "C" fn close<L: Library>(file: u64) -> c_int {
    errno(|| files::close(L::process(), file))
}

unsafe extern "C" fn read<L: Library>(
    file: u64,
    address: u64,
    bytes: usize,
    offset: i64,
    out: *mut isize,
) -> CUresult {
    // SAFETY: the library's out parameter, and the program's memory.
    enter(L::process(), PRIVATE, || unsafe {
        files::transfer(L::process(), Way::Read, file, (address, bytes), offset, out)
    })
}

unsafe extern "C" fn write<L: Library>(
    file: u64,
    address: u64,
    bytes: usize,
    offset: i64,
    out: *mut isize,
) -> CUresult {
    // SAFETY: the library's out parameter, and the program's memory.
    enter(L::process(), PRIVATE, || unsafe {
        files::transfer(L::process(), Way::Write, file, (address, bytes), offset, out)
    })
}

unsafe extern "C" fn sync<L: Library>(file: u64) -> c_int {
    errno(|| files::sync(L::process(), file))
}

unsafe extern "C" fn statistics<L: Library>(file: u64, out: *mut [u64; 4]) -> c_int {
    // SAFETY: the library's out parameter.
    errno(|| unsafe { files::statistics(L::process(), file, out) })
}
