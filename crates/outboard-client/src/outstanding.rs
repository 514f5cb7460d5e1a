//! Queued work that may still use the program's memory or call its functions, until the program can
//! know that the work is done.
//!
//! CUDA lets a program free the memory of queued work once a wait has returned that proves the
//! work's end. A correct worker has no request left by then; requests of a faulty one for such work
//! are refused. Work has ended once a wait, a query or a host callback has proved the end of
//! something later in its stream, or later in a stream that waited for an event of its stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use outboard_front::backend::{ContextId, StreamId};
use parking_lot::Mutex;

const LEGACY: StreamId = StreamId::LEGACY;
/// Waits for events that are kept before those that say nothing of anything outstanding are looked
/// for.
const MANY_JOINS: usize = 256;

/// Done when work is known to be over.
pub(crate) type WhenOver = Box<dyn Fn() + Send + Sync>;

/// Work that was queued by a command.
pub(crate) struct Work {
    ctx: ContextId,
    stream: StreamId,
    /// The command; none yet while it is being queued.
    seq: AtomicU64,
    over: AtomicBool,
    /// Held while something is done for it.
    using: Mutex<()>,
    when_over: Option<WhenOver>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("ctx", &self.ctx)
            .field("stream", &self.stream)
            .field("seq", &self.seq)
            .finish_non_exhaustive()
    }
}

/// A stream waits for an event: from command `seq` on it is behind what another stream had before
/// command `until`.
#[derive(Debug, Clone, Copy)]
struct Join {
    ctx: ContextId,
    stream: StreamId,
    seq: u64,
    behind: (ContextId, StreamId),
    until: u64,
}

/// All such work of a session.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    count: AtomicUsize,
    state: Mutex<OutstandingState>,
}

#[derive(Debug, Default)]
struct OutstandingState {
    work: Vec<Arc<Work>>,
    joins: Vec<Join>,
}

/// What a wait or a query has proved: what a stream, or all of a context, had before a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    Context(ContextId),
    /// The legacy default stream also represents the streams that wait for it; `apart` says which
    /// do not.
    Stream(ContextId, StreamId),
}

/// Work that counts as outstanding until this is dropped, or it is known to be over.
#[derive(Debug)]
pub(crate) struct Queued {
    work: Arc<Work>,
    of: Arc<Outstanding>,
}

impl Outstanding {
    /// Work that is about to be queued in a stream.
    pub(crate) fn begin(self: &Arc<Outstanding>, ctx: ContextId, stream: StreamId) -> Queued {
        self.begin_with(ctx, stream, None)
    }

    /// The same; who learns that it is over, other than by the end of its context, calls
    /// `when_over`.
    pub(crate) fn begin_with(
        self: &Arc<Outstanding>,
        ctx: ContextId,
        stream: StreamId,
        when_over: Option<WhenOver>,
    ) -> Queued {
        let work = Arc::new(Work {
            ctx,
            stream,
            seq: AtomicU64::new(u64::MAX),
            over: AtomicBool::new(false),
            using: Mutex::new(()),
            when_over,
        });
        let mut state = self.state.lock();
        state.work.push(Arc::clone(&work));
        self.count.store(state.work.len(), Ordering::Release);
        Queued { work, of: Arc::clone(self) }
    }

    /// Whether there is any.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Command `seq` has a stream wait for an event, which was recorded by command `recorded` in
    /// another.
    pub(crate) fn joined(
        &self,
        ctx: ContextId,
        stream: StreamId,
        seq: u64,
        of: (ContextId, StreamId),
        recorded: u64,
    ) {
        if !self.is_any() {
            return;
        }
        let mut state = self.state.lock();
        if state.joins.len() >= MANY_JOINS && state.joins.len().is_power_of_two() {
            let first = state.work.iter().map(|work| work.seq()).min().unwrap_or(u64::MAX);
            state.joins.retain(|join| join.until > first);
        }
        state.joins.push(Join { ctx, stream, seq, behind: of, until: recorded + 1 });
    }

    /// A wait has proved that everything queued before command `before` is done. When this returns,
    /// nothing is done for it any more.
    pub(crate) fn learned(&self, known: Known, before: u64, apart: impl Fn(StreamId) -> bool) {
        if self.is_any() {
            for work in self.take(known, before, apart) {
                work.end();
                if let Some(when_over) = &work.when_over {
                    when_over();
                }
            }
        }
    }

    #[cold]
    fn take(&self, known: Known, before: u64, apart: impl Fn(StreamId) -> bool) -> Vec<Arc<Work>> {
        let mut state = self.state.lock();
        let mut all = vec![(known, before)];
        let mut at = 0;
        while let Some((known, before)) = all.get(at).copied() {
            at += 1;
            state.joins.retain(|join| {
                let shown = known.covers(join.ctx, join.stream, &apart) && join.seq < before;
                if shown {
                    all.push((Known::Stream(join.behind.0, join.behind.1), join.until));
                }
                !shown
            });
        }
        let is_over = |work: &Arc<Work>| {
            all.iter().any(|(known, before)| {
                known.covers(work.ctx, work.stream, &apart) && work.seq() < *before
            })
        };
        let ended = state.work.extract_if(.., |work| is_over(work)).collect();
        self.count.store(state.work.len(), Ordering::Release);
        if state.work.is_empty() {
            state.joins.clear();
        }
        ended
    }

