//! The memory that a client and its worker share, besides the rings that carry commands.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use outboard_wire::limits::STAGING;

use crate::segment::{Segment, check_file, create_file};
use crate::shm;
use crate::stream::Stream;

/// Shared memory of a session. The client makes it, so that it is counted as the client's.
#[derive(Debug)]
pub struct Memory {
    staging: Segment,
    pinned: OwnedFd,
    pinned_bytes: u64,
}

/// Addresses for page-locked memory: more than machines have memory. Only pages that are in use
/// take any.
const PINNED: u64 = 1 << 40;

impl Memory {
    fn create() -> io::Result<Memory> {
        let staging = Segment::create("outboard-staging", STAGING)?;
        Ok(Memory {
            staging,
            pinned: create_file("outboard-pinned", PINNED)?,
            pinned_bytes: PINNED,
        })
    }

    /// Moves a session to shared memory: the client's side. `socket` is a Unix socket to the
    /// worker.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after the deadline, [`io::ErrorKind::FileTooLarge`] under a
    /// limit on file sizes that is too low, or the system's error.
    pub fn move_to(socket: OwnedFd, deadline: Instant) -> io::Result<(Arc<dyn Stream>, Memory)> {
        let memory = Memory::create()?;
        let stream =
            shm::move_to(socket, &[memory.staging.file(), memory.pinned.as_fd()], deadline)?;
        Ok((stream, memory))
    }

    /// Maps the client's memory: the worker's side, which [confirms](shm::confirm) once it is
    /// ready.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after the deadline, [`io::ErrorKind::InvalidData`] if what the
    /// client shares is not such memory, or the system's error.
    pub fn take_up(socket: OwnedFd, deadline: Instant) -> io::Result<(Arc<dyn Stream>, Memory)> {
        let (stream, files) = shm::take_up(socket, deadline)?;
        let Ok([staging, pinned]) = <[OwnedFd; 2]>::try_from(files) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the client shares other memory than expected",
            ));
        };
        let staging = Segment::accept(staging, STAGING)?;
        let pinned_bytes = check_file(pinned.as_fd(), PINNED)?;
        Ok((stream, Memory { staging, pinned, pinned_bytes }))
    }

    /// Memory for the bytes of copies under way, [`STAGING`] bytes of it; the same in both
    /// processes, at different addresses.
    pub fn staging(&self) -> &Segment {
        &self.staging
    }

    /// The file whose pages are page-locked memory.
    pub fn pinned(&self) -> BorrowedFd<'_> {
        self.pinned.as_fd()
    }

    /// Its size.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }
}
