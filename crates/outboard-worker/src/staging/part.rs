//! This worker's part in a copy or signal that has a place in memory which it shares with a peer.
//!
//! What the device is to do with the place is queued once; from then on the flags there, which both
//! devices write and wait for, move it. The device writes last to marks in this worker's own
//! memory. So the peer, which can write to all of the place, cannot have this worker take the place
//! for free while its device uses it. If the peer is gone, or says that nothing comes of it, this
//! worker lets its device pass whatever is queued.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use parking_lot::Mutex;

use super::area::Place;
use super::deferred::{DeferredCopy, ExclusiveStream};
use super::line::Turn;
use super::memory::{Piece, ReservedOperations};
use super::transfer::{CopySite, DeviceSide, LOST, Queue};
use super::watch::{CopyDescription, Step, Watched};
use crate::io::Half;
use crate::memops::{self, Operation};
use crate::objects::Handle;

/// Marks that the device sets when it has begun with the copy, when it has done it, and when it has
/// passed what keeps the program's stream busy meanwhile.
const BEGUN: usize = 0;
const COPIED: usize = 1;
const PASSED: usize = 2;

/// How long flags that this process sets may take to let the device pass, before the device itself
/// is asked to set them: a hostile peer may have put other pages in their place.
const PASSES_WITHIN: Duration = Duration::from_secs(1);
/// Operations that the driver takes at once.
const AT_ONCE: usize = 128;

/// Queues what is to be done, in a stream, but for the last operation, which it returns if there is
/// one. It is given the operation that says that the device has begun.
pub(super) type Work =
    Box<dyn FnOnce(&Queue, &DeviceSide, Operation) -> Result<Option<Operation>, CUresult> + Send>;

/// Such a part.
pub(super) struct Part {
    pub(super) own: DeferredCopy,
    queue: Queue,
    /// Until it is queued.
    work: Mutex<Option<Work>>,
    marks: Piece,
    /// Whether the program's stream has work for it beside that of the copy's stream.
    keeps_busy: bool,
    /// Nothing comes of it: what is queued is to pass.
    broken: AtomicBool,
    /// The device has not taken the last operation: nobody will know when it has passed.
    stuck: AtomicBool,
    /// Its stream, if that is not the program's.
    exclusive: Mutex<Option<ExclusiveStream>>,
}

impl Part {
    /// The context is current.
    pub(super) fn new(
        site: &CopySite<'_>,
        number: u64,
        place: &Place,
        work: Work,
    ) -> Result<Part, CUresult> {
        let (groups, view) = (place.groups(), place.view(site)?);
        let marks = site.pool.take(site.table, 0)?;
        Ok(Part {
            own: DeferredCopy::new(site, number, groups, view),
            queue: site.queue(groups, view),
            work: Mutex::new(Some(work)),
            marks,
            keeps_busy: false,
            broken: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            exclusive: Mutex::default(),
        })
    }

    fn mark(&self, mark: usize) -> Operation {
        Operation::Write(self.marks.view().device_flag(mark), 1)
    }

    /// Queues the copy, or what there is instead, in a stream.
    fn run(&self, queue: &Queue, target: &DeviceSide) -> Result<(), CUresult> {
        let work = self.work.lock().take();
        let queued = work.map_or(Ok(None), |work| work(queue, target, self.mark(BEGUN)));
        if queued.is_err() {
            self.broken.store(true, Ordering::Release);
        }
        let last = queued.as_ref().ok().copied().flatten();
        let last: Vec<Operation> = last.into_iter().chain([self.mark(COPIED)]).collect();
        let marked = queue.queue(&last);
        if marked.is_err() {
            self.broken.store(true, Ordering::Release);
            self.stuck.store(true, Ordering::Release);
        }
        self.own.watcher.nudge();
        queued.and(marked)
    }

    /// Queues it in a stream of its own, beside all of the program's.
    pub(super) fn queue_apart(
        &mut self,
        exclusive: ExclusiveStream,
        target: &DeviceSide,
    ) -> Result<(), CUresult> {
        let queue = Queue { stream: Handle::new(exclusive.get()), ..self.queue };
        *self.exclusive.get_mut() = Some(exclusive);
        self.run(&queue, target)
    }

