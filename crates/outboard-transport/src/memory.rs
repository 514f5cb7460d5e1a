//! The memory that a client and its worker share, besides the rings that carry commands.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use outboard_wire::limits::STAGING;

use crate::page::page_bytes;
use crate::segment::{Segment, check_file, create_file, largest_file};
use crate::shm::{self, Offer};
use crate::stream::Stream;

/// Shared memory of a session. The client makes it, so that it is counted as the client's.
#[derive(Debug)]
pub struct Memory {
    staging: Segment,
    pinned: OwnedFd,
    pinned_bytes: u64,
}

/// The memory of a session, and the stream that it will have, before a worker knows of them.
#[derive(Debug)]
pub struct Prepared {
    memory: Memory,
    offer: Offer,
}

impl Prepared {
    /// Moves a session to shared memory: the client's side. `socket` is a Unix socket to the
    /// worker.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after the deadline, or the system's error.
    pub fn move_to(
        self,
        socket: OwnedFd,
        deadline: Instant,
    ) -> io::Result<(Arc<dyn Stream>, Memory)> {
        let Prepared { memory, offer } = self;
        let stream =
            offer.move_to(socket, &[memory.staging.file(), memory.pinned.as_fd()], deadline)?;
        Ok((stream, memory))
    }
}

/// Addresses for page-locked memory: more than machines have memory. Only pages that are in use
/// take any.
const PINNED: u64 = 1 << 40;

impl Memory {
    /// Makes the memory of a session, and the stream that it will have. A client does so before it
    /// tells its worker, which may have moved from then on.
    ///
    /// # Errors
    /// [`io::ErrorKind::FileTooLarge`] under a limit on file sizes that is too low, or the system's
    /// error.
    pub fn prepare() -> io::Result<Prepared> {
        let staging = Segment::create("outboard-staging", STAGING)?;
        // Page-locked memory for which there is no room here is the client's alone.
        let pinned_bytes = PINNED.min(largest_file() & !(page_bytes() - 1));
        let pinned = create_file("outboard-pinned", pinned_bytes)?;
        Ok(Prepared { memory: Memory { staging, pinned, pinned_bytes }, offer: Offer::new()? })
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
