//! Waits for the device. The dispatcher itself polls them between commands: handing one to a helper
//! thread takes longer than most waits. It spins for a bounded time, then polls now and then; the
//! longer a wait has lasted, the less often. If the driver has no query for a wait, a helper thread
//! waits in the driver, which spins as it does natively.

mod asked;
mod in_use;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_abi::{CUevent, CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_transport::{Patience, SpinLimits};
use outboard_wire::ContextId;
use outboard_wire::messages::Call;

use super::answer::{Answer, Outcome};
use super::bounds::Kind;
use super::contexts::{Context, current};
use super::io::NextPoll;
use super::mapped::Mapped;
use super::objects::Handle;
use super::output::Printed;
use super::spans;
use super::worker::Worker;
use asked::Mark;
use asked::Part;
pub(super) use asked::Wait;
use in_use::{Done, InUse};

/// A wait that has lasted for some time is polled again after this part of that time; in between
/// the processor is free.
const PART_OF_TIME: u32 = 128;
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// A wait is over, after so long.
fn waited(kind: &str, begun: Instant, time: Duration) {
    outboard_control::meter::page().waited(time);
    if spans::on() {
        spans::record("wait", begun, vec![spans::text("outboard.for", kind)]);
    }
}

/// What to do when a wait is over. A helper thread has no mapped memory, since the dispatcher may
/// close it meanwhile.
type Finish = Box<dyn FnOnce(Outcome, Option<&Mapped>) + Send>;

/// A wait under way.
struct Watched {
    ctx: ContextId,
    context: Context,
    wait: Wait,
    /// The rest of the wait.
    parts: Vec<Part>,
    /// Streams have been used anew: the driver must not be asked to wait for all that is in them.
    passed: bool,
    since: Instant,
    /// Until when to spin.
    until: Instant,
    /// When to look again.
    next: Instant,
    finish: Finish,
}

impl Watched {
    /// Whether it is only looked at now and then.
    fn is_slow(&self) -> bool {
        self.next > self.since
    }
}

/// Waits under way, and what waits for contexts are for.
pub(crate) struct Waits {
    watched: Vec<Watched>,
    in_use: HashMap<ContextId, InUse>,
    /// The stream that was used last, with its context: it is among those.
    last: Option<(ContextId, usize)>,
    /// Counts what is added to those, and waits for them.
    time: u64,
    /// For how long to spin.
    patience: Patience,
}

impl Waits {
    pub(crate) fn new(spin: SpinLimits) -> Waits {
        let patience = Patience::new(spin.least, spin.most);
        Waits { watched: Vec::new(), in_use: HashMap::new(), last: None, time: 0, patience }
    }

    /// Whether there may be one more.
    pub(crate) fn check_room(&self) -> Outcome {
        Kind::Wait.room(self.watched.len())
    }

    /// Work is about to be queued in a stream of the current context.
    #[inline]
    pub(crate) fn used(&mut self, table: &'static Table, ctx: ContextId, stream: CUstream) {
        if !self.watched.is_empty() {
            self.mark(table, ctx);
        }
        if self.last != Some((ctx, stream as usize)) {
            self.add(ctx, stream);
        }
    }

    #[cold]
    fn add(&mut self, ctx: ContextId, stream: CUstream) {
        self.last = Some((ctx, stream as usize));
        self.time += 1;
        let in_use = self.in_use.entry(ctx).or_default();
        match in_use.streams.iter_mut().find(|(used, _)| used.get() == stream) {
            Some((_, added)) => *added = self.time,
            None => {
                in_use.forget_what_is_done();
                in_use.streams.push((Handle::new(stream), self.time));
            }
        }
    }

    /// Waits in this context are for what is in its streams now.
    #[cold]
    fn mark(&mut self, table: &'static Table, ctx: ContextId) {
        for watched in self.watched.iter_mut().filter(|watched| watched.ctx == ctx) {
            watched.passed = true;
            for part in &mut watched.parts {
                if let Part::Stream(stream) = part
                    && let Ok(mark) = Mark::behind(table, stream.get())
                {
                    *part = Part::Mark(mark);
                }
            }
        }
    }

    /// A stream of the current context is about to be destroyed. Its work continues.
    pub(crate) fn ending(&mut self, table: &'static Table, ctx: ContextId, stream: CUstream) {
        self.mark(table, ctx);
        self.last = None;
        self.time += 1;
        let Some(in_use) = self.in_use.get_mut(&ctx) else { return };
        let before = in_use.streams.len();
        in_use.streams.retain(|(used, _)| used.get() != stream);
        if in_use.streams.len() < before && call!(table, cuStreamQuery(stream)).is_err() {
            in_use.lost = self.time;
        }
    }

