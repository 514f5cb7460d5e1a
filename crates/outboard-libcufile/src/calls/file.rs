//! Files, memory, and transfers that are done when their call returns.

use core::ffi::{c_int, c_uint, c_void};

use crate::border::{put, slice};
use crate::statistics::{What, counted};
use crate::status::{Failure, INVALID, Result, code, require};
use crate::table::Way;
use crate::transfer::{Transfer, vector};
use crate::types::{DESCRIPTOR, Description, Handle, Offset, Part, USER_SPACE, WINDOWS};
use crate::{buffers, driver, files};

pub(crate) unsafe fn cuFileHandleRegister(
    out: *mut Handle,
    description: *mut Description,
) -> Result<()> {
    require(!out.is_null())?;
    // SAFETY: null, or the program's description.
    let description = unsafe { description.as_ref() }.ok_or(INVALID)?;
    match description.kind {
        DESCRIPTOR => {}
        WINDOWS | USER_SPACE => return Err(Failure::Code(code::IO_NOT_SUPPORTED)),
        _ => return Err(INVALID),
    }
    driver::ensure_open()?;
    // SAFETY: it is of that kind.
    let fd = unsafe { description.descriptor.fd };
    let handle = counted(What::FileRegister, files::register(fd))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle) }
}

pub(crate) unsafe fn cuFileHandleDeregister(file: Handle) -> Result<()> {
    counted(What::FileDeregister, require(files::deregister(file)))
}

pub(crate) unsafe fn cuFileBufRegister(
    base: *const c_void,
    bytes: usize,
    flags: c_int,
) -> Result<()> {
    require(!base.is_null() && bytes > 0)?;
    driver::ensure_open()?;
    counted(What::MemoryRegister, buffers::register(base as u64, bytes, flags))
}

pub(crate) unsafe fn cuFileBufDeregister(base: *const c_void) -> Result<()> {
    counted(What::MemoryDeregister, buffers::deregister(base as u64))
}

pub(crate) unsafe fn cuFileRead(
    file: Handle,
    base: *mut c_void,
    bytes: usize,
    file_offset: Offset,
    base_offset: Offset,
) -> Result<usize> {
    // SAFETY: the program's arguments.
    unsafe { transfer(Way::Read, file, base as u64, bytes, (file_offset, base_offset)) }
}

pub(crate) unsafe fn cuFileWrite(
    file: Handle,
    base: *const c_void,
    bytes: usize,
    file_offset: Offset,
    base_offset: Offset,
) -> Result<usize> {
    // SAFETY: the program's arguments.
    unsafe { transfer(Way::Write, file, base as u64, bytes, (file_offset, base_offset)) }
}

unsafe fn transfer(
    way: Way,
    file: Handle,
    base: u64,
    bytes: usize,
    (file_offset, base_offset): (Offset, Offset),
) -> Result<usize> {
    let file = files::look(file)?;
    driver::ensure_open()?;
    // SAFETY: the program's memory.
    unsafe { Transfer { way, file, base, base_offset, bytes, file_offset }.make() }
}

pub(crate) unsafe fn cuFileReadv(
    file: Handle,
    parts: *const Part,
    count: usize,
    file_offset: Offset,
    flags: c_uint,
) -> Result<usize> {
    // SAFETY: the program's arguments.
    unsafe { transfer_parts(Way::Read, file, (parts, count), file_offset, flags) }
}

pub(crate) unsafe fn cuFileWritev(
    file: Handle,
    parts: *const Part,
    count: usize,
    file_offset: Offset,
    flags: c_uint,
) -> Result<usize> {
    // SAFETY: the program's arguments.
    unsafe { transfer_parts(Way::Write, file, (parts, count), file_offset, flags) }
}

unsafe fn transfer_parts(
    way: Way,
    file: Handle,
    (parts, count): (*const Part, usize),
    file_offset: Offset,
    flags: c_uint,
) -> Result<usize> {
    let file = files::look(file)?;
    driver::ensure_open()?;
    require(flags == 0)?;
    // SAFETY: the program's array and memory.
    unsafe { vector(way, &file, slice(parts, count)?, file_offset) }
}
