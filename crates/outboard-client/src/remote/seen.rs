//! Short waits of a client on the server's machine: the device itself says how far it has come.
//!
//! After the work that a wait covers, the device writes a number to page-locked memory that this
//! process also maps. The waiting thread polls for it, so that no thread of the worker has to
//! notice and answer; a small copy to the host arrives the same way. If the number does not come
//! soon, or never, as after a fault, the client makes an ordinary wait.
//!
//! The number says only that the device is done. A worker's answer carries more, which must not be
//! lost: output of kernels (so this way ends with the first image that can print), memory that
//! pools give back (so it is not used while a free waits for that), and which copies on lanes the
//! device has done. The worker reports failures of posted commands before the device reaches the
//! number, and the client reads them when it has.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outboard_front::backend::{ContextId, HostPtr, Result, StreamId};
use outboard_front::profile;
use outboard_wire::limits::MAX_INLINE;
use outboard_wire::messages as msg;
use parking_lot::Mutex;

use super::Remote;

/// Threads that can wait like this at once.
const SLOTS: usize = 16;
/// A slot has its number, alone in its cache line and the one that processors fetch along, and
/// bytes behind it.
const NUMBER: usize = 128;
/// Copies of up to this many bytes come like this: all that would come with an answer otherwise.
pub(super) const SMALL: u64 = MAX_INLINE as u64;
const SLOT: usize = NUMBER + SMALL as usize;
/// The first waits of a process are made as any other: a program that makes few does without the
/// memory.
const FIRST: u32 = 16;

/// Longer waits are made as any other: the worker, which has nothing to do meanwhile, would fall
/// asleep, and be late for what comes next.
const LONG: Duration = Duration::from_micros(400);

/// There is no memory yet, or there is not to be any. Else its address.
const NONE: u64 = 0;
const NEVER: u64 = 1;

/// The memory, and whose it is.
pub(super) struct Seen {
    base: AtomicU64,
    ctx: AtomicU32,
    waits: AtomicU32,
    /// The last wait was a long one.
    long: AtomicBool,
    making: Mutex<()>,
}

/// A thread's place in that memory.
#[derive(Clone, Copy)]
pub(super) struct Slot(HostPtr);

/// Numbers of slots that no thread has. A thread has the same number in the memory of each server.
static FREE: Mutex<[bool; SLOTS]> = Mutex::new([true; SLOTS]);

/// A thread's number among those, until the thread ends.
struct Own(Cell<Option<usize>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(number) = self.0.get() {
            FREE.lock()[number] = true;
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

/// This thread's number, if there is one left.
fn own() -> Option<usize> {
    let number = OWN.try_with(|own| {
        if own.0.get().is_none() {
            let mut free = FREE.lock();
            let number = free.iter().position(|free| *free)?;
            free[number] = false;
            own.0.set(Some(number));
        }
        own.0.get()
    });
    number.ok().flatten()
}

impl Slot {
    fn number(&self) -> &AtomicU32 {
        // SAFETY: within the memory, which is never unmapped; only ever accessed as an atomic, or
        // by the device.
        unsafe { AtomicU32::from_ptr(self.0.pointer()) }
    }

    /// Where the bytes are that come with the number, for the device and for this process.
    pub(super) fn bytes(self) -> HostPtr {
        self.0.offset(NUMBER as u64)
    }
}

impl Seen {
    pub(super) const fn new() -> Seen {
        Seen {
            base: AtomicU64::new(NONE),
            ctx: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            long: AtomicBool::new(false),
            making: Mutex::new(()),
        }
    }

    /// From now on an answer of the worker's says more than the device can.
    pub(super) fn never(&self) {
        if self.base.load(Ordering::Relaxed) != NEVER {
            self.base.store(NEVER, Ordering::Release);
        }
    }

    /// A context is about to end, perhaps the one whose memory this is.
    pub(super) fn context_ends(&self, ctx: ContextId) {
        if self.ctx.load(Ordering::Relaxed) == ctx.0 {
            self.never();
        }
    }

    #[inline]
    fn slot(&self, remote: &Remote, ctx: ContextId) -> Option<Slot> {
        match self.base.load(Ordering::Acquire) {
            NEVER => None,
            NONE => {
                self.begin(remote, ctx);
                None
            }
            _ if self.long.load(Ordering::Relaxed) => None,
            base if self.ctx.load(Ordering::Relaxed) == ctx.0 => {
                Some(Slot(HostPtr(base).offset((own()? * SLOT) as u64)))
            }
            _ => None,
        }
    }

    fn took(&self, begun: Instant) {
        let long = begun.elapsed() > LONG;
        if self.long.load(Ordering::Relaxed) != long {
            self.long.store(long, Ordering::Relaxed);
        }
    }

    /// Makes the memory, if it is time.
    #[cold]
    fn begin(&self, remote: &Remote, ctx: ContextId) {
        if self.waits.fetch_add(1, Ordering::Relaxed) < FIRST {
            return;
        }
        let Some(_one) = self.making.try_lock() else { return };
        if self.base.load(Ordering::Acquire) != NONE {
            return;
        }
        self.ctx.store(ctx.0, Ordering::Relaxed);
        let memory = remote.alloc_host(ctx, SLOTS * SLOT);
        // It is for the device only if the worker has it, too.
        let made = memory.ok().map(|memory| memory as u64);
        let base = made
            .filter(|base| remote.host.is_shared(HostPtr(*base), (SLOTS * SLOT) as u64))
            .unwrap_or(NEVER);
        // If it was switched off meanwhile, it stays off.
        let _ = self.base.compare_exchange(NONE, base, Ordering::Release, Ordering::Relaxed);
    }
}

impl Remote {
    /// Waits until the device has done all that was queued in a stream, if it says so soon and
    /// nothing else needs to be known. `before` queues what comes with it.
    pub(super) fn seen(
        &self,
        ctx: ContextId,
        stream: StreamId,
        before: impl FnOnce(Slot) -> Result<()>,
    ) -> Result<Option<Slot>> {
        let session = self.session()?;
        let link = session.link();
        if link.memory().is_none()
            || session.has_copies_to_be_told_of()
            || session.reuse().needs_wait()
        {
            return Ok(None);
        }
        let Some(slot) = self.seen.slot(self, ctx) else { return Ok(None) };
        let begun = Instant::now();
        before(slot)?;
        // Nobody else writes there: the device has come to what was queued before, or this is not
        // reached again.
        let number = slot.number().load(Ordering::Relaxed).wrapping_add(1);
        let write = msg::StreamWriteValue {
            stream,
            address: slot.0.unified().device(),
            value: number.into(),
            wide: false,
            flags: 0,
        };
        let seq = session.post_numbered(ctx, &write)?;
        if !link.look_for(|| slot.number().load(Ordering::Acquire) == number, LONG) {
            return Ok(None);
        }
        self.seen.took(begun);
        if session.reuse().needs_wait() || session.has_copies_to_be_told_of() {
            // Another thread freed or copied something meanwhile, perhaps before that number.
            return Ok(None);
        }
        profile::stalled(|| session.copies.settle());
        session.wait_for_nothing()?;
        session.progress().stream_done(ctx, stream, seq);
        Ok(Some(slot))
    }

    /// Makes a wait behind [`Remote::seen`] as any other. If it fails, the device may never get to
    /// the number, or do so later.
    pub(super) fn unseen<T>(&self, wait: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.seen.base.load(Ordering::Relaxed) <= NEVER {
            return wait();
        }
        let begun = Instant::now();
        let outcome = wait();
        self.seen.took(begun);
        if outcome.is_err() {
            self.seen.never();
        }
        outcome
    }
}
