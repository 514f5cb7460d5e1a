//! Records which work is done, so that a wait for such work makes no round trip.
//!
//! Commands are numbered in the process's one order. A wait that succeeded as command *n* proves
//! that everything queued before *n* in the stream (or context) is done; while nothing has been
//! queued there since, the same wait has the same answer. The record errs to one side only: a
//! stream counts as busy if another stream, or a command that names no stream, may have put work
//! into it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outboard_front::backend::{ContextId, ObjectId, StreamId};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::outstanding::{Known, Outstanding};

const LEGACY: StreamId = StreamId::LEGACY;
/// Where commands count that name no stream, or many.
const ANYWHERE: usize = 0;
/// Where those of legacy default streams count: of all contexts.
const DEFAULT: usize = 1;
/// Streams share so many: a power of two, by which dividing costs an instruction.
const STREAM_SLOTS: usize = 32;
const SLOTS: usize = 2 + STREAM_SLOTS;
const SHARDS: usize = 16;

/// The record, by the numbers of commands.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The last command that put work into a stream: streams share these.
    posted: [Slot; SLOTS],
    /// The last command that may have recorded an event without naming it: the launch of a graph,
    /// say.
    recorded_unnamed: AtomicU64,
    /// How many such commands are being queued.
    recording_unnamed: AtomicU64,
    waits: Mutex<Waits>,
    /// The last command before which anything is known to be done: what `waits` says of no stream
    /// is more.
    latest_done: AtomicU64,
    events: [Mutex<FxHashMap<ObjectId, Event>>; SHARDS],
    /// What may use the program's memory until it is done.
    outstanding: Arc<Outstanding>,
}

/// Alone in its cache line: threads that launch into streams of their own do not meet here.
#[derive(Debug)]
#[repr(align(64))]
struct Slot(AtomicU64);

/// Everything before these commands is known to be done.
#[derive(Debug, Default)]
struct Waits {
    contexts: FxHashMap<ContextId, u64>,
    streams: FxHashMap<(ContextId, StreamId), u64>,
    /// Streams that do not wait for the legacy default stream.
    apart: FxHashSet<StreamId>,
}

impl Waits {
    fn of(&self, ctx: ContextId, stream: StreamId) -> u64 {
        let all = self.contexts.get(&ctx).copied().unwrap_or(0);
        self.streams.get(&(ctx, stream)).map_or(all, |done| all.max(*done))
    }
}

#[derive(Debug, Clone, Copy)]
struct Event {
    /// Other processes have it: nothing is ever known of it.
    shared: bool,
    ctx: ContextId,
    stream: StreamId,
    /// The command that recorded it last.
    recorded: u64,
    /// Its last record before this command is known to be done.
    done: u64,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress {
            posted: [const { Slot(AtomicU64::new(0)) }; SLOTS],
            recorded_unnamed: AtomicU64::new(0),
            recording_unnamed: AtomicU64::new(0),
            waits: Mutex::default(),
            latest_done: AtomicU64::new(0),
            events: std::array::from_fn(|_| Mutex::default()),
            outstanding: Arc::default(),
        }
    }
}

/// Raises a number that many threads raise.
fn raise(number: &AtomicU64, to: u64) {
    let mut now = number.load(Ordering::Relaxed);
    while now < to {
        match number.compare_exchange_weak(now, to, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => now = other,
        }
    }
}