    /// Queues it in the program's stream.
    pub(super) fn queue(&self, target: &DeviceSide) -> Result<(), CUresult> {
        self.run(&self.queue, target)
    }

    /// Queues it in a stream of its own, and has the program's stream wait until it is over.
    pub(super) fn queue_beside(
        &mut self,
        exclusive: ExclusiveStream,
        target: &DeviceSide,
    ) -> Result<(), CUresult> {
        let queued = self.queue_apart(exclusive, target);
        let copied = Operation::WaitAtLeast(self.marks.view().device_flag(COPIED), 1);
        let held = self.queue.queue(&[copied, self.mark(PASSED)]);
        self.keeps_busy = held.is_ok();
        queued.and(held)
    }

    /// Queues it in a stream of its own, for a program's stream that stands still. Called on a
    /// helper thread.
    fn start(&self, target: &DeviceSide) -> Result<(), CUresult> {
        let begun = self.own.enter().and_then(|()| {
            let exclusive = ExclusiveStream::for_copying(self.own.table(), &self.own.pool)?;
            let stream = Handle::new(exclusive.get());
            *self.exclusive.lock() = Some(exclusive);
            Ok(Queue { stream, ..self.queue })
        });
        match begun {
            Ok(queue) => self.run(&queue, target),
            Err(error) => {
                self.broken.store(true, Ordering::Release);
                self.stuck.store(true, Ordering::Release);
                self.own.watcher.nudge();
                Err(error)
            }
        }
    }

    fn is_set(&self, mark: usize) -> bool {
        self.marks.flag(mark).load(Ordering::Acquire) != 0
    }

    /// Whether the device will not touch the place any more.
    fn is_over(&self) -> bool {
        self.is_set(COPIED) && (!self.keeps_busy || self.is_set(PASSED))
    }

    /// Has the device set the flags for which it may wait. Called on a helper thread.
    fn release_by_device(&self, flags: Range<usize>) -> Result<(), CUresult> {
        self.own.enter()?;
        let stream = self.own.shared_stream(false)?;
        let all: Vec<Operation> = flags
            .map(|flag| Operation::Write(self.queue.view.device_flag(flag), i32::MAX as u32))
            .collect();
        all.chunks(AT_ONCE).try_for_each(|some| memops::queue(self.own.table(), stream.get(), some))
    }
}

/// A part that is looked after.
pub(super) struct Watching {
    pub(super) part: Arc<Part>,
    /// `None` once it has ended.
    pub(super) place: Option<Place>,
    /// What the peer says of it, where that matters.
    pub(super) half: Option<Arc<Half>>,
    /// Whether the program is told if nothing comes of it.
    pub(super) reports: bool,
    /// What the program's stream stands still for, of one that starts later.
    pub(super) turn: Option<Turn>,
    /// Of one that has not been started.
    pub(super) to_start: Option<ToStart>,
    pub(super) held: Option<ReservedOperations>,
    /// Where the bytes belong, if they belong here.
    pub(super) destination: Option<DeviceSide>,
    /// Whether what is there has been kept, once that is being seen to.
    kept: Option<Arc<AtomicBool>>,
    gave_up: bool,
    /// Whether nothing comes of it because of the peer or the link.
    lost: bool,
    /// When it was broken off, or the device was last asked to let pass what is queued.
    released: Option<Instant>,
}

/// A part that waits to be started.
pub(super) struct ToStart {
    pub(super) target: DeviceSide,
    /// Whether its own stream has to come to it, rather than the other half's.
    pub(super) at_its_turn: bool,
}

impl Watching {
    pub(super) fn new(part: Arc<Part>, place: Place) -> Watching {
        Watching {
            part,
            place: Some(place),
            half: None,
            reports: false,
            turn: None,
            to_start: None,
            held: None,
            destination: None,
            kept: None,
            gave_up: false,
            lost: false,
            released: None,
        }
    }

    /// What was to be queued for it has not been, or not all: lets pass what is there.
    pub(super) fn abandon(&mut self) {
        self.part.broken.store(true, Ordering::Release);
    }

    /// Looks after it until it has ended.
    pub(super) fn watch(self, site: &CopySite<'_>, what: CopyDescription) {
        site.watcher.add(Box::new(self), what);
    }

