//! The border between C and Rust: results as C takes them. A panic, which would be a bug of ours,
//! becomes an error.

use core::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::status::{Failure, INVALID, Result, Status, code};

const BUG: Failure = Failure::Code(code::INTERNAL_ERROR);

fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    static QUIET: Once = Once::new();
    // A panic says nothing on the program's output. The hook is this library's own, as its copy of
    // the standard library is.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(BUG))
}

/// For functions that return `CUfileError_t`.
pub(crate) fn status(body: impl FnOnce() -> Result<()>) -> Status {
    caught(body).map_or_else(Failure::status, |()| Status { error: 0, cuda: 0 })
}

/// For functions that return a number of bytes.
pub(crate) fn bytes(body: impl FnOnce() -> Result<usize>) -> isize {
    match caught(body).map_err(Failure::below_zero) {
        Ok(moved) => moved as isize,
        Err((result, errno)) => {
            if let Some(errno) = errno {
                // SAFETY: the place of this thread's error number.
                unsafe { *libc::__errno_location() = errno };
            }
            result
        }
    }
}

/// For functions that return a count, of which 0 is a fair one.
pub(crate) fn count(body: impl FnOnce() -> Result<i64>) -> i64 {
    caught(body).unwrap_or(0)
}

/// For functions that return nothing.
pub(crate) fn nothing(body: impl FnOnce() -> Result<()>) {
    let _ = caught(body);
}

/// For functions that are not there.
pub(crate) fn refused() -> Status {
    Failure::Code(code::PLATFORM_NOT_SUPPORTED).status()
}

/// Stores through an out parameter.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, and the caller says it is then valid.
    unsafe { out.write(value) };
    Ok(())
}

/// An array of C.
///
/// # Safety
/// `data` is null or valid for reads of `len` elements while the slice is used.
pub(crate) unsafe fn slice<'a, T>(data: *const T, len: usize) -> Result<&'a [T]> {
    if data.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, and the caller says it is then valid.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// A string of C.
///
/// # Safety
/// `text` is null or a string that ends in a zero byte and lives while the result is used.
pub(crate) unsafe fn text<'a>(text: *const core::ffi::c_char) -> Result<&'a CStr> {
    if text.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, and the caller says it ends in a zero byte.
    Ok(unsafe { CStr::from_ptr(text) })
}
