//! Arguments from C: out parameters, slices, strings.

use outboard_abi::CUresult;

use crate::backend::Result;

/// Stores through an out parameter; a null one is the program's mistake.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller says it is then valid.
    unsafe { out.write(value) };
    Ok(())
}

/// Stores through an out parameter that may be left out.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe fn put_if<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: not null, and the caller says it is then valid.
        unsafe { out.write(value) };
    }
}

/// `CUDA_ERROR_INVALID_VALUE` unless `condition`.
pub(crate) fn require(condition: bool) -> Result<()> {
    if condition { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// A slice from a C array; null with a length is the program's mistake.
///
/// # Safety
/// `data` is null or valid for reads of `len` elements while the slice is used.
pub(crate) unsafe fn slice<'a, T>(data: *const T, len: usize) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    require(!data.is_null())?;
    // SAFETY: not null, and the caller says it is then valid.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// A string from C.
///
/// # Safety
/// `text` is null or a string that ends in a zero byte and lives while the result is used.
pub(crate) unsafe fn text<'a>(text: *const std::ffi::c_char) -> Result<&'a str> {
    require(!text.is_null())?;
    // SAFETY: not null, and the caller says it ends in a zero byte.
    unsafe { std::ffi::CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}
