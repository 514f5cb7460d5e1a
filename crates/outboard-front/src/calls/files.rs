//! Files, for Outboard's `libcufile.so.0`, which calls these by a private table.

use std::os::fd::RawFd;
use std::sync::Arc;

use outboard_abi::CUresult;

use crate::backend::{Backend, Result, UnifiedPtr};
use crate::border::{put, require};
use crate::files::{self, Failure, File, Outcome};
use crate::process::{Front, Process};
use crate::state;

/// An error number of the operating system.
pub(crate) type Errno = i32;

/// A file by its handle.
fn look(front: &'static Front, file: u64) -> Option<Arc<File>> {
    front.files.table.look(file).map(|file| Arc::clone(&file))
}

/// Opens the file of a descriptor.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe fn open(
    front: &'static Front,
    fd: RawFd,
    writable: bool,
    out: *mut u64,
) -> std::result::Result<(), Errno> {
    let file = files::open(front, fd, writable)?;
    // SAFETY: as the caller says.
    unsafe { put(out, file) }.map_err(|_| libc::EFAULT)
}

/// Ends a file. A transfer that is under way still ends well.
pub(crate) fn close<B: Backend>(
    process: &'static Process<B>,
    file: u64,
) -> std::result::Result<(), Errno> {
    let file = process.files.table.remove(file).ok_or(libc::EBADF)?;
    file.close(process);
    Ok(())
}

/// Which way bytes go.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Read,
    Write,
}

/// Moves bytes; stores how many, or the file's error number below 0.
///
/// # Safety
/// `out` is null or valid for a write. Host memory is the program's, for this transfer.
pub(crate) unsafe fn transfer<B: Backend>(
    process: &'static Process<B>,
    way: Way,
    file: u64,
    (address, bytes): (u64, usize),
    offset: i64,
    out: *mut isize,
) -> Result<()> {
    if state::is_forked() {
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    let file = look(process, file).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let address = UnifiedPtr(address);
    require(address.checked_add(bytes as u64).is_some() && isize::try_from(bytes).is_ok())?;
    let outcome: Outcome = match u64::try_from(offset) {
        Err(_) => Err(Failure::File(libc::EINVAL)),
        Ok(offset) => match way {
            Way::Read => file.read(process, address, bytes, offset),
            Way::Write => file.write(process, address, bytes, offset),
        },
    };
    let moved = match outcome {
        Ok(moved) => moved as isize,
        Err(Failure::File(error)) => -(error as isize),
        Err(Failure::Device(error)) => return Err(error),
    };
    // SAFETY: as the caller says.
    unsafe { put(out, moved) }
}

/// Has the system write down what was written to a file.
pub(crate) fn sync<B: Backend>(
    process: &'static Process<B>,
    file: u64,
) -> std::result::Result<(), Errno> {
    look(process, file).ok_or(libc::EBADF)?.sync(process)
}

/// Bytes that were read by reference and through this process, and the same of written ones.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe fn statistics(
    front: &'static Front,
    file: u64,
    out: *mut [u64; 4],
) -> std::result::Result<(), Errno> {
    let file = look(front, file).ok_or(libc::EBADF)?;
    let ([read, read_here], [written, written_here]) = (file.read.counts(), file.written.counts());
    // SAFETY: as the caller says.
    unsafe { put(out, [read, read_here, written, written_here]) }.map_err(|_| libc::EFAULT)
}