/// Names differ in their low bits.
fn spread(name: u64) -> usize {
    (name.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as usize
}

fn slot(stream: StreamId) -> usize {
    if stream == LEGACY { DEFAULT } else { 2 + spread(stream.0) % STREAM_SLOTS }
}

impl Progress {
    /// Command `seq` may have put work anywhere.
    #[inline]
    pub(crate) fn posted(&self, seq: u64) {
        raise(&self.posted[ANYWHERE].0, seq);
    }

    /// Command `seq` has put work into a stream, and into no other.
    #[inline]
    pub(crate) fn posted_to(&self, stream: StreamId, seq: u64) {
        raise(&self.posted[slot(stream)].0, seq);
    }

    /// Queues a command that may record events which it does not name; `post` returns its number.
    pub(crate) fn record_unnamed<E>(&self, post: impl FnOnce() -> Result<u64, E>) -> Result<(), E> {
        // A later wait must count the work even if the command's number has not been noted yet.
        self.recording_unnamed.fetch_add(1, Ordering::AcqRel);
        let posted = post();
        if let Ok(seq) = posted {
            raise(&self.recorded_unnamed, seq);
        }
        self.recording_unnamed.fetch_sub(1, Ordering::AcqRel);
        posted.map(drop)
    }

    /// A stream has been made that does not wait for the legacy default stream.
    pub(crate) fn made_apart(&self, stream: StreamId) {
        self.waits.lock().apart.insert(stream);
    }

    /// A stream has ended.
    pub(crate) fn ended(&self, ctx: ContextId, stream: StreamId) {
        let mut waits = self.waits.lock();
        waits.apart.remove(&stream);
        waits.streams.remove(&(ctx, stream));
    }

    /// A context has ended.
    pub(crate) fn context_ended(&self, ctx: ContextId) {
        let mut waits = self.waits.lock();
        waits.contexts.remove(&ctx);
        waits.streams.retain(|(of, _), _| *of != ctx);
        drop(waits);
        for events in &self.events {
            events.lock().retain(|_, event| event.ctx != ctx);
        }
        self.outstanding.context_ended(ctx);
    }

    /// All that was queued in a context before command `seq` is done.
    pub(crate) fn context_done(&self, ctx: ContextId, seq: u64) {
        let mut waits = self.waits.lock();
        let done = waits.contexts.entry(ctx).or_default();
        *done = seq.max(*done);
        raise(&self.latest_done, seq);
        drop(waits);
        self.outstanding.learned(Known::Context(ctx), seq, |_| true);
    }

    /// All that was queued in a stream before command `seq` is done.
    pub(crate) fn stream_done(&self, ctx: ContextId, stream: StreamId, seq: u64) {
        let mut waits = self.waits.lock();
        let done = waits.streams.entry((ctx, stream)).or_default();
        *done = seq.max(*done);
        raise(&self.latest_done, seq);
        drop(waits);
        self.stream_seen(ctx, stream, seq);
    }

    /// The program can know, though not by a wait of which more is known, that all that was queued
    /// in a stream before command `seq` is done.
    #[inline]
    pub(crate) fn stream_seen(&self, ctx: ContextId, stream: StreamId, seq: u64) {
        if self.outstanding.is_any() {
            let apart = |stream| self.waits.lock().apart.contains(&stream);
            self.outstanding.learned(Known::Stream(ctx, stream), seq, apart);
        }
    }

    /// What may use the program's memory until it is done.
    pub(crate) fn outstanding(&self) -> &Arc<Outstanding> {
        &self.outstanding
    }

    /// Whether nothing is left to do in a context.
    pub(crate) fn is_context_idle(&self, ctx: ContextId) -> bool {
        let done = self.waits.lock().contexts.get(&ctx).copied().unwrap_or(0);
        self.nothing_since(done)
    }

    /// Whether nothing is left to do in a stream.
    pub(crate) fn is_stream_idle(&self, ctx: ContextId, stream: StreamId) -> bool {
        let (done, apart) = {
            let waits = self.waits.lock();
            (waits.of(ctx, stream), waits.apart.contains(&stream))
        };
        if stream == LEGACY {
            // It waits for others, too.
            return self.nothing_since(done);
        }
        let before = |slot: usize| self.posted[slot].0.load(Ordering::Acquire) < done;
        before(ANYWHERE) && before(slot(stream)) && (apart || before(DEFAULT))
    }

    fn nothing_since(&self, done: u64) -> bool {
        self.posted.iter().all(|posted| posted.0.load(Ordering::Acquire) < done)
    }

    fn shard(&self, event: ObjectId) -> MutexGuard<'_, FxHashMap<ObjectId, Event>> {
        self.events[spread(event.0) % SHARDS].lock()
    }

    /// Whether a stream is idle, for callers that mostly find it busy: that is found out by two
    /// looks.
    #[inline]
    fn is_seldom_idle(&self, ctx: ContextId, stream: StreamId) -> bool {
        let done = self.latest_done.load(Ordering::Acquire);
        let before = |slot: usize| self.posted[slot].0.load(Ordering::Acquire) < done;
        before(slot(stream)) && before(ANYWHERE) && self.is_stream_idle(ctx, stream)
    }

    /// Queues the record of an event; `post` returns the command's number. It is told whether the
    /// stream is idle: then the event happens at once, and its record is no work that anybody had
    /// to wait for.
    pub(crate) fn record<E>(
        &self,
        event: ObjectId,
        ctx: ContextId,
        stream: StreamId,
        post: impl FnOnce(bool) -> Result<u64, E>,
    ) -> Result<(), E> {
        let idle = self.is_seldom_idle(ctx, stream);
        // Held while the command is queued, so that a thread that waits after it finds it noted.
        let mut events = self.shard(event);
        let seq = post(idle)?;
        let known = events.entry(event).or_insert(Event {
            shared: false,
            ctx,
            stream,
            recorded: 0,
            done: 0,
        });
        (known.ctx, known.stream, known.recorded) = (ctx, stream, seq);
        if idle {
            known.done = seq + 1;
        }
        Ok(())
    }

    /// An event is one of other processes as well.
    pub(crate) fn share_event(&self, event: ObjectId) {
        self.shard(event).insert(
            event,
            Event { shared: true, ctx: ContextId::NONE, stream: LEGACY, recorded: 0, done: 0 },
        );
    }

    /// Nothing is to be known of an event any more.
    pub(crate) fn forget_event(&self, event: ObjectId) {
        self.shard(event).remove(&event);
    }

    /// A wait for an event succeeded as command `seq`: what was in its stream before it is done,
    /// too.
    pub(crate) fn event_done(&self, event: ObjectId, seq: u64) {
        let found = {
            let mut events = self.shard(event);
            let Some(known) = events.get_mut(&event).filter(|known| !known.shared) else { return };
            known.done = seq.max(known.done);
            *known
        };
        if self.is_named(&found) && found.recorded < seq {
            self.stream_done(found.ctx, found.stream, found.recorded + 1);
        }
    }

    /// Whether nothing has recorded an event after the record that is known: a wait is for the
    /// latest one before it.
    fn is_named(&self, event: &Event) -> bool {
        self.recording_unnamed.load(Ordering::Acquire) == 0
            && self.recorded_unnamed.load(Ordering::Acquire) < event.recorded
    }

    /// The last record of an event by a command that names it: context and stream, and the command.
    /// `None` if there may be a later one.
    fn recorded(&self, event: ObjectId) -> Option<((ContextId, StreamId), u64)> {
        let known = self
            .shard(event)
            .get(&event)
            .copied()
            .filter(|known| !known.shared && known.recorded > 0)?;
        self.is_named(&known).then_some(((known.ctx, known.stream), known.recorded))
    }

    /// A question, command `seq`, was answered: an event has happened.
    pub(crate) fn event_seen(&self, event: ObjectId, seq: u64) {
        if self.outstanding.is_any()
            && let Some(((ctx, stream), recorded)) = self.recorded(event)
            && recorded < seq
        {
            self.stream_seen(ctx, stream, recorded + 1);
        }
    }

    /// Command `seq` has a stream wait for an event.
    pub(crate) fn joined(&self, ctx: ContextId, stream: StreamId, event: ObjectId, seq: u64) {
        if self.outstanding.is_any()
            && let Some((of, recorded)) = self.recorded(event)
            && recorded < seq
        {
            self.outstanding.joined(ctx, stream, seq, of, recorded);
        }
    }

    /// The command that has recorded an event last, as far as that is certain.
    pub(crate) fn record_of(&self, event: ObjectId) -> Option<u64> {
        self.recorded(event).map(|(_, recorded)| recorded)
    }

    /// Whether an event is known to have happened.
    pub(crate) fn has_happened(&self, event: ObjectId) -> bool {
        let Some(known) = self.shard(event).get(&event).copied() else { return false };
        let unnamed = self.recorded_unnamed.load(Ordering::Acquire);
        if known.shared {
            return false;
        }
        if known.done > known.recorded.max(unnamed) {
            return true;
        }
        unnamed < known.recorded && self.waits.lock().of(known.ctx, known.stream) > known.recorded
    }
}

#[cfg(test)]
mod tests;
