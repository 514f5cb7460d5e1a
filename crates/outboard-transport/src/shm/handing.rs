//! How one process hands the memory of a stream to the other: over a connected Unix socket, which
//! the stream keeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::{Events, ShmStream};
use crate::passing;
use crate::rings::{BYTES, End};
use crate::segment::Segment;
use crate::stream::Stream;
use crate::waker::Waker;

/// Descriptors of a stream: the rings and four events.
const DESCRIPTORS: usize = 5;
/// The bytes of the message that carries the memory. A later version that offers something else
/// will send others.
pub(super) const OFFER: [u8; 16] = *b"OUTBOARD-RINGS-2";

/// The most files that may be offered beside the rings.
pub const MOST_FILES: usize = passing::MOST - DESCRIPTORS;

/// The memory and the events of a stream that no peer has yet.
#[derive(Debug)]
pub struct Offer {
    segment: Segment,
    events: [Waker; 4],
}

impl Offer {
    /// Makes them.
    ///
    /// # Errors
    /// As of [`Segment::create`], or the system's error if it has no further descriptor to give.
    pub fn new() -> io::Result<Offer> {
        let segment = Segment::create("outboard-rings", BYTES)?;
        let events = [Waker::new()?, Waker::new()?, Waker::new()?, Waker::new()?];
        Ok(Offer { segment, events })
    }

    /// Offers them over a connected Unix socket, with further files. The stream can be used at
    /// once.
    pub(super) fn send(self, socket: OwnedFd, files: &[BorrowedFd<'_>]) -> io::Result<ShmStream> {
        let mut all = vec![self.segment.file()];
        all.extend(self.events.iter().map(AsFd::as_fd));
        all.extend_from_slice(files);
        passing::send(socket.as_fd(), &OFFER, &all)?;
        let [forth_filled, forth_room, back_filled, back_room] = self.events;
        let out = Events { theirs: forth_filled, ours: forth_room };
        let back = Events { theirs: back_room, ours: back_filled };
        ShmStream::start(socket, self.segment, End::Client, (out, back))
    }

    /// Moves to shared memory: offers it, with further files, over a connected Unix socket, and
    /// waits until the peer has [mapped](take_up) and [confirmed](confirm) it.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after the deadline, or the system's error.
    pub fn move_to(
        self,
        socket: OwnedFd,
        files: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> io::Result<Arc<dyn Stream>> {
        let stream = self.send(socket, files)?;
        passing::receive(stream.socket.fd(), &mut [0], deadline)?;
        Ok(Arc::new(stream))
    }
}

/// Accepts the offer of the process at the other end of a connected Unix socket; returns the stream
/// and the further files.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after the deadline, [`io::ErrorKind::InvalidData`] if the offer is
/// malformed, or the system's error.
pub fn take_up(socket: OwnedFd, deadline: Instant) -> io::Result<(Arc<dyn Stream>, Vec<OwnedFd>)> {
    let invalid = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut offer = [0; OFFER.len()];
    let mut files = passing::receive(socket.as_fd(), &mut offer, deadline)?.into_iter();
    if offer != OFFER {
        return Err(invalid("what was offered is not memory for rings"));
    }
    let mut next =
        || files.next().ok_or_else(|| invalid("an offer of shared memory lacks descriptors"));
    let segment = Segment::accept(next()?, BYTES)?;
    let mut event = || next().map(Waker::from_descriptor);
    let (forth_filled, forth_room, back_filled, back_room) =
        (event()?, event()?, event()?, event()?);
    let out = Events { theirs: back_filled, ours: back_room };
    let back = Events { theirs: forth_room, ours: forth_filled };
    let stream = ShmStream::start(socket, segment, End::Server, (out, back))?;
    Ok((Arc::new(stream), files.collect()))
}

/// Confirms the offer to the process that made it.
///
/// # Errors
/// [`io::ErrorKind::NotConnected`] if the stream has been abandoned, or the socket's error.
pub fn confirm(stream: &dyn Stream) -> io::Result<()> {
    let socket = stream.descriptor().ok_or(io::ErrorKind::NotConnected)?;
    passing::send(socket, &[1], &[])
}

/// The most files to skip before the wanted one: those of commands that failed before they took
/// their file.
const MOST_PASSED_OVER: usize = 64;

/// Hands a file to the process at the other end of a stream of this kind, which [takes](take_file)
/// it by its number. Does not wait.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] for a stream of another kind, or the socket's error.
pub fn give_file(stream: &dyn Stream, number: u64, file: BorrowedFd<'_>) -> io::Result<()> {
    passing::send(socket_beside(stream)?, &number.to_le_bytes(), &[file])
}

/// Takes the file that the other process has handed over with this number and closes those before
/// it. Does not wait.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if it is not among the next files, or the socket's error,
/// [`io::ErrorKind::TimedOut`] if it has not come.
pub fn take_file(stream: &dyn Stream, number: u64) -> io::Result<OwnedFd> {
    let socket = socket_beside(stream)?;
    for _ in 0..=MOST_PASSED_OVER {
        let mut named = [0; size_of::<u64>()];
        let files = passing::receive(socket, &mut named, Instant::now())?;
        if u64::from_le_bytes(named) == number {
            let [file] = <[OwnedFd; 1]>::try_from(files).map_err(|_| io::ErrorKind::InvalidData)?;
            return Ok(file);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// The socket of a stream whose bytes go through memory.
fn socket_beside(stream: &dyn Stream) -> io::Result<BorrowedFd<'_>> {
    let socket = stream.descriptor().filter(|_| stream.capabilities().shares_memory);
    socket.ok_or_else(|| io::ErrorKind::Unsupported.into())
}
