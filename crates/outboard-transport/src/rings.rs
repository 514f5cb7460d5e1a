//! Two rings of bytes in one piece of memory, one for each direction: what the streams through
//! shared memory have in common, however their sides wake each other.

use std::io::{self, IoSlice};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::locks::lock;
use crate::ring::{Machine, Side, Sides, parts};
use crate::stream::{Interest, Readiness};

/// Bytes of a ring: what the processor's own cache holds easily, and several batches of commands.
pub(crate) const RING: usize = 256 << 10;
/// A writer that found no room is woken when there is this much.
const ROOM: usize = RING / 4;
/// Either side publishes its position after so many further bytes, so that both copy at once. The
/// writer says where a message ends, too; the reader does not, so that for most messages the writer
/// keeps its cache line. A sleeping writer never waits for a position that is not published.
const PIECE: usize = RING / 8;
const _: () = assert!(PIECE + ROOM <= RING);
/// Where the bytes of the first ring begin. Before them is what the sides say of themselves.
const HEAD: usize = 4096;
/// Bytes of what the sides say of themselves.
pub(crate) const SAID: usize = 2 * size_of::<Sides<Machine>>();
const _: () = assert!(SAID <= HEAD);
/// Bytes of both rings together.
pub(crate) const BYTES: usize = HEAD + 2 * RING;

/// Who writes into the first ring, and reads from the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

/// One direction, as this process uses it.
struct Half {
    /// How far this process has written, or read.
    position: Mutex<u64>,
    /// How far it has said that it has read. Changed under the lock of the position.
    said: AtomicU64,
    /// Which of the rings.
    ring: usize,
}

impl Half {
    fn new(ring: usize) -> Half {
        Half { position: Mutex::new(0), said: AtomicU64::new(0), ring }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        lock(&self.position)
    }
}

/// Who keeps the memory of rings.
///
/// # Safety
/// The memory begins at a page, has [`BYTES`] bytes that can be read and written, and stays where
/// it is as long as the keeper.
pub(crate) unsafe trait Keeper {
    fn memory(&self) -> NonNull<u8>;
}

/// The rings as one end uses them.
pub(crate) struct Rings<K> {
    keeper: K,
    out: Half,
    back: Half,
    /// The peer was seen to be gone.
    gone: AtomicBool,
}

/// A thread is counted as asleep while this lives.
pub(crate) struct Asleep<'a>(&'a Side<Machine>);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Wakes a thread of the peer's at the first piece that it can use, and after the last one if it
/// sleeps again by then.
struct Wakes<F> {
    wake: F,
    was_woken: bool,
    is_asleep: bool,
}

impl<F: Fn()> Wakes<F> {
    fn new(wake: F) -> Wakes<F> {
        Wakes { wake, was_woken: false, is_asleep: false }
    }

    /// Whether it sleeps, behind a piece.
    fn note(&mut self, is_asleep: bool) {
        self.is_asleep = is_asleep && self.was_woken;
        if is_asleep && !self.was_woken {
            self.was_woken = true;
            (self.wake)();
        }
    }

    fn finish(self) {
        if self.is_asleep {
            (self.wake)();
        }
    }
}

impl<K: Keeper> Rings<K> {
    pub(crate) fn new(keeper: K, end: End) -> Rings<K> {
        let (out, back) = if end == End::Client { (0, 1) } else { (1, 0) };
        Rings { keeper, out: Half::new(out), back: Half::new(back), gone: AtomicBool::new(false) }
    }

    /// Who keeps the memory.
    pub(crate) fn keeper(&self) -> &K {
        &self.keeper
    }

    fn sides(&self, ring: usize) -> &Sides<Machine> {
        // SAFETY: the memory has HEAD bytes, begins at a page, and lives as long as `self`; the
        // numbers are atomic, and any bytes are valid.
        unsafe { &*self.keeper.memory().as_ptr().cast::<Sides<Machine>>().add(ring) }
    }

    /// What the sides say of the ring into which this end writes.
    pub(crate) fn outward(&self) -> &Sides<Machine> {
        self.sides(self.out.ring)
    }

    /// The same of the ring from which it reads.
    pub(crate) fn inward(&self) -> &Sides<Machine> {
        self.sides(self.back.ring)
    }

    /// Where the bytes of a ring are.
    fn bytes(&self, ring: usize, offset: usize) -> *mut u8 {
        // SAFETY: the memory has room for both rings, and offsets are below RING.
        unsafe { self.keeper.memory().as_ptr().add(HEAD + ring * RING + offset) }
    }

    /// Whether the peer has stopped. Check this first, then read once more.
    fn is_over(&self, side: &Side<Machine>) -> bool {
        side.is_closed() || self.gone.load(Ordering::Acquire)
    }

