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

/// How many threads can wait like this at once.
const SLOTS: usize = 16;
/// A slot has its number, alone in its cache line and the one that processors fetch along, and
/// bytes behind it.
const NUMBER: usize = 128;
/// Copies of up to this many bytes come like this: all that would come with an answer otherwise.
pub(super) const SMALL: u64 = MAX_INLINE as u64;
const SLOT: usize = NUMBER + SMALL as usize;
/// The first waits of a process are ordinary ones: a program that makes few needs no such memory.
const ORDINARY_FIRST: u32 = 16;

/// Longer waits are ordinary ones: the worker, idle meanwhile, would fall asleep and start the next
/// command late.
const LONGEST_POLL: Duration = Duration::from_micros(400);

/// Values of `base` without memory: not yet, or never again. Any other value is the memory's
/// address.
const NOT_MADE: u64 = 0;
const DISABLED: u64 = 1;

/// The memory with the numbers, and the context that allocated it.
pub(super) struct PolledWaits {
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

impl PolledWaits {
    pub(super) const fn new() -> PolledWaits {
        PolledWaits {
            base: AtomicU64::new(NOT_MADE),
            ctx: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            long: AtomicBool::new(false),
            making: Mutex::new(()),
        }
    }

    /// From now on the worker's answers carry more than the device can show.
    pub(super) fn disable(&self) {
        if self.base.load(Ordering::Relaxed) != DISABLED {
            self.base.store(DISABLED, Ordering::Release);
        }
    }

    /// A context is about to end, perhaps the one whose memory this is.
    pub(super) fn context_ends(&self, ctx: ContextId) {
        if self.ctx.load(Ordering::Relaxed) == ctx.0 {
            self.disable();
        }
    }

    #[inline]
    fn slot(&self, remote: &Remote, ctx: ContextId) -> Option<Slot> {
        match self.base.load(Ordering::Acquire) {
            DISABLED => None,
            NOT_MADE => {
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

    fn note_duration(&self, begun: Instant) {
        let long = begun.elapsed() > LONGEST_POLL;
        if self.long.load(Ordering::Relaxed) != long {
            self.long.store(long, Ordering::Relaxed);
        }
    }

    /// Allocates the memory once there were enough waits.
    #[cold]
    fn begin(&self, remote: &Remote, ctx: ContextId) {
        if self.waits.fetch_add(1, Ordering::Relaxed) < ORDINARY_FIRST {
            return;
        }
        let Some(_one) = self.making.try_lock() else { return };
        if self.base.load(Ordering::Acquire) != NOT_MADE {
            return;
        }
        self.ctx.store(ctx.0, Ordering::Relaxed);
        let memory = remote.alloc_host(ctx, SLOTS * SLOT);
        // The device can write it only if the worker has it, too.
        let made = memory.ok().map(|memory| memory as u64);
        let base = made
            .filter(|base| remote.host.is_shared(HostPtr(*base), (SLOTS * SLOT) as u64))
            .unwrap_or(DISABLED);
        // If it was switched off meanwhile, it stays off.
        let _ = self.base.compare_exchange(NOT_MADE, base, Ordering::Release, Ordering::Relaxed);
    }
}

impl Remote {
    /// Waits until the device has done all work queued in a stream, by polling for its number.
    /// Returns `None` if the number does not come soon or the worker's answer is needed. `before`
    /// queues a copy that comes with the number.
    pub(super) fn poll_device(
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
        let Some(slot) = self.polled.slot(self, ctx) else { return Ok(None) };
        let begun = Instant::now();
        before(slot)?;
        // The number's earlier writes are done: otherwise this path would have been disabled.
        let number = slot.number().load(Ordering::Relaxed).wrapping_add(1);
        let write = msg::StreamWriteValue {
            stream,
            address: slot.0.unified().device(),
            value: number.into(),
            wide: false,
            flags: 0,
        };
        let seq = session.post_numbered(ctx, &write)?;
        if !link.poll_for(|| slot.number().load(Ordering::Acquire) == number, LONGEST_POLL) {
            return Ok(None);
        }
        self.polled.note_duration(begun);
        if session.reuse().needs_wait() || session.has_copies_to_be_told_of() {
            // Another thread freed or copied something meanwhile, perhaps before that number.
            return Ok(None);
        }
        profile::stalled(|| session.copies.settle());
        session.wait_for_nothing()?;
        session.progress().stream_done(ctx, stream, seq);
        Ok(Some(slot))
    }

    /// Makes an ordinary wait after [`Remote::poll_device`] has failed. If it fails, too, the
    /// device may never write the number, or write it later.
    pub(super) fn wait_in_worker<T>(&self, wait: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.polled.base.load(Ordering::Relaxed) <= DISABLED {
            return wait();
        }
        let begun = Instant::now();
        let outcome = wait();
        self.polled.note_duration(begun);
        if outcome.is_err() {
            self.polled.disable();
        }
        outcome
    }
}
