//! Copies to the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use outboard_abi::CUresult;
use outboard_session::groups::Flag;

use super::memory::Held;
use super::transfer::{Target, Transfer};
use super::watch::{Moving, Step, Watched};
use crate::io::Sink;

/// The function to run when a stream has reached a copy, or never will.
pub(crate) type Reached = Box<dyn FnOnce() + Send>;

/// A copy to the device, as lane threads see it.
pub(super) struct In {
    transfer: Transfer,
    /// For each slot, how many chunks of the group that has it have come.
    come: Vec<AtomicU32>,
    /// Queueing it broke off: its bytes go nowhere.
    broken: AtomicBool,
}

impl In {
    pub(super) fn new(transfer: Transfer) -> Arc<In> {
        let come = (0..transfer.groups.slots()).map(|_| AtomicU32::new(0)).collect();
        Arc::new(In { transfer, come, broken: AtomicBool::new(false) })
    }

    /// Queues it, while its bytes may be on their way already. If it is `late`, a flag is set when
    /// the stream has come to it.
    pub(super) fn queue(&self, dst: &Target, late: bool) -> Result<(), CUresult> {
        self.transfer.copy_in(dst, late).inspect_err(|_| self.break_off())
    }

    fn break_off(&self) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            self.transfer.let_pass();
            self.transfer.watcher.nudge();
        }
    }
}

// SAFETY: a chunk is granted once the device has emptied its group's slot, or will not touch it any
// more.
unsafe impl Sink for In {
    fn slot(&self, index: u32, _len: u32) -> *mut u8 {
        self.transfer.view.slot(self.transfer.groups.chunk_at(index))
    }

    fn filled(&self, index: u32) {
        let t = &self.transfer;
        let group = t.groups.of(index);
        let (slot, round) = t.groups.place(group);
        let come = &self.come[slot];
        if come.fetch_add(1, Ordering::AcqRel) + 1 < t.groups.chunks(group).len() as u32 {
            return;
        }
        // The slot's next chunks come only when the device has emptied it.
        come.store(0, Ordering::Release);
        if !self.broken.load(Ordering::Acquire) {
            t.set(Flag::Full(slot), round);
        }
        t.watcher.nudge();
    }
}

/// The watcher's part of it.
pub(super) struct Emptying {
    copy: Arc<In>,
    reached: Option<Reached>,
    /// Groups that the device has taken.
    taken: u32,
    gave_up: bool,
    /// What the program's stream holds for it.
    _held: Option<Held>,
}

impl Emptying {
    pub(super) fn new(copy: Arc<In>, reached: Option<Reached>, held: Option<Held>) -> Emptying {
        Emptying { copy, reached, taken: 0, gave_up: false, _held: held }
    }
}

impl Moving for Emptying {
    fn is_copied(&self) -> bool {
        self.taken == self.copy.transfer.groups.count()
    }

    fn break_off(&mut self) {
        self.copy.break_off();
    }
}

impl Watched for Emptying {
    fn step(&mut self) -> Step {
        let t = &self.copy.transfer;
        let broken = self.gave_up || self.copy.broken.load(Ordering::Acquire);
        let mut moved = false;
        if self.reached.is_some() {
            if !broken && !t.is_set(Flag::Reached, 1) {
                return Step::ForDevice;
            }
            if let Some(reached) = self.reached.take() {
                t.watcher.helpers().run(reached);
            }
            moved = true;
        }
        if broken {
            // The bytes still arrive, in slots that are not read.
            t.bulk.grant(t.number, t.groups.cut().count());
            t.bulk.done(t.number, false);
            return Step::Ended;
        }
        let before = self.taken;
        let is_taken = |group| {
            let (slot, round) = t.groups.place(group);
            t.is_set(Flag::Free(slot), round)
        };
        while self.taken < t.groups.count() && is_taken(self.taken) {
            self.taken += 1;
        }
        if self.taken == t.groups.count() {
            t.bulk.done(t.number, !self.copy.broken.load(Ordering::Acquire));
            return Step::Ended;
        }
        if self.taken > before {
            let granted = t.groups.granted(self.taken);
            if granted > t.groups.granted(before) {
                t.bulk.grant(t.number, granted);
            }
            moved = true;
        }
        let (slot, round) = t.groups.place(self.taken);
        match moved {
            true => Step::Moved,
            false if t.is_set(Flag::Full(slot), round) => Step::ForDevice,
            false => Step::ForBytes,
        }
    }

    fn alive(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.copy.transfer.alive(&self.copy.transfer.pool)
    }

    fn give_up(&mut self) {
        self.gave_up = true;
    }
}