    /// Begins a wait for all of a context: its parts, if they can be told, and what to do when it
    /// is over.
    fn context(&mut self, ctx: ContextId) -> (Option<Vec<Part>>, Done) {
        // Streams used from now on are added anew.
        self.last = None;
        self.time += 1;
        let in_use = self.in_use.entry(ctx).or_default();
        in_use.forget_what_is_done();
        (in_use.all(), Done { of: Arc::clone(&in_use.done), time: self.time })
    }

    /// Whether nothing is left to do in the context, which is current, as far as the driver can be
    /// asked.
    pub(crate) fn is_quiet(&mut self, table: &Table, ctx: ContextId) -> bool {
        let Some(in_use) = self.in_use.get_mut(&ctx) else { return true };
        in_use.forget_what_is_done();
        in_use.all().is_some_and(|parts| parts.iter().all(|part| part.query(table).is_ok()))
    }

    /// Streams of this context end without being named. Only the driver knows what it has from here
    /// on, until a wait for all of it.
    pub(crate) fn lose_track(&mut self, ctx: ContextId) {
        self.last = None;
        self.time += 1;
        if let Some(in_use) = self.in_use.get_mut(&ctx) {
            in_use.streams.clear();
            in_use.lost = self.time;
        }
    }

    /// A context has ended.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        self.in_use.remove(&ctx);
        self.last = None;
    }

    /// Events are about to be recorded anew, or destroyed: waits are for what they stand for now. A
    /// context is current.
    pub(crate) fn leaves(
        &mut self,
        table: &'static Table,
        is_left: impl Fn(CUevent) -> bool,
    ) -> Outcome {
        for watched in &mut self.watched {
            for part in &mut watched.parts {
                if let Part::Event(event) = part
                    && is_left(event.get())
                {
                    *part = Part::Mark(Mark::of(table, event.get())?);
                    watched.passed = true;
                }
            }
        }
        Ok(())
    }
}

impl Worker {
    /// Waits for the device and then answers: the dispatcher does if that is soon, else a helper
    /// thread.
    pub(super) fn wait<M>(
        &mut self,
        wait: Wait,
        answer: Answer<M>,
        finish: impl FnOnce(Answer<M>, Outcome) + Send + 'static,
    ) where
        M: Call + 'static,
    {
        self.wait_and_read(wait, answer, |answer, outcome, _| finish(answer, outcome));
    }

    /// As [`Worker::wait`], for an answer with what mapped memory holds.
    pub(super) fn wait_and_read<M>(
        &mut self,
        wait: Wait,
        answer: Answer<M>,
        finish: impl FnOnce(Answer<M>, Outcome, Option<&Mapped>) + Send + 'static,
    ) where
        M: Call + 'static,
    {
        self.watch(wait, move |outcome, mapped| finish(answer, outcome, mapped));
    }

    /// Waits for the device for something else than an answer.
    pub(super) fn wait_then(&mut self, wait: Wait, finish: impl FnOnce(Outcome) + Send + 'static) {
        self.watch(wait, move |outcome, _| finish(outcome));
    }

    fn watch(
        &mut self,
        wait: Wait,
        finish: impl FnOnce(Outcome, Option<&Mapped>) + Send + 'static,
    ) {
        let context = match self.streams.waits.check_room().and_then(|()| self.enter()) {
            Ok(context) => context,
            Err(error) => return finish(Err(error), None),
        };
        let (parts, done) = match wait {
            Wait::Stream(stream) => (Some(vec![Part::Stream(stream)]), None),
            Wait::Event(event) => (Some(vec![Part::Event(event)]), None),
            Wait::Context => {
                let (parts, done) = self.streams.waits.context(self.contexts.here());
                (parts, Some(done))
            }
        };
        let finish = Box::new(move |outcome: Outcome, mapped: Option<&Mapped>| {
            if let Some(done) = done.filter(|_| outcome.is_ok()) {
                done.say();
            }
            finish(outcome, mapped);
        });
        let is_known = parts.is_some();
        let since = Instant::now();
        let until = since + self.streams.waits.patience.window();
        let parts = parts.unwrap_or_default();
        let watched = Watched {
            ctx: self.contexts.here(),
            context,
            wait,
            parts,
            passed: false,
            since,
            until,
            next: since,
            finish,
        };
        if is_known {
            self.streams.waits.watched.push(watched);
            self.poll_waits();
        } else {
            self.hand_over(watched);
        }
    }

