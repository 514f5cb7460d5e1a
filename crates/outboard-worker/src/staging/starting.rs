//! Copies that start later, in a stream of the worker's own: from their turn until bytes move.

use std::sync::Arc;

use outboard_abi::{CUresult, CUstream_st};
use parking_lot::Mutex;

use super::account::Share;
use super::deferred::{DeferredCopy, ExclusiveStream};
use super::incoming::{Emptying, In};
use super::outgoing::{Filling, Out};
use super::transfer::DeviceSide;
use super::unqueued::UnqueuedSide;
use super::watch::{Moving, Step, Watched, Watcher};
use crate::io::Sink;
use crate::objects::Handle;

/// A copy that can start later.
pub(super) trait StartsLater: Send + Sync + 'static {
    fn own(&self) -> &DeferredCopy;

    /// Queues it in a stream of the worker's own. Called on a helper thread, with the copy's
    /// context current.
    fn start(
        &self,
        target: &DeviceSide,
        share: Option<Share>,
        report: &StartReport,
    ) -> Result<(), CUresult>;
}

/// How far such a copy has come.
pub(super) enum Progress {
    Waiting(UnqueuedSide),
    Starting(StartOutcome),
    Moving(Box<dyn Moving>),
}

/// What a look at it shows.
pub(super) enum Stage<'a> {
    /// It waits for its turn, and for memory.
    Waiting,
    Starting,
    /// It could not be started.
    Failed,
    Moving(&'a mut dyn Moving),
}

impl Progress {
    /// Looks.
    pub(super) fn stage(&mut self) -> Stage<'_> {
        if let Progress::Starting(outcome) = self {
            match outcome.take() {
                None => return Stage::Starting,
                Some(Err(())) => return Stage::Failed,
                Some(Ok(moving)) => *self = Progress::Moving(moving),
            }
        }
        match self {
            Progress::Waiting(_) => Stage::Waiting,
            Progress::Starting(_) => Stage::Starting,
            Progress::Moving(moving) => Stage::Moving(&mut **moving),
        }
    }

    /// Has a copy started that waits.
    pub(super) fn start<C: StartsLater>(&mut self, copy: &Arc<C>, share: Option<Share>) -> Step {
        let outcome = StartOutcome::default();
        let watcher = &copy.own().watcher;
        let report = StartReport { started: outcome.clone(), watcher: Arc::clone(watcher) };
        let before = std::mem::replace(self, Progress::Starting(outcome));
        if let Progress::Waiting(target) = before {
            let copy = Arc::clone(copy);
            watcher.helpers().run(move || {
                let entered = copy.own().enter();
                if let Err(error) = entered.and_then(|()| copy.start(target.side(), share, &report))
                {
                    copy.own().failures.report(error);
                }
            });
        }
        Step::Moved
    }
}

/// The copy that has been started; an error if it could not be.
type Start = Result<Box<dyn Moving>, ()>;

/// What came of a start, once that is known.
#[derive(Clone, Default)]
pub(super) struct StartOutcome(Arc<Mutex<Option<Start>>>);

impl StartOutcome {
    /// Once the start is over.
    fn take(&self) -> Option<Start> {
        self.0.lock().take()
    }
}

/// Says how a start went when it is dropped, whatever became of it.
pub(super) struct StartReport {
    started: StartOutcome,
    watcher: Arc<Watcher>,
}

impl StartReport {
    /// Says what moves the bytes of a copy that is being queued.
    pub(super) fn moves(&self, copy: impl Moving + 'static) {
        self.send(Ok(Box::new(copy)));
    }

    fn send(&self, result: Start) {
        self.started.0.lock().get_or_insert(result);
        self.watcher.nudge();
    }
}

impl Drop for StartReport {
    fn drop(&mut self) {
        self.send(Err(()));
    }
}

/// A stream of the worker's own.
pub(super) enum OwnStream {
    /// That of all copies of one direction.
    Shared(Handle<CUstream_st>),
    Exclusive(ExclusiveStream),
}

impl OwnStream {
    fn parts(self) -> (Handle<CUstream_st>, Option<ExclusiveStream>) {
        match self {
            OwnStream::Shared(stream) => (stream, None),
            OwnStream::Exclusive(exclusive) => (Handle::new(exclusive.get()), Some(exclusive)),
        }
    }
}

/// Queues a copy to the host. Its bytes may move meanwhile.
pub(super) fn copy_out(
    own: &DeferredCopy,
    stream: OwnStream,
    share: Option<Share>,
    src: &DeviceSide,
    report: &StartReport,
) -> Result<(), CUresult> {
    let (stream, exclusive) = stream.parts();
    let copy = Out::new(own.transfer(stream, share)?);
    report.moves(InStream(Filling::new(Arc::clone(&copy), None), exclusive));
    copy.queue(src)
}

/// Queues a copy to the device, whose bytes `ask` asks for. They may come meanwhile.
pub(super) fn copy_in(
    own: &DeferredCopy,
    stream: OwnStream,
    share: Option<Share>,
    dst: &DeviceSide,
    report: &StartReport,
    ask: impl FnOnce(),
) -> Result<(), CUresult> {
    let (stream, exclusive) = stream.parts();
    let copy = In::new(own.transfer(stream, share)?);
    own.bulk.set_sink(own.number, Arc::clone(&copy) as Arc<dyn Sink>);
    report.moves(InStream(Emptying::new(Arc::clone(&copy), None, None), exclusive));
    ask();
    copy.queue(dst, false)
}

/// A copy that keeps its stream, if it has one.
pub(super) struct InStream<M>(pub(super) M, pub(super) Option<ExclusiveStream>);

impl<M: Watched> Watched for InStream<M> {
    fn step(&mut self) -> Step {
        self.0.step()
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.0.liveness_check()
    }

    fn give_up(&mut self) {
        self.0.give_up();
    }
}

impl<M: Moving> Moving for InStream<M> {
    fn is_copied(&self) -> bool {
        self.0.is_copied()
    }

    fn has_begun(&self) -> bool {
        self.0.has_begun()
    }

    fn break_off(&mut self) {
        self.0.break_off();
        // What is queued in it passes, but nobody knows when.
        self.1.take().into_iter().for_each(|stream| stream.abandon());
    }
}
