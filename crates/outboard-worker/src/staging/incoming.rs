//! Copies to the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use outboard_abi::CUresult;
use outboard_session::groups::Flag;
use parking_lot::Mutex;

use super::memory::ReservedOperations;
use super::transfer::{DeviceSide, Transfer};
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
    /// Where they go.
    target: Mutex<Option<DeviceSide>>,
}

impl In {
    pub(super) fn new(transfer: Transfer) -> Arc<In> {
        let come = (0..transfer.groups.slots()).map(|_| AtomicU32::new(0)).collect();
        Arc::new(In { transfer, come, broken: AtomicBool::new(false), target: Mutex::default() })
    }

    /// Queues it, while its bytes may be on their way already. If it is `late`, a flag is set when
    /// the stream has come to it.
    pub(super) fn queue(&self, dst: &DeviceSide, late: bool) -> Result<(), CUresult> {
        *self.target.lock() = Some(*dst);
        let reached = [self.transfer.mark(Flag::Reached, 1)];
        let first = if late { &reached[..] } else { &[] };
        self.transfer.copy_in(dst, first).inspect_err(|_| self.break_off())
    }

    fn break_off(&self) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            self.transfer.release_waits();
            self.transfer.watcher.nudge();
        }
    }
}

impl In {
    fn keep_what_is_there(&self) -> Result<(), CUresult> {
        let target = (*self.target.lock()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.transfer.keep_what_is_there(&target, &self.transfer.pool)
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
        let (slot, round) = t.groups.slot_and_round(group);
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
    /// Its bytes will not come; and, once that is being seen to, whether it has been.
    ends: Option<Option<Arc<AtomicBool>>>,
    /// What the program's stream holds for it.
    _held: Option<ReservedOperations>,
}

impl Emptying {
    pub(super) fn new(
        copy: Arc<In>,
        reached: Option<Reached>,
        held: Option<ReservedOperations>,
    ) -> Emptying {
        Emptying { copy, reached, taken: 0, gave_up: false, ends: None, _held: held }
    }
}

impl Moving for Emptying {
    fn is_copied(&self) -> bool {
        self.taken == self.copy.transfer.groups.count()
    }

    fn has_begun(&self) -> bool {
        self.taken > 0
    }

    fn break_off(&mut self) {
        if self.copy.transfer.has_all_slots() {
            self.ends.get_or_insert_default();
        } else {
            self.copy.break_off();
        }
    }
}

impl Emptying {
    /// If the bytes will not come: has the device pass the copy, once the stream has come to it.
    fn end_without_bytes(&mut self) -> Option<Step> {
        let ends = self.ends.as_mut()?;
        let t = &self.copy.transfer;
        match ends {
            // Work before it may still write what is there.
            None if self.reached.is_some() && !t.is_set(Flag::Reached, 1) && !self.gave_up => {
                Some(Step::ForDevice)
            }
            None => {
                let (copy, kept) = (Arc::clone(&self.copy), Arc::new(AtomicBool::new(false)));
                *ends = Some(Arc::clone(&kept));
                t.watcher.helpers().run(move || {
                    // If it fails, the context has failed.
                    let _ = copy.keep_what_is_there();
                    kept.store(true, Ordering::Release);
                    copy.transfer.watcher.nudge();
                });
                Some(Step::Moved)
            }
            Some(kept) if !kept.load(Ordering::Acquire) => Some(Step::ForDevice),
            Some(_) => {
                self.copy.break_off();
                None
            }
        }
    }
}

impl Watched for Emptying {
    fn step(&mut self) -> Step {
        if let Some(step) = self.end_without_bytes() {
            return step;
        }
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
            let (slot, round) = t.groups.slot_and_round(group);
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
        let (slot, round) = t.groups.slot_and_round(self.taken);
        match moved {
            true => Step::Moved,
            false if t.is_set(Flag::Full(slot), round) => Step::ForDevice,
            false => Step::ForBytes,
        }
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.copy.transfer.liveness_check(&self.copy.transfer.pool)
    }

    fn give_up(&mut self) {
        self.gave_up = true;
    }
}