    /// Looks whether waits are over; when to look again.
    #[inline]
    pub(super) fn poll_waits(&mut self) -> NextPoll {
        if self.streams.waits.watched.is_empty() { NextPoll::Never } else { self.poll() }
    }

    fn poll(&mut self) -> NextPoll {
        let (mut index, mut again) = (0, NextPoll::Never);
        while let Some(watched) = self.streams.waits.watched.get(index) {
            if watched.is_slow() {
                let due = watched.next.saturating_duration_since(Instant::now());
                if !due.is_zero() {
                    again = again.or(NextPoll::After(due));
                    index += 1;
                    continue;
                }
            }
            self.contexts.turn_to(watched.ctx);
            let mut outcome = self.enter().map(drop);
            let Some(watched) = self.streams.waits.watched.get_mut(index) else { break };
            while outcome.is_ok()
                && let Some(part) = watched.parts.last()
            {
                outcome = part.query(self.table);
                if outcome.is_ok() && matches!(part, Part::Mark(_)) {
                    // It returns at once, and has the driver do what only waits do.
                    outcome = part.block(self.table);
                }
                if outcome.is_ok() {
                    watched.parts.pop();
                }
            }
            if outcome != Err(CUresult::CUDA_ERROR_NOT_READY) {
                let watched = self.streams.waits.watched.swap_remove(index);
                self.is_over(watched, outcome);
                continue;
            }
            let now = Instant::now();
            if now < watched.until {
                again = again.or(NextPoll::Now);
            } else {
                let pause =
                    ((now - watched.since) / PART_OF_TIME).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                watched.next = now + pause;
                again = again.or(NextPoll::After(pause));
            }
            index += 1;
        }
        again
    }

    fn is_over(&mut self, watched: Watched, outcome: Outcome) {
        if watched.is_slow() {
            self.streams.waits.patience.waited(watched.since.elapsed());
        }
        // Only a wait makes the driver print what kernels have printed and give back what pools
        // have freed, not a question; and of a context as a whole it has no question.
        let needed = self.code.prints()
            || self.memory.pools.are_used()
            || matches!(watched.wait, Wait::Context);
        let blocks = !watched.passed && needed;
        // Also after a fault: a failed assertion has something to say.
        let outcome = if blocks { outcome.and(watched.wait.block(self.table)) } else { outcome };
        let (kind, begun) = (watched.wait.name(), watched.since);
        let time = begun.elapsed();
        self.client.report(match outcome {
            Ok(()) if !self.code.prints() => Printed::Hardly,
            Ok(()) => Printed::after(time),
            Err(_) => Printed::Perhaps,
        });
        (watched.finish)(outcome, Some(&self.memory.mapped));
        waited(kind, begun, time);
    }

    /// An event is about to be recorded anew, or destroyed.
    pub(super) fn leaves_event(&mut self, event: CUevent) {
        self.leaves_events(|other| other == event);
    }

    /// Any event may be.
    pub(super) fn leaves_all_events(&mut self) {
        self.leaves_events(|_| true);
    }

    fn leaves_events(&mut self, is_left: impl Fn(CUevent) -> bool) {
        if self.streams.waits.leaves(self.table, is_left).is_err() {
            self.stop_looking();
        }
    }

    /// Has helper threads wait for all that the dispatcher looks at.
    pub(super) fn stop_looking(&mut self) {
        for watched in std::mem::take(&mut self.streams.waits.watched) {
            self.hand_over(watched);
        }
    }

    fn hand_over(&self, watched: Watched) {
        let Watched { context, wait, parts, passed, since, finish, .. } = watched;
        let (table, reporter) = (self.table, self.client.reporter().cloned());
        self.helpers.run_in_turn(move || {
            let outcome = call!(table, cuCtxSetCurrent(current(&context))).and_then(|()| {
                if !passed {
                    return wait.block(table);
                }
                parts.iter().try_for_each(|part| part.block(table))
            });
            drop(parts);
            if let Some(reporter) = reporter {
                reporter.report(Printed::Perhaps);
            }
            // The client may read the meter right after the answer.
            waited(wait.name(), since, since.elapsed());
            finish(outcome, None);
        });
    }
}
