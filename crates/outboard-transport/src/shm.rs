//! Streams through memory that two processes of one machine share.
//!
//! The bytes go through two rings (`ring.rs`), one each way. The Unix socket over which the
//! memory was handed over stays open and idle; its end tells that the peer is gone. A thread with
//! nothing to read, or no room to write, sleeps on an event that the peer signals only if someone
//! sleeps.

mod handing;

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::descriptor::{Socket, poll_until};
use crate::ring::{Machine, Side, Sides, parts};
use crate::segment::Segment;
use crate::stream::{Capabilities, Interest, Readiness, Stream};
use crate::transport::{Listener, Transport};
use crate::unix::{UnixServer, dial};
use crate::waker::Waker;
use handing::offer;
pub use handing::{MOST_FILES, confirm, give_file, move_to, take_file, take_up};

/// Bytes of a ring: what the processor's own cache holds easily, and several batches of commands.
const RING: usize = 256 << 10;
/// A writer that found no room is woken when there is this much.
const ROOM: usize = RING / 4;
/// A reader publishes its position after so many further bytes, so that for most messages the
/// writer keeps its cache line. A sleeping writer never waits for a position that is not published.
const UNSAID: usize = RING / 8;
const _: () = assert!(UNSAID + ROOM <= RING);
/// Where the bytes of the first ring begin. Before them is what the sides say of themselves.
const HEAD: usize = 4096;
/// Bytes of both rings together.
const BYTES: usize = HEAD + 2 * RING;
/// A transport over memory, whose addresses are paths of Unix sockets. It is for tests; clients and
/// servers say hello over the socket first, and then [`move_to`] memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shm;

/// One direction, as this process uses it.
struct Half {
    /// How far this process has written, or read.
    position: Mutex<u64>,
    /// How far it has said that it has read. Changed under the lock of the position.
    said: AtomicU64,
    /// Which of the rings.
    ring: usize,
    /// Wakes the peer's thread, and this process's.
    theirs: Waker,
    ours: Waker,
}

struct ShmStream {
    socket: Socket,
    segment: Segment,
    out: Half,
    back: Half,
    /// The peer was seen to be gone.
    gone: AtomicBool,
    /// This process has abandoned the stream; another one uses it.
    abandoned: AtomicBool,
}

impl Half {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread is counted as asleep while this lives.
struct Asleep<'a>(&'a Side<Machine>);

