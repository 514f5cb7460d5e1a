//! What kernels print, which comes out where the program's own output does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
    fn ftrylockfile(stream: *mut libc::FILE) -> libc::c_int;
    fn funlockfile(stream: *mut libc::FILE);
}

/// C's standard output. A program may have closed it, but only with undefined results of its own.
pub(super) fn standard() -> *mut libc::FILE {
    // SAFETY: a variable of C's library, which programs set while nobody else uses it.
    unsafe { stdout }
}

/// C's standard error output.
pub(super) fn error() -> *mut libc::FILE {
    // SAFETY: as above.
    unsafe { stderr }
}

/// Prints what kernels printed, through the program's own C stream: the order with what the program prints stays as it is natively.
pub(super) fn print(bytes: &[u8], stream: *mut libc::FILE) {
    let mut unprinted = UNPRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    // A thread of the program may hold the stream while it waits for a page, which this one may have to read: it must not wait in turn.
    // SAFETY: the stream is C's.
    if unsafe { ftrylockfile(stream) } != 0 {
        unprinted.push((Output(stream), bytes.to_vec()));
        HAS_UNPRINTED.store(true, Ordering::Release);
        return;
    }
    let (before, rest) = std::mem::take(&mut *unprinted).into_iter().partition(|(output, _)| output.0 == stream);
    *unprinted = rest;
    HAS_UNPRINTED.store(!unprinted.is_empty(), Ordering::Release);
    let before: Vec<(Output, Vec<u8>)> = before;
    for part in before.iter().map(|(_, part)| part.as_slice()).chain([bytes]) {
        // SAFETY: the bytes are there, and the stream is C's.
        unsafe { libc::fwrite(part.as_ptr().cast(), 1, part.len(), stream) };
    }
    // SAFETY: locked above.
    unsafe { funlockfile(stream) };
}

/// What could not be printed at once, and whether there is any.
static UNPRINTED: Mutex<Vec<(Output, Vec<u8>)>> = Mutex::new(Vec::new());
static HAS_UNPRINTED: AtomicBool = AtomicBool::new(false);

/// One of C's standard streams.
struct Output(*mut libc::FILE);

// SAFETY: C's streams are for all threads.
unsafe impl Send for Output {}

/// Whether there is something that could not be printed when it came.
#[inline]
pub(super) fn is_owed() -> bool {
    HAS_UNPRINTED.load(Ordering::Acquire)
}

/// Prints what could not be printed when it came, on a thread that holds nothing.
pub(super) fn print_rest() {
    let rest = std::mem::take(&mut *UNPRINTED.lock().unwrap_or_else(PoisonError::into_inner));
    HAS_UNPRINTED.store(false, Ordering::Release);
    for (Output(stream), bytes) in rest {
        // SAFETY: the bytes are there, and the stream is C's.
        unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stream) };
    }
}
