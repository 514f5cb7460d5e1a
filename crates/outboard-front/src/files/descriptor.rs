//! Descriptors of files: bytes at a place of a file, and errors as numbers.

use std::fs::{File as Opened, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use super::{File, Outcome};
use crate::files::Failure;

/// The error number of the calling thread's last system call.
fn last() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// A descriptor of our own for the same file. One that goes past the system's cache, or that
/// appends, is opened anew without that: the first would take no bytes in between blocks, and the
/// second would not write where it is told.
pub(super) fn open_again(fd: RawFd) -> Result<OwnedFd, i32> {
    // SAFETY: the call only asks for the flags of a descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(last());
    }
    if flags & (libc::O_DIRECT | libc::O_APPEND) != 0
        && let Ok(opened) = open_plainly(fd, flags & libc::O_ACCMODE)
    {
        return Ok(opened.into());
    }
    // SAFETY: the call makes a new descriptor of one that is open.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if own < 0 {
        return Err(last());
    }
    // SAFETY: it was made just now, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

fn open_plainly(fd: RawFd, mode: i32) -> io::Result<Opened> {
    OpenOptions::new()
        .read(mode != libc::O_WRONLY)
        .write(mode != libc::O_RDONLY)
        .custom_flags(libc::O_CLOEXEC)
        .open(format!("/proc/self/fd/{fd}"))
}

/// Whether it is open for reading.
pub(super) fn reads(descriptor: &OwnedFd) -> bool {
    // SAFETY: the call only asks for the flags of a descriptor.
    let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_WRONLY
}

pub(super) fn sync(descriptor: &OwnedFd) -> Result<(), i32> {
    // SAFETY: the descriptor is open as long as it is borrowed.
    let done = unsafe { libc::fsync(descriptor.as_raw_fd()) };
    if done == 0 { Ok(()) } else { Err(last()) }
}

/// A place in memory, as the system is told it.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) address: u64,
    pub(super) bytes: usize,
}

impl File {
    /// Reads into the program's memory, whatever is there: the system says `EFAULT` if there is
    /// none. Ends early at the end of the file, and at an error if anything was read before it.
    ///
    /// # Safety
    /// Nothing of Rust's relies on the bytes.
    pub(super) unsafe fn read_at(&self, span: Span, offset: u64) -> Outcome {
        whole(span, offset, |address, bytes, offset| {
            // SAFETY: the system checks the memory, whose bytes are the caller's to change.
            unsafe { libc::pread(self.fd(), address as *mut _, bytes, offset) }
        })
    }

    /// As [`File::read_at`], the other way.
    pub(super) fn write_at(&self, span: Span, offset: u64) -> Outcome {
        whole(span, offset, |address, bytes, offset| {
            // SAFETY: the system checks the memory, and only reads it.
            unsafe { libc::pwrite(self.fd(), address as *const _, bytes, offset) }
        })
    }

    fn fd(&self) -> RawFd {
        BorrowedFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&self.descriptor))
    }
}

impl Span {
    pub(super) fn of(bytes: &[u8]) -> Span {
        Span { address: bytes.as_ptr() as u64, bytes: bytes.len() }
    }
}

/// Repeats a system call until all bytes are moved, no more are, or it fails.
fn whole(span: Span, offset: u64, mut step: impl FnMut(u64, usize, i64) -> isize) -> Outcome {
    let mut moved = 0;
    while moved < span.bytes {
        let at = offset.checked_add(moved as u64).and_then(|at| i64::try_from(at).ok());
        let Some(at) = at else { return Err(Failure::File(libc::EINVAL)) };
        match step(span.address.wrapping_add(moved as u64), span.bytes - moved, at) {
            0 => break,
            more if more > 0 => moved += more as usize,
            _ => match last() {
                libc::EINTR => {}
                _ if moved > 0 => break,
                error => return Err(Failure::File(error)),
            },
        }
    }
    Ok(moved)
}
