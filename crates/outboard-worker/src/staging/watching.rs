//! Looks after a part in a copy or signal that has a place in memory which a peer shares: starts it
//! if it starts later, sees it end, and lets the device pass what is queued if nothing comes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::deferred::DeferredCopy;
use super::line::Turn;
use super::memory::ReservedOperations;
use super::part::Part;
use super::place::Place;
use super::transfer::{CopySite, DeviceSide};
use super::unqueued::UnqueuedSide;
use super::watch::{CopyDescription, Step, Watched};
use crate::io::Half;

/// How long flags that this process sets may take to let the device pass, before the device itself
/// is asked to set them: a hostile peer may have put other pages in their place.
const PASSES_WITHIN: Duration = Duration::from_secs(1);

/// A part that is looked after.
pub(super) struct Watching {
    pub(super) part: Arc<Part>,
    /// `None` once it has ended.
    pub(super) place: Option<Place>,
    /// What the peer says of it, where that matters.
    pub(super) half: Option<Arc<Half>>,
    /// Whether the program is to be told if nothing comes of it.
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
    pub(super) target: UnqueuedSide,
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
        self.part.break_off();
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
        let Some(target) = self.destination.filter(|_| self.part.can_keep()) else {
            return true;
        };
        if let Some(kept) = &self.kept {
            return kept.load(Ordering::Acquire);
        }
        // Work before it may still write what is there.
        if self.part.has_begun() {
            let (part, kept) = (Arc::clone(&self.part), Arc::new(AtomicBool::new(false)));
            self.kept = Some(Arc::clone(&kept));
            self.part.own.watcher.helpers().run(move || {
                // If it fails, the context has failed.
                let _ = part.keep_what_is_there(&target);
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
        self.report_loss();
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
        let Some(ToStart { at_its_turn, .. }) = &self.to_start else { return Step::ForDevice };
        let comes = match &self.turn {
            Some(turn) if *at_its_turn => turn.is_reached(),
            _ => place.has_begun(),
        };
        if !comes {
            return Step::ForDevice;
        }
        if let Some(ToStart { target, .. }) = self.to_start.take() {
            let part = Arc::clone(&self.part);
            self.part.own.watcher.helpers().run(move || {
                if let Err(error) = part.start(target.side()) {
                    part.own.failures.report(error);
                }
            });
        }
        Step::Moved
    }

    fn report_loss(&mut self) {
        if self.lost {
            self.part.own.failures.report_loss(&mut self.reports);
        }
    }

    fn end(&mut self, place: Place, is_safe: bool) -> Step {
        self.report_loss();
        let DeferredCopy { number, bulk, failures, .. } = &self.part.own;
        bulk.end(*number);
        if let Some(turn) = &self.turn {
            turn.end();
        }
        if is_safe {
            place.end(&failures.replier);
        } else {
            self.part.leak();
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
        if is_off && part.break_off() {
            self.lost = true;
        }
        let broken = part.is_broken() || self.gave_up;
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
        if self.gave_up || part.is_stuck() {
            return self.end(place, false);
        }
        let step = if self.to_start.is_some() {
            self.begin(&place)
        } else if broken || self.turn.is_some() {
            Step::ForDevice
        } else {
            // Nobody waits for this thread to see its end.
            Step::ForBytes
        };
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