    /// The peer is gone.
    pub(crate) fn lose(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// As [`read`](crate::Stream::read). Calls `wake` when a thread of the peer's that writes is to
    /// be woken.
    pub(crate) fn read(&self, buffer: &mut [u8], wake: impl Fn()) -> io::Result<usize> {
        let (half, sides) = (&self.back, self.inward());
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
        let mut wakes = Wakes::new(wake);
        for piece in buffer[..count].chunks_mut(PIECE) {
            self.take(*position, piece);
            *position += piece.len() as u64;
            filled -= piece.len();
            if position.wrapping_sub(half.said.load(Ordering::Relaxed)) >= PIECE as u64 {
                half.said.store(*position, Ordering::Relaxed);
                // A writer that is not woken now is still counted as asleep when a later read
                // checks.
                wakes.note(sides.reader.moved(*position, &sides.writer) && RING - filled >= ROOM);
            }
        }
        wakes.finish();
        Ok(count)
    }

    /// As [`write`](crate::Stream::write). Calls `wake` when a thread of the peer's that reads is
    /// to be woken.
    pub(crate) fn write(&self, buffers: &[IoSlice<'_>], wake: impl Fn()) -> io::Result<usize> {
        let sides = self.outward();
        let mut position = self.out.lock();
        if self.is_over(&sides.reader) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut room = sides.room(*position, RING)?;
        let (mut written, mut unsaid) = (0, 0);
        let mut wakes = Wakes::new(wake);
        let pieces = buffers.iter().flat_map(|buffer| buffer.chunks(PIECE));
        for piece in pieces {
            if piece.len() > room {
                room = sides.room(*position, RING)?;
            }
            let now = &piece[..piece.len().min(room)];
            self.put(*position, now);
            *position += now.len() as u64;
            (written, unsaid, room) = (written + now.len(), unsaid + now.len(), room - now.len());
            if unsaid >= PIECE {
                unsaid = 0;
                wakes.note(sides.writer.moved(*position, &sides.reader));
            }
            if now.len() < piece.len() {
                break;
            }
        }
        if unsaid > 0 {
            wakes.note(sides.writer.moved(*position, &sides.reader));
        }
        wakes.finish();
        let empty = || buffers.iter().all(|buffer| buffer.is_empty());
        if written == 0 && !empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(written)
    }

    /// Copies bytes to where the reader has left room for them.
    fn put(&self, position: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for (offset, len) in parts(position, bytes.len(), RING) {
            let (part, behind) = rest.split_at(len);
            // SAFETY: `parts` lie in the ring, and add up to what there is.
            unsafe {
                self.bytes(self.out.ring, offset).copy_from_nonoverlapping(part.as_ptr(), len);
            }
            rest = behind;
        }
    }

    /// Copies bytes that the writer has put there. The peer may write there meanwhile, which makes
    /// them wrong, and they are not looked at before they have been copied.
    fn take(&self, position: u64, to: &mut [u8]) {
        let mut at = 0;
        for (offset, len) in parts(position, to.len(), RING) {
            let part = &mut to[at..at + len];
            // SAFETY: `parts` lie in the ring, and add up to what there is.
            unsafe {
                part.as_mut_ptr().copy_from_nonoverlapping(self.bytes(self.back.ring, offset), len);
            }
            at += len;
        }
    }

    /// Which calls would not block now; on a failed stream none blocks.
    pub(crate) fn look(&self, interest: Interest) -> Readiness {
        let mut ready = Readiness::default();
        if interest.read {
            let sides = self.inward();
            let over = self.is_over(&sides.writer);
            ready.read = over || !matches!(sides.filled(*self.back.lock(), RING), Ok(0));
        }
        if interest.write {
            let sides = self.outward();
            let over = self.is_over(&sides.reader);
            ready.write =
                over || sides.room(*self.out.lock(), RING).map_or(true, |room| room >= ROOM);
        }
        ready
    }

    /// Whether much can be written.
    pub(crate) fn has_room(&self) -> bool {
        let sides = self.outward();
        let room = sides.room(*self.out.lock(), RING);
        !self.is_over(&sides.reader) && room.is_ok_and(|room| room >= ROOM)
    }

    /// Counts a thread of this end as asleep that waits for these.
    pub(crate) fn sleep(&self, interest: Interest) -> [Option<Asleep<'_>>; 2] {
        let asleep = |wanted: bool, side| {
            wanted.then(|| {
                Side::sleep(side);
                Asleep(side)
            })
        };
        [
            asleep(interest.read, &self.inward().reader),
            asleep(interest.write, &self.outward().writer),
        ]
    }

    /// Ends both directions. The caller wakes threads that sleep.
    pub(crate) fn close(&self) {
        for half in [&self.out, &self.back] {
            let sides = self.sides(half.ring);
            sides.writer.close();
            sides.reader.close();
        }
        self.lose();
    }
}
