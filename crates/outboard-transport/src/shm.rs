//! Streams through memory that two processes of one machine share.
//!
//! The bytes go through two [rings](crate::ring), one each way. The Unix socket over which the memory was handed over stays open and idle: that the
//! peer is gone shows there. A thread with nothing to read, or no room to write, sleeps on an event that the peer signals only if someone sleeps.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::descriptor::{Socket, poll_until};
use crate::ring::{Machine, Side, Sides, parts};
use crate::segment::Segment;
use crate::unix::{UnixServer, dial};
use crate::{Capabilities, Interest, Listener, Readiness, Stream, Transport, Waker, passing};

/// Bytes of a ring: what the processor's own cache holds easily, and several batches of commands.
const RING: usize = 256 << 10;
/// A writer that found no room is woken when there is this much.
const ROOM: usize = RING / 4;
/// A reader says how far it is when it has read so much since it last did: the writer then has its cache line to itself for most messages. What is
/// not said is never what a writer sleeps for.
const UNSAID: usize = RING / 8;
const _: () = assert!(UNSAID + ROOM <= RING);
/// Where the bytes of the first ring begin. Before them is what the sides say of themselves.
const HEAD: usize = 4096;
/// Bytes of both rings together.
const BYTES: usize = HEAD + 2 * RING;
/// Descriptors of a stream: the rings and four events.
const DESCRIPTORS: usize = 5;
/// What the message says that brings the memory, so that a later version can bring something else.
const OFFER: [u8; 16] = *b"OUTBOARD-RINGS-2";

/// What else two processes may hand each other with the rings.
pub const MOST_FILES: usize = passing::MOST - DESCRIPTORS;
/// A transport over memory, whose addresses are paths of Unix sockets. It is for tests; clients and servers say hello over the socket first, and
/// then [`move_to`] memory.
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
    /// This process has let go of the stream; another goes on with it.
    abandoned: AtomicBool,
}

