//! Opening and closing cuFile, and what it says of itself.

use core::ffi::{c_char, c_int};

use crate::border::{put, text};
use crate::parameters::{self, DEVICE_CACHE, DIRECT_IO, PINNED, POLL_THRESHOLD, USE_POLLING};
use crate::status::{Failure, INVALID, Result, code, require};
use crate::types::Properties;
use crate::{driver, statistics};

pub(crate) unsafe fn cuFileDriverOpen() -> Result<()> {
    driver::open()
}

pub(crate) unsafe fn cuFileDriverClose() -> Result<()> {
    driver::close()
}

pub(crate) unsafe fn cuFileDriverClose_v2() -> Result<()> {
    driver::close()
}

pub(crate) unsafe fn cuFileUseCount() -> Result<i64> {
    Ok(driver::uses())
}

pub(crate) unsafe fn cuFileDriverGetProperties(out: *mut Properties) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { put(out, driver::properties()) }
}

pub(crate) unsafe fn cuFileDriverSetPollMode(poll: u8, threshold: usize) -> Result<()> {
    parameters::set_number(POLL_THRESHOLD, threshold)?;
    parameters::set_flag(USE_POLLING, poll != 0)
}

pub(crate) unsafe fn cuFileDriverSetMaxDirectIOSize(size: usize) -> Result<()> {
    parameters::set_number(DIRECT_IO, size)
}

/// A size that cuFile would have of the device's memory.
fn set_limit(which: u32, size: usize) -> Result<()> {
    require(size > 0)?;
    let set = parameters::set_number(which, size);
    set.map_err(|_| Failure::Code(code::DRIVER_UNSUPPORTED_LIMIT))
}

pub(crate) unsafe fn cuFileDriverSetMaxCacheSize(size: usize) -> Result<()> {
    set_limit(DEVICE_CACHE, size)
}

pub(crate) unsafe fn cuFileDriverSetMaxPinnedMemSize(size: usize) -> Result<()> {
    set_limit(PINNED, size)
}

/// The release of cuFile whose structures these are: 1.15.0.
const VERSION: c_int = 1150;

pub(crate) unsafe fn cuFileGetVersion(out: *mut c_int) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { put(out, VERSION) }
}

pub(crate) unsafe fn cuFileGetBARSizeInKB(device: c_int, out: *mut usize) -> Result<()> {
    driver::is_open()?;
    require(!out.is_null())?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, statistics::reachable(device)?) }
}

/// The client's own PCIe has no devices of the session.
pub(crate) unsafe fn cuFileExportPCIeTopology(file: *const c_char) -> Result<()> {
    // SAFETY: the program's string.
    unsafe { text(file) }?;
    Err(Failure::Code(code::INTERNAL_ERROR))
}

/// Values of `CUfileDriverStatusFlags_t`, of which one is another vendor's.
const FILE_SYSTEMS: u32 = 15;
const RESERVED: u32 = 10;

fn file_system(which: u32) -> Result<()> {
    driver::is_open()?;
    if which < FILE_SYSTEMS && which != RESERVED { Ok(()) } else { Err(INVALID) }
}

/// No file system reaches memory of a device directly.
pub(crate) unsafe fn cuFileDriverGetP2PFlags(which: u32, out: *mut u32) -> Result<()> {
    file_system(which)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, 0) }
}

pub(crate) unsafe fn cuFileDriverSetP2PFlags(which: u32, flags: u32) -> Result<()> {
    file_system(which)?;
    if flags == 0 { Ok(()) } else { Err(Failure::Code(code::PLATFORM_NOT_SUPPORTED)) }
}
