//! The border between C and Rust.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use outboard_abi::nvml::nvmlReturn_t;

/// What a function returns: nothing, or NVML's error.
pub(crate) type Result<T> = std::result::Result<T, nvmlReturn_t>;

pub(crate) const INVALID: nvmlReturn_t = nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT;
pub(crate) const NOT_SUPPORTED: nvmlReturn_t = nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED;
pub(crate) const NOT_FOUND: nvmlReturn_t = nvmlReturn_t::NVML_ERROR_NOT_FOUND;

/// Runs an entry point: a panic, which would be a bug of ours, becomes an error instead of ending
/// the program.
pub(crate) fn enter(body: impl FnOnce() -> Result<()>) -> nvmlReturn_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => nvmlReturn_t::NVML_SUCCESS,
        Ok(Err(error)) => error,
        Err(_) => nvmlReturn_t::NVML_ERROR_UNKNOWN,
    }
}

/// Stores through an out parameter; a null one is the program's mistake.
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

/// Stores a string with its final zero where there is room for `length` bytes.
///
/// # Safety
/// `out` is null or valid for writes of `length` bytes.
pub(crate) unsafe fn put_text(out: *mut c_char, length: u32, text: &str) -> Result<()> {
    if out.is_null() {
        return Err(INVALID);
    }
    if text.len() >= length as usize {
        return Err(nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: not null, and there is room for the text and a zero.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

/// A string from C.
///
/// # Safety
/// `text` is null or a string that ends in a zero byte and lives while the result is used.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, and the caller says it ends in a zero byte.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| INVALID)
}