    /// Whether the peer says that nothing comes of it, or can say nothing any more.
    fn is_off(&self) -> bool {
        let gone = |half: &Half| {
            half.is_lost()
                || half.is_cancelled()
                || half.done() == Some(false)
                || half.reached() == Some(false)
        };
        self.half.as_ref().is_some_and(|half| gone(half))
    }

    /// The bytes will not come: whether what is where they belong is kept as far as it can be. If
    /// not yet, it is being seen to.
    fn keeps_what_is_there(&mut self) -> bool {
        let Some(target) = self.destination.filter(|_| self.part.queue.has_all_slots()) else {
            return true;
        };
        if let Some(kept) = &self.kept {
            return kept.load(Ordering::Acquire);
        }
        // Work before it may still write what is there.
        if self.part.is_set(BEGUN) {
            let (part, kept) = (Arc::clone(&self.part), Arc::new(AtomicBool::new(false)));
            self.kept = Some(Arc::clone(&kept));
            self.part.own.watcher.helpers().run(move || {
                // If it fails, the context has failed.
                let _ = part.queue.keep_what_is_there(&target, &part.own.pool);
                kept.store(true, Ordering::Release);
                part.own.watcher.nudge();
            });
        }
        false
    }

    /// Lets the device pass what is queued.
    fn break_off(&mut self, place: &Place) {
        place.fail();
        if !self.gave_up && !self.keeps_what_is_there() {
            return;
        }
        let to_device = self.destination.is_some();
        place.release(to_device);
        let now = Instant::now();
        if self.released.get_or_insert(now).elapsed() < PASSES_WITHIN {
            return;
        }
        self.released = Some(now);
        let (part, flags) = (Arc::clone(&self.part), place.waited_for(to_device));
        self.part.own.watcher.helpers().run(move || {
            // If that fails, the context has failed.
            let _ = part.release_by_device(flags);
        });
    }

    /// Starts it if it is its turn.
    fn begin(&mut self, place: &Place) -> Step {
        let Some(ToStart { at_its_turn, .. }) = self.to_start else { return Step::ForDevice };
        let comes = match &self.turn {
            Some(turn) if at_its_turn => turn.is_reached(),
            _ => place.has_begun(),
        };
        if !comes {
            return Step::ForDevice;
        }
        if let Some(ToStart { target, .. }) = self.to_start.take() {
            let part = Arc::clone(&self.part);
            self.part.own.watcher.helpers().run(move || {
                if let Err(error) = part.start(&target) {
                    part.own.failures.report(error);
                }
            });
        }
        Step::Moved
    }

    fn end(&mut self, place: Place, is_safe: bool) -> Step {
        let DeferredCopy { number, bulk, failures, .. } = &self.part.own;
        if self.reports && self.lost {
            failures.report(LOST);
        }
        bulk.end(*number);
        if let Some(turn) = &self.turn {
            turn.end();
        }
        if is_safe {
            place.end(&failures.replier);
        } else {
            self.part.marks.leak();
            self.part.exclusive.lock().take().into_iter().for_each(ExclusiveStream::abandon);
            place.leak();
        }
        self.held = None;
        Step::Ended
    }

    fn step_in(&mut self, place: Place) -> Step {
        let part = Arc::clone(&self.part);
        // In this order: the peer says that nothing comes of it before it lets the device pass.
        let is_over = part.is_over();
        let is_off = place.has_failed() || !is_over && self.is_off();
        if is_off && !part.broken.swap(true, Ordering::AcqRel) {
            self.lost = true;
        }
        let broken = part.broken.load(Ordering::Acquire) || self.gave_up;
        if broken && self.to_start.is_some() {
            // The device has nothing of it.
            place.fail();
            return self.end(place, true);
        }
        if is_over {
            return self.end(place, true);
        }
        if broken {
            self.break_off(&place);
        }
        if self.gave_up || part.stuck.load(Ordering::Acquire) {
            return self.end(place, false);
        }
        let step = self.begin(&place);
        self.place = Some(place);
        step
    }
}

impl Watched for Watching {
    fn step(&mut self) -> Step {
        match self.place.take() {
            Some(place) => self.step_in(place),
            None => Step::Ended,
        }
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.part.own.liveness_check()
    }

    fn give_up(&mut self) {
        self.gave_up = true;
    }
}