    /// A context has ended, and its work with it.
    pub(crate) fn context_ended(&self, ctx: ContextId) {
        self.take(Known::Context(ctx), u64::MAX, |_| true).iter().for_each(|work| work.end());
    }
}

impl Known {
    fn covers(self, ctx: ContextId, stream: StreamId, apart: &impl Fn(StreamId) -> bool) -> bool {
        match self {
            Known::Context(of) => of == ctx,
            Known::Stream(of, known) => {
                of == ctx && (known == stream || known == LEGACY && !apart(stream))
            }
        }
    }
}

impl Work {
    fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
        // Whoever does something for it has finished.
        drop(self.using.lock());
    }

    /// Whether the program can know that it is done.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Does something for it, unless it is over.
    pub(crate) fn use_it<T>(&self, what: impl FnOnce() -> T) -> Option<T> {
        let _using = self.using.lock();
        (!self.is_over()).then(what)
    }
}

impl Queued {
    /// The command that queues it has this number.
    pub(crate) fn is(&self, seq: u64) {
        self.work.seq.store(seq, Ordering::Release);
    }

    pub(crate) fn work(&self) -> &Arc<Work> {
        &self.work
    }

    /// Whether the program can know that it is done.
    pub(crate) fn is_over(&self) -> bool {
        self.work.is_over()
    }

    /// The stream, and the command that queued it.
    pub(crate) fn place(&self) -> (ContextId, StreamId, u64) {
        (self.work.ctx, self.work.stream, self.work.seq())
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        state.work.retain(|work| !Arc::ptr_eq(work, &self.work));
        if state.work.is_empty() {
            state.joins.clear();
        }
        self.of.count.store(state.work.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: ContextId = ContextId(1);

    fn queued(all: &Arc<Outstanding>, stream: StreamId, seq: u64) -> Queued {
        let queued = all.begin(CTX, stream);
        queued.is(seq);
        queued
    }

    fn none(_: StreamId) -> bool {
        false
    }

    #[test]
    fn a_wait_ends_what_is_before_it_in_its_stream() {
        let all = Arc::new(Outstanding::default());
        let (first, second, other) = (
            queued(&all, StreamId(7), 10),
            queued(&all, StreamId(7), 20),
            queued(&all, StreamId(8), 11),
        );
        let unknown = all.begin(CTX, StreamId(7));
        all.learned(Known::Stream(CTX, StreamId(7)), 15, none);
        assert!(first.is_over() && !second.is_over() && !other.is_over() && !unknown.is_over());
        assert!(first.work().use_it(|| ()).is_none() && second.work().use_it(|| ()).is_some());
        all.learned(Known::Stream(ContextId(2), StreamId(7)), 99, none);
        assert!(!second.is_over(), "a stream of another context");
        all.learned(Known::Context(CTX), 99, none);
        assert!(second.is_over() && other.is_over() && !unknown.is_over());
        all.context_ended(CTX);
        assert!(!unknown.is_over(), "it is being queued");
        drop(unknown);
        assert!(!all.is_any());
    }

    #[test]
    fn the_legacy_stream_stands_for_those_that_wait_for_it() {
        let all = Arc::new(Outstanding::default());
        let (blocking, apart) = (queued(&all, StreamId(7), 10), queued(&all, StreamId(8), 11));
        all.learned(Known::Stream(CTX, LEGACY), 20, |stream| stream == StreamId(8));
        assert!(blocking.is_over() && !apart.is_over());
    }

    #[test]
    fn waits_for_events_are_followed() {
        let all = Arc::new(Outstanding::default());
        let (first, second) = (queued(&all, StreamId(7), 10), queued(&all, StreamId(7), 13));
        // Recorded as 12; 8 waits as 14, and 9 for what 8 recorded as 15, as 16.
        all.joined(CTX, StreamId(8), 14, (CTX, StreamId(7)), 12);
        all.joined(CTX, StreamId(9), 16, (CTX, StreamId(8)), 15);
        all.learned(Known::Stream(CTX, StreamId(9)), 16, none);
        assert!(!first.is_over(), "the wait was behind what is known");
        all.learned(Known::Stream(CTX, StreamId(9)), 17, none);
        assert!(first.is_over() && !second.is_over());
        drop((first, second));
        assert!(all.state.lock().joins.is_empty());
    }

    #[test]
    fn days_of_joins_are_not_kept() {
        let all = Arc::new(Outstanding::default());
        let mut last = queued(&all, StreamId(7), 1);
        for seq in (2..200_000).step_by(3) {
            all.joined(CTX, StreamId(8), seq + 1, (CTX, StreamId(7)), seq);
            last = queued(&all, StreamId(7), seq + 2);
        }
        assert!(all.state.lock().joins.len() <= 4 * MANY_JOINS);
        drop(last);
    }
}
