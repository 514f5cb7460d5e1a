//! Transfers in streams.

use core::ffi::{c_uint, c_void};

use outboard_abi::CUstream;

use crate::status::Result;
use crate::streams::{self, Arguments};
use crate::table::Way;
use crate::types::{Handle, Offset};
use crate::{driver, files};

pub(crate) unsafe fn cuFileReadAsync(
    file: Handle,
    base: *mut c_void,
    bytes: *mut usize,
    file_offset: *mut Offset,
    base_offset: *mut Offset,
    result: *mut isize,
    stream: CUstream,
) -> Result<()> {
    let arguments = Arguments { base: base as u64, bytes, file_offset, base_offset, result };
    // SAFETY: the program's arguments.
    unsafe { queue(Way::Read, file, &arguments, stream) }
}

pub(crate) unsafe fn cuFileWriteAsync(
    file: Handle,
    base: *mut c_void,
    bytes: *mut usize,
    file_offset: *mut Offset,
    base_offset: *mut Offset,
    result: *mut isize,
    stream: CUstream,
) -> Result<()> {
    let arguments = Arguments { base: base as u64, bytes, file_offset, base_offset, result };
    // SAFETY: the program's arguments.
    unsafe { queue(Way::Write, file, &arguments, stream) }
}

unsafe fn queue(way: Way, file: Handle, arguments: &Arguments, stream: CUstream) -> Result<()> {
    let file = files::look(file)?;
    driver::ensure_open()?;
    // SAFETY: the program's arguments, which it keeps until the stream has come to them.
    unsafe { streams::queue(way, file, arguments, stream) }
}

pub(crate) unsafe fn cuFileStreamRegister(stream: CUstream, flags: c_uint) -> Result<()> {
    driver::ensure_open()?;
    streams::register(stream, flags)
}

pub(crate) unsafe fn cuFileStreamDeregister(stream: CUstream) -> Result<()> {
    driver::is_open()?;
    streams::deregister(stream)
}