impl<'a> Asleep<'a> {
    fn new(side: &'a Side<Machine>) -> Asleep<'a> {
        side.sleep();
        Asleep(side)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl ShmStream {
    fn start(socket: OwnedFd, segment: Segment, out: Half, back: Half) -> io::Result<ShmStream> {
        let (gone, abandoned) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(ShmStream { socket: Socket::new(socket)?, segment, out, back, gone, abandoned })
    }

    fn sides(&self, ring: usize) -> &Sides<Machine> {
        const { assert!(2 * size_of::<Sides<Machine>>() <= HEAD) };
        // SAFETY: the segment has HEAD bytes, begins at a page, and lives as long as `self`; the
        // numbers are atomic, and any bytes are valid.
        unsafe { &*self.segment.as_ptr().cast::<Sides<Machine>>().add(ring) }
    }

    /// Where the bytes of a ring are.
    fn bytes(&self, ring: usize, offset: usize) -> *mut u8 {
        // SAFETY: the segment has room for both rings, and offsets are below RING.
        unsafe { self.segment.as_ptr().add(HEAD + ring * RING + offset) }
    }

    fn check(&self) -> io::Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            Err(io::ErrorKind::NotConnected.into())
        } else {
            Ok(())
        }
    }

    /// Whether the peer has stopped writing. Check this first, then read once more.
    fn is_over(&self, side: &Side<Machine>) -> bool {
        side.is_closed() || self.gone.load(Ordering::Acquire)
    }

    /// Which calls would not block now; on a failed stream none blocks.
    fn look(&self, interest: Interest) -> Readiness {
        let mut ready = Readiness::default();
        if interest.read {
            let sides = self.sides(self.back.ring);
            let over = self.is_over(&sides.writer);
            ready.read = over || !matches!(sides.filled(*self.back.lock(), RING), Ok(0));
        }
        if interest.write {
            let sides = self.sides(self.out.ring);
            let over = self.is_over(&sides.reader);
            ready.write =
                over || sides.room(*self.out.lock(), RING).map_or(true, |room| room >= ROOM);
        }
        ready
    }

    /// Ends both directions.
    fn close(&self) {
        for half in [&self.out, &self.back] {
            let sides = self.sides(half.ring);
            sides.writer.close();
            sides.reader.close();
        }
        self.gone.store(true, Ordering::Release);
        for half in [&self.out, &self.back] {
            half.theirs.wake();
            half.ours.wake();
        }
    }
}

impl Stream for ShmStream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        let (half, sides) = (&self.back, self.sides(self.back.ring));
        let mut position = half.lock();
        let mut filled = sides.filled(*position, RING)?;
        if filled == 0 {
            if !self.is_over(&sides.writer) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            // All bytes that the peer wrote before its end are visible now.
            filled = sides.filled(*position, RING)?;
        }
        let count = filled.min(buffer.len());
        let mut at = 0;
        for (offset, len) in parts(*position, count, RING) {
            // SAFETY: `parts` lie in the ring, and add up to no more than the buffer has. The peer
            // may write there meanwhile, which makes the bytes wrong, and they are not looked at
            // before they have been copied.
            unsafe {
                buffer
                    .as_mut_ptr()
                    .add(at)
                    .copy_from_nonoverlapping(self.bytes(half.ring, offset), len)
            };
            at += len;
        }
        if count > 0 {
            *position += count as u64;
            if position.wrapping_sub(half.said.load(Ordering::Relaxed)) < UNSAID as u64 {
                return Ok(count);
            }
            half.said.store(*position, Ordering::Relaxed);
            // A writer that is not woken now is still counted as asleep when a later read checks.
            if sides.reader.moved(*position, &sides.writer) && RING - (filled - count) >= ROOM {
                half.theirs.wake();
            }
        }
        Ok(count)
    }

    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check()?;
        let (half, sides) = (&self.out, self.sides(self.out.ring));
        let mut position = half.lock();
        if self.is_over(&sides.reader) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = sides.room(*position, RING)?;
        let mut written = 0;
        for buffer in buffers {
            let count = buffer.len().min(room - written);
            let mut at = 0;
            for (offset, len) in parts(*position + written as u64, count, RING) {
                // SAFETY: `parts` lie in the ring, in the room that the reader has left, and add up
                // to what the buffer has.
                unsafe {
                    self.bytes(half.ring, offset)
                        .copy_from_nonoverlapping(buffer.as_ptr().add(at), len)
                };
                at += len;
            }
            written += count;
        }
        if written == 0 {
            let empty = buffers.iter().all(|buffer| buffer.is_empty());
            return if empty { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        *position += written as u64;
        if sides.writer.moved(*position, &sides.reader) {
            half.theirs.wake();
        }
        Ok(written)
    }

    fn wait(
        &self,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<Readiness> {
        self.check()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let _reads = interest.read.then(|| Asleep::new(&self.sides(self.back.ring).reader));
        let _writes = interest.write.then(|| Asleep::new(&self.sides(self.out.ring).writer));
        loop {
            let mut ready = self.look(interest);
            let now = ready != Readiness::default();
            let flag = |wanted| if wanted { PollFlags::IN } else { PollFlags::empty() };
            let mut fds = [
                PollFd::from_borrowed_fd(self.socket.fd(), PollFlags::RDHUP),
                PollFd::new(&self.back.ours, flag(interest.read)),
                PollFd::new(&self.out.ours, flag(interest.write)),
                PollFd::new(waker.unwrap_or(&self.out.ours), flag(waker.is_some())),
            ];
            let count = poll_until(&mut fds, if now { Some(Instant::now()) } else { deadline })?;
            let found = fds.map(|fd| fd.revents());
            if found[1].contains(PollFlags::IN) {
                self.back.ours.clear_unless(|| self.look(Interest::READ).read);
            }
            if found[2].contains(PollFlags::IN) {
                self.out.ours.clear_unless(|| self.look(Interest::WRITE).write);
            }
            if found[0]
                .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
            {
                self.gone.store(true, Ordering::Release);
                ready = self.look(interest);
                ready.hangup = true;
            }
            ready.woken = found[3].contains(PollFlags::IN) && waker.is_some_and(Waker::clear);
            if count == 0 || now || ready != Readiness::default() {
                return Ok(ready);
            }
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        self.check()?;
        self.close();
        self.socket.shutdown()
    }

    fn abandon(&self) -> io::Result<()> {
        self.abandoned.store(true, Ordering::Relaxed);
        self.socket.abandon()
    }

    fn has_room(&self) -> bool {
        let reader = &self.sides(self.out.ring).reader;
        let room = self.sides(self.out.ring).room(*self.out.lock(), RING);
        !self.is_over(reader) && room.is_ok_and(|room| room >= ROOM)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { descriptor: true, shares_memory: true, striping: false, quick: true }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }

    fn transport(&self) -> &'static str {
        "shm"
    }

    fn peer(&self) -> String {
        "a process of this machine".to_owned()
    }
}

impl Drop for ShmStream {
    fn drop(&mut self) {
        if !self.abandoned.load(Ordering::Relaxed) {
            self.close();
        }
    }
}

impl fmt::Debug for ShmStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShmStream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct ShmServer(UnixServer);

/// How long an accepted client may take to offer its memory.
const PATIENCE: Duration = Duration::from_secs(10);

impl Transport for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        Ok(Arc::new(offer(dial(address.as_ref(), timeout)?, &[])?))
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(ShmServer(UnixServer::bind(address)?)))
    }
}

impl Listener for ShmServer {
    fn accept(&self) -> io::Result<Arc<dyn Stream>> {
        Ok(take_up(self.0.take()?, Instant::now() + PATIENCE)?.0)
    }

    fn address(&self) -> io::Result<String> {
        Ok(self.0.path())
    }
}

#[cfg(test)]
mod tests;