/// Offers shared memory for a stream over a connected Unix socket, with further files. The stream can be used at once.
fn offer(socket: OwnedFd, files: &[BorrowedFd<'_>]) -> io::Result<ShmStream> {
    let segment = Segment::create("outboard-rings", BYTES)?;
    let events = [Waker::new()?, Waker::new()?, Waker::new()?, Waker::new()?];
    let mut all = vec![segment.file()];
    all.extend(events.iter().map(AsFd::as_fd));
    all.extend_from_slice(files);
    passing::send(socket.as_fd(), &OFFER, &all)?;
    let [forth_filled, forth_room, back_filled, back_room] = events;
    let out =
        Half { position: Mutex::new(0), said: AtomicU64::new(0), ring: 0, theirs: forth_filled, ours: forth_room };
    let back = Half { position: Mutex::new(0), said: AtomicU64::new(0), ring: 1, theirs: back_room, ours: back_filled };
    ShmStream::start(socket, segment, out, back)
}

/// Moves to memory that both sides share: offers it, with further files, over a connected Unix socket, and waits until the peer has
/// [taken it up](take_up) and [said so](confirm).
pub fn move_to(socket: OwnedFd, files: &[BorrowedFd<'_>], deadline: Instant) -> io::Result<Arc<dyn Stream>> {
    let stream = offer(socket, files)?;
    passing::receive(stream.socket.fd(), &mut [0], deadline)?;
    Ok(Arc::new(stream))
}

/// Takes up the offer of the process at the other end of a connected Unix socket: the stream, and the further files.
pub fn take_up(socket: OwnedFd, deadline: Instant) -> io::Result<(Arc<dyn Stream>, Vec<OwnedFd>)> {
    let invalid = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut offer = [0; OFFER.len()];
    let mut files = passing::receive(socket.as_fd(), &mut offer, deadline)?.into_iter();
    if offer != OFFER {
        return Err(invalid("what was offered is not memory for rings"));
    }
    let mut next = || files.next().ok_or_else(|| invalid("an offer of shared memory lacks descriptors"));
    let segment = Segment::accept(next()?, BYTES)?;
    if segment.bytes() != BYTES {
        return Err(invalid("the memory for the rings has another size"));
    }
    let mut event = || next().map(Waker::from_descriptor);
    let (forth_filled, forth_room, back_filled, back_room) = (event()?, event()?, event()?, event()?);
    let out = Half { position: Mutex::new(0), said: AtomicU64::new(0), ring: 1, theirs: back_filled, ours: back_room };
    let back =
        Half { position: Mutex::new(0), said: AtomicU64::new(0), ring: 0, theirs: forth_room, ours: forth_filled };
    Ok((Arc::new(ShmStream::start(socket, segment, out, back)?), files.collect()))
}

/// Tells the one who offered that the offer has been taken up.
pub fn confirm(stream: &dyn Stream) -> io::Result<()> {
    let socket = stream.descriptor().ok_or(io::ErrorKind::NotConnected)?;
    passing::send(socket, &[1], &[])
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
        // SAFETY: the segment has HEAD bytes, begins at a page, and lives as long as `self`; the numbers are atomic, and any bytes are valid.
        unsafe { &*self.segment.as_ptr().cast::<Sides<Machine>>().add(ring) }
    }

    /// Where the bytes of a ring are.
    fn bytes(&self, ring: usize, offset: usize) -> *mut u8 {
        // SAFETY: the segment has room for both rings, and offsets are below RING.
        unsafe { self.segment.as_ptr().add(HEAD + ring * RING + offset) }
    }

    fn check(&self) -> io::Result<()> {
        if self.abandoned.load(Ordering::Relaxed) { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    /// Whether the peer writes no more. Asked before a last look at what it has written.
    fn is_over(&self, side: &Side<Machine>) -> bool {
        side.is_closed() || self.gone.load(Ordering::Acquire)
    }

    /// What does not block now, and what is a failure and so does not either.
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
            ready.write = over || sides.room(*self.out.lock(), RING).map_or(true, |room| room >= ROOM);
        }
        ready
    }

    /// Uses up a signal, unless what it tells of is `there`: other threads may sleep for that, and one of them may be the one to act on it. So a
    /// signal stays as long as a socket would be readable.
    fn use_up(signal: &Waker, there: impl Fn() -> bool) {
        if there() {
            return;
        }
        signal.clear();
        // It may have come since.
        if there() {
            signal.wake();
        }
    }

    /// Ends both directions: nobody is to go on.
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
            // What it wrote before is there now.
            filled = sides.filled(*position, RING)?;
        }
        let count = filled.min(buffer.len());
        let mut at = 0;
        for (offset, len) in parts(*position, count, RING) {
            // SAFETY: `parts` lie in the ring, and add up to no more than the buffer has. The peer may write there meanwhile, which makes the bytes
            // wrong, and they are not looked at before they have been copied.
            unsafe { buffer.as_mut_ptr().add(at).copy_from_nonoverlapping(self.bytes(half.ring, offset), len) };
            at += len;
        }
        if count > 0 {
            *position += count as u64;
            if position.wrapping_sub(half.said.load(Ordering::Relaxed)) < UNSAID as u64 {
                return Ok(count);
            }
            half.said.store(*position, Ordering::Relaxed);
            // A writer that is not woken yet sees to it that a later read finds it asleep.
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
                // SAFETY: `parts` lie in the ring, in the room that the reader has left, and add up to what the buffer has.
                unsafe { self.bytes(half.ring, offset).copy_from_nonoverlapping(buffer.as_ptr().add(at), len) };
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

    fn wait(&self, interest: Interest, waker: Option<&Waker>, timeout: Option<Duration>) -> io::Result<Readiness> {
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
                Self::use_up(&self.back.ours, || self.look(Interest::READ).read);
            }
            if found[2].contains(PollFlags::IN) {
                Self::use_up(&self.out.ours, || self.look(Interest::WRITE).write);
            }
            if found[0].intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
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
mod tests {
    use super::*;
    use crate::unix::test_path;

    crate::conformance!(Shm, &test_path());

    fn pair() -> (ShmStream, Arc<dyn Stream>) {
        let server = UnixServer::bind(&test_path()).unwrap();
        let client = offer(dial(server.path().as_ref(), PATIENCE).unwrap(), &[]).unwrap();
        (client, take_up(server.take().unwrap(), Instant::now() + PATIENCE).unwrap().0)
    }

    /// The client's end writes whatever it likes into the memory.
    #[test]
    fn nonsense_in_the_rings_is_an_error_and_no_more() {
        for position in [RING as u64 + 1, u64::MAX - RING as u64, u64::MAX / 2, 1 << 20] {
            let (client, server) = pair();
            let sides = client.sides(0);
            sides.writer.moved(position, &sides.reader);
            assert!(server.wait(Interest::READ, None, Some(PATIENCE)).unwrap().read);
            assert_eq!(server.read(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::InvalidData);
            let sides = client.sides(1);
            sides.reader.moved(position, &sides.writer);
            assert!(server.wait(Interest::WRITE, None, Some(PATIENCE)).unwrap().write);
            assert_eq!(server.write(&[IoSlice::new(b"x")]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        // Anything at all, while the server reads and writes.
        let (client, server) = pair();
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % 64 * 8;
            // SAFETY: inside the first page of the segment; the other side believes none of it.
            unsafe { client.segment.as_ptr().add(at).cast::<u64>().write_volatile(state >> (state % 60)) };
            let _ = server.read(&mut [0; 4096]);
            let _ = server.write(&[IoSlice::new(&[1; 100]), IoSlice::new(&[2; 3000])]);
            let _ = server.wait(Interest { read: true, write: true, hangup: true }, None, Some(Duration::ZERO));
        }
    }

    #[test]
    fn an_offer_that_is_not_as_it_should_be_is_refused() {
        let server = UnixServer::bind(&test_path()).unwrap();
        let refused = |message: &[u8], files: &[BorrowedFd<'_>]| {
            let client = dial(server.path().as_ref(), PATIENCE).unwrap();
            passing::send(client.as_fd(), message, files).unwrap();
            let socket = server.take().unwrap();
            take_up(socket, Instant::now() + PATIENCE).unwrap_err().to_string()
        };
        let (right, small) = (Segment::create("test", BYTES).unwrap(), Segment::create("test", 4096).unwrap());
        let event = Waker::new().unwrap();
        let (event, right, small) = (event.as_fd(), right.file(), small.file());
        assert!(refused(b"OUTBOARD-RINGS-9", &[right, event, event, event, event]).contains("not memory"));
        assert!(refused(&OFFER, &[right, event, event, event]).contains("lacks"));
        assert!(refused(&OFFER, &[small, event, event, event, event]).contains("another size"));
        assert!(refused(&OFFER, &[event, event, event, event, event]).contains("kind of file"));
        let client = dial(server.path().as_ref(), PATIENCE).unwrap();
        let socket = server.take().unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(take_up(socket, soon).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(client);
    }
}
