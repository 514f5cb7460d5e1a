//! Settings.

use core::ffi::{c_char, c_int};

use crate::border::{put, slice, text};
use crate::driver;
use crate::parameters::{self, Slabs};
use crate::status::{INVALID, Result, require};

pub(crate) unsafe fn cuFileGetParameterSizeT(which: u32, out: *mut usize) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { put(out, parameters::get_number(which)?) }
}

pub(crate) unsafe fn cuFileSetParameterSizeT(which: u32, value: usize) -> Result<()> {
    driver::is_closed()?;
    parameters::set_number(which, value)
}

pub(crate) unsafe fn cuFileGetParameterMinMaxValue(
    which: u32,
    least: *mut usize,
    greatest: *mut usize,
) -> Result<()> {
    require(!least.is_null() && !greatest.is_null())?;
    let limits = parameters::limits(which)?;
    // SAFETY: the program's out parameters.
    unsafe { put(least, limits.0).and_then(|()| put(greatest, limits.1)) }
}

pub(crate) unsafe fn cuFileGetParameterBool(which: u32, out: *mut bool) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { put(out, parameters::get_flag(which)?) }
}

pub(crate) unsafe fn cuFileSetParameterBool(which: u32, value: u8) -> Result<()> {
    driver::is_closed()?;
    parameters::set_flag(which, value != 0)
}

pub(crate) unsafe fn cuFileGetParameterString(
    which: u32,
    out: *mut c_char,
    room: c_int,
) -> Result<()> {
    let value = parameters::get_text(which)?;
    let bytes = value.as_bytes_with_nul();
    require(!out.is_null() && usize::try_from(room).is_ok_and(|room| bytes.len() <= room))?;
    // SAFETY: the program has so much room.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len()) };
    Ok(())
}

pub(crate) unsafe fn cuFileSetParameterString(which: u32, value: *const c_char) -> Result<()> {
    // SAFETY: the program's string.
    let value = unsafe { text(value) }?;
    driver::is_closed()?;
    parameters::set_text(which, value)
}

/// The number of elements of an array.
fn elements(len: c_int) -> Result<usize> {
    usize::try_from(len).ok().filter(|len| *len > 0).ok_or(INVALID)
}

unsafe fn get(which: Slabs, sizes: *mut usize, counts: *mut usize, len: c_int) -> Result<()> {
    let slabs = parameters::get_slabs(which);
    require(!sizes.is_null() && !counts.is_null() && elements(len)? == slabs.len())?;
    for (place, (size, count)) in slabs.into_iter().enumerate() {
        // SAFETY: the program's arrays have as many elements.
        unsafe {
            sizes.add(place).write(size);
            counts.add(place).write(count);
        }
    }
    Ok(())
}

unsafe fn set(which: Slabs, sizes: *const usize, counts: *const usize, len: c_int) -> Result<()> {
    let len = elements(len)?;
    // SAFETY: the program's arrays.
    let (sizes, counts) = unsafe { (slice(sizes, len)?, slice(counts, len)?) };
    driver::is_closed()?;
    let slabs = sizes.iter().copied().zip(counts.iter().copied()).collect();
    parameters::set_slabs(which, slabs)
}

pub(crate) unsafe fn cuFileGetParameterPosixPoolSlabArray(
    sizes: *mut usize,
    counts: *mut usize,
    len: c_int,
) -> Result<()> {
    // SAFETY: the program's arrays.
    unsafe { get(Slabs::Host, sizes, counts, len) }
}

pub(crate) unsafe fn cuFileSetParameterPosixPoolSlabArray(
    sizes: *const usize,
    counts: *const usize,
    len: c_int,
) -> Result<()> {
    // SAFETY: the program's arrays.
    unsafe { set(Slabs::Host, sizes, counts, len) }
}

pub(crate) unsafe fn cuFileGetParameterGpuBounceBufferSlabArray(
    sizes: *mut usize,
    counts: *mut usize,
    len: c_int,
) -> Result<()> {
    // SAFETY: the program's arrays.
    unsafe { get(Slabs::Device, sizes, counts, len) }
}

pub(crate) unsafe fn cuFileSetParameterGpuBounceBufferSlabArray(
    sizes: *const usize,
    counts: *const usize,
    len: c_int,
) -> Result<()> {
    // SAFETY: the program's arrays.
    unsafe { set(Slabs::Device, sizes, counts, len) }
}
