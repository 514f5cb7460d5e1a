//! Batches.

use core::ffi::c_uint;
use std::time::Duration;

use libc::timespec;

use crate::border::{put, slice};
use crate::statistics::{What, counted};
use crate::status::{INVALID, Result, require};
use crate::types::{Event, Handle, Request};
use crate::{batch, driver};

pub(crate) unsafe fn cuFileBatchIOSetUp(out: *mut Handle, room: c_uint) -> Result<()> {
    require(!out.is_null())?;
    driver::ensure_open()?;
    let handle = counted(What::BatchSetup, batch::set_up(room))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle) }
}

pub(crate) unsafe fn cuFileBatchIOSubmit(
    batch: Handle,
    count: c_uint,
    requests: *mut Request,
    flags: c_uint,
) -> Result<()> {
    require(flags == 0)?;
    // SAFETY: the program's array.
    let requests = unsafe { slice(requests, count as usize) }?;
    counted(What::BatchSubmit, batch::submit(batch, requests))
}

pub(crate) unsafe fn cuFileBatchIOGetStatus(
    batch: Handle,
    least: c_uint,
    count: *mut c_uint,
    events: *mut Event,
    timeout: *mut timespec,
) -> Result<()> {
    require(!events.is_null())?;
    // SAFETY: null, or the program's own.
    let (most, timeout) = unsafe { (count.as_ref().ok_or(INVALID)?, timeout.as_ref()) };
    let timeout = timeout.map(duration).transpose()?;
    let ended = batch::ended(batch, (least as usize, *most as usize), timeout)?;
    // SAFETY: the program has room for as many events as it says, and a place for their number.
    unsafe {
        core::ptr::copy_nonoverlapping(ended.as_ptr(), events, ended.len());
        put(count, ended.len() as c_uint)
    }
}

fn duration(time: &timespec) -> Result<Duration> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| INVALID)?;
    let nanoseconds = u32::try_from(time.tv_nsec).map_err(|_| INVALID)?;
    require(nanoseconds < 1_000_000_000)?;
    Ok(Duration::new(seconds, nanoseconds))
}

pub(crate) unsafe fn cuFileBatchIOCancel(batch: Handle) -> Result<()> {
    counted(What::BatchCancel, batch::cancel(batch))
}

pub(crate) unsafe fn cuFileBatchIODestroy(batch: Handle) -> Result<()> {
    counted(What::BatchDestroy, require(batch::destroy(batch)))
}
