//! The hooks around queued work and waits, which move the program's memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use outboard_front::backend::{ContextId, ObjectId, Result, StreamId, UnifiedPtr};

use super::inner::Inner;
use super::store::Kind;
use super::{Brought, COMMON, Pager, StreamName, Wait, fault};

/// What a wait covered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Done {
    /// All work of a context.
    Context(ContextId),
    /// The work of a stream.
    Stream(StreamName),
    /// What came before an event's record.
    Event(ObjectId),
}

/// A thread queues work, which may run before it counts.
#[derive(Debug)]
pub(crate) struct Queuing<'a>(&'a AtomicU32);

impl Drop for Queuing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pager {
    /// Work that may use any tracked memory is about to be queued in a stream: the work sees what
    /// the program has written so far. The caller keeps what is returned until the work counts.
    pub(crate) fn before_work(&self, ctx: ContextId, stream: StreamId) -> Result<Queuing<'_>> {
        // The locks of what is common order this with what other threads send.
        self.queuing.fetch_add(1, Ordering::Relaxed);
        let queuing = Queuing(&self.queuing);
        let store = self.store()?;
        {
            let mut inner = self.lock();
            inner.flush(store, |_| true)?;
            inner.flush_opens(store)?;
            inner.join(store, ctx, stream)?;
        }
        self.common().map_or(Ok(()), |server| COMMON.before_work(server))?;
        Ok(queuing)
    }

    /// How many threads are queuing work.
    pub(super) fn queuing(&self) -> u32 {
        self.queuing.load(Ordering::Relaxed)
    }

    /// The work is queued. Another thread can wait for it only after this call.
    pub(crate) fn after_work(&self, ctx: ContextId, stream: StreamId) {
        {
            let mut inner = self.lock();
            let begins = inner.outstanding.is_empty() && !inner.opens.is_empty();
            inner.queued((ctx, stream));
            self.note_busy(&inner);
            if begins && inner.looks.begin() {
                inner.ring();
            }
        }
        if let Some(server) = self.common() {
            COMMON.after_work(server);
        }
    }

    /// Work that nothing has counted may use memory that becomes tracked.
    pub(crate) fn suspect_work(&self, ctx: ContextId) {
        let mut inner = self.lock();
        inner.suspect(ctx);
        self.note_busy(&inner);
    }

    /// The program is about to wait: kernels that poll mapped memory must see what the program has
    /// written there. Pages can come with the answer if it `brings`.
    pub(crate) fn before_wait(&self, brings: bool) -> Wait {
        if self.common().is_some() {
            COMMON.before_wait();
        }
        let Ok(store) = self.store() else { return Wait::default() };
        let mut inner = self.lock();
        let mut wait = Wait::of(inner.work);
        if !inner.outstanding.is_empty() {
            let _ = inner.flush(store, |region| region.home.kind == Kind::Mapped);
            // Programs ask in loops whether work is done.
            if !inner.opens.is_compared() {
                let _ = inner.flush_opens(store);
            }
            if brings {
                inner.expect(&mut wait);
            }
        }
        wait
    }

    /// The program has waited: what the work that this was for has written is there for it from now
    /// on.
    pub(crate) fn after_wait(&self, done: Done, wait: &Wait, brought: &Brought<'_>) {
        self.after_wait_of_own(done, wait, brought);
        if let Some(server) = self.common() {
            COMMON.after_wait(server, || self.is_busy());
        }
    }

    fn after_wait_of_own(&self, done: Done, wait: &Wait, brought: &Brought<'_>) {
        let Ok(store) = self.store() else { return };
        let mut inner = self.lock();
        if inner.outstanding.is_empty() {
            return;
        }
        if !inner.regions.is_empty() {
            // Protections are only of use with our handler in place.
            let _ = fault::arm_unless_watched();
        }
        let current = inner.current(wait);
        let _ = inner.flush(store, |region| region.home.kind == Kind::Mapped);
        inner.invalidate();
        inner.finish(done, wait.latest);
        self.note_busy(&inner);
        inner.take_opens(store, wait, brought);
        inner.take_along(wait, brought, &current);
        let Inner { wanted, regions, moved, outstanding, .. } = &mut *inner;
        wanted.retain(|(stream, range)| {
            if outstanding.contains_key(stream) {
                return true;
            }
            for region in regions.values_mut() {
                let _ = region.bring(store, range, moved);
            }
            false
        });
    }

    /// Runs a function of the program that a stream calls: it sees what the work before it has
    /// written, and the work behind it sees what it writes.
    pub(crate) fn around_function<T>(&self, run: impl FnOnce() -> T) -> T {
        if !self.is_active() {
            return run();
        }
        self.before_function();
        let result = run();
        self.after_function();
        result
    }

    /// A stream is about to call a function of the program: what the stream has done so far is
    /// there for it.
    pub(super) fn before_function(&self) {
        self.take_in();
    }

    /// Work of some stream is known to be done: what it has written is there for the program.
    pub(crate) fn take_in(&self) {
        let Ok(store) = self.store() else { return };
        {
            let mut inner = self.lock();
            if !inner.regions.is_empty() {
                let _ = fault::arm_unless_watched();
            }
            let _ = inner.flush(store, |region| region.home.kind == Kind::Mapped);
            inner.invalidate();
            inner.take_opens(store, &Wait::default(), &Brought::default());
        }
        if self.common().is_some() {
            COMMON.before_function();
        }
    }

    /// Such a function has returned: what it has written is there for what the stream does next.
    pub(super) fn after_function(&self) {
        let Ok(store) = self.store() else { return };
        let mut inner = self.lock();
        let before = inner.sent.clone();
        // Failures are the context's, which the program's next call reports.
        let _ = inner.flush(store, |_| true);
        let _ = inner.flush_opens(store);
        for (home, count) in &inner.sent {
            if before.get(home) != Some(count) {
                let _ = store.settle(*home);
            }
        }
        drop(inner);
        if let Some(server) = self.common() {
            COMMON.after_function(server);
        }
    }

    /// A stream that waits for another server is about to go on: what it may use is there for it.
    pub(crate) fn hand_on(&self) {
        let Ok(store) = self.store() else { return };
        // It goes on by word that may overtake what is sent. Failures are the context's, which the
        // program's next call reports.
        let _ = self.lock().flush_and_settle(store);
        if let Some(server) = self.common() {
            COMMON.hand_on(server);
        }
    }

    /// An event is recorded in a stream.
    pub(crate) fn recorded(&self, event: ObjectId, ctx: ContextId, stream: StreamId) {
        self.lock().record(event, (ctx, stream));
    }

    /// A stream or an event is gone.
    pub(crate) fn forget(&self, name: ObjectId) {
        self.lock().forget(name);
    }

    /// Once the stream's work is done, the memory at these addresses is wanted on this side.
    pub(crate) fn want(&self, ctx: ContextId, stream: StreamId, range: Range<UnifiedPtr>) {
        let mut inner = self.lock();
        inner.queued((ctx, stream));
        self.note_busy(&inner);
        inner.wanted.push(((ctx, stream), range));
    }
}
