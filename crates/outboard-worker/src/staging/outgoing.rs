//! Copies to the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use outboard_abi::CUresult;
use outboard_session::groups::Flag;

use super::memory::ReservedOperations;
use super::transfer::{DeviceSide, Transfer};
use super::watch::{Moving, Step, Watched};

/// A handle of a copy to the host that shows whether the device is done with it.
pub(crate) trait Copied: Send + Sync {
    /// Whether it is.
    fn is_copied(&self) -> bool;
}

/// A copy to the host that has been queued.
pub(super) struct Out {
    transfer: Transfer,
    /// For each slot, how many chunks of the group that has it have been sent.
    sent: Vec<AtomicU32>,
    /// Queueing it broke off.
    broken: AtomicBool,
}

impl Out {
    pub(super) fn new(transfer: Transfer) -> Arc<Out> {
        let sent = (0..transfer.groups.slots()).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Out { transfer, sent, broken: AtomicBool::new(false) })
    }

    /// Queues it, while its bytes may be on their way already.
    pub(super) fn queue(&self, src: &DeviceSide) -> Result<(), CUresult> {
        self.transfer.copy_out(src).inspect_err(|_| self.break_off())
    }

    /// Has a copy wait until it may [go](Out::go). Before it is queued.
    pub(super) fn queue_wait(&self) -> Result<(), CUresult> {
        let t = &self.transfer;
        t.queue.queue(&[t.wait(Flag::Reached, 1)])
    }

    /// Lets it.
    pub(super) fn go(&self) {
        self.transfer.set(Flag::Reached, 1);
    }

    pub(super) fn break_off(&self) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            self.transfer.release_waits();
            self.transfer.watcher.nudge();
        }
    }

    fn is_full(&self, group: u32) -> bool {
        let (slot, round) = self.transfer.groups.slot_and_round(group);
        self.transfer.is_set(Flag::Full(slot), round)
    }

    /// A chunk of the group has been read.
    fn has_sent(&self, group: u32) {
        let t = &self.transfer;
        let (slot, round) = t.groups.slot_and_round(group);
        let sent = &self.sent[slot];
        if sent.fetch_add(1, Ordering::AcqRel) + 1 < t.groups.chunks(group).len() as u32 {
            return;
        }
        // The slot's next group is sent only when the device has filled it anew.
        sent.store(0, Ordering::Release);
        t.set(Flag::Free(slot), round);
        if t.groups.count() > t.groups.slots() {
            t.watcher.nudge();
        }
    }
}

impl Copied for Out {
    fn is_copied(&self) -> bool {
        self.is_full(self.transfer.groups.count() - 1)
    }
}

/// The watcher's part of it.
pub(super) struct Filling {
    copy: Arc<Out>,
    /// Groups that were given to the lanes.
    given: u32,
    gave_up: bool,
    /// What the program's stream holds for it.
    _held: Option<ReservedOperations>,
}

impl Filling {
    pub(super) fn new(copy: Arc<Out>, held: Option<ReservedOperations>) -> Filling {
        Filling { copy, given: 0, gave_up: false, _held: held }
    }
}

impl Moving for Filling {
    fn is_copied(&self) -> bool {
        self.copy.is_copied()
    }

    fn has_begun(&self) -> bool {
        self.given > 0
    }

    fn break_off(&mut self) {
        self.copy.break_off();
    }
}

impl Watched for Filling {
    fn step(&mut self) -> Step {
        let t = &self.copy.transfer;
        if self.gave_up || self.copy.broken.load(Ordering::Acquire) {
            t.bulk.cancel(t.number, t.groups.chunks(self.given).start);
            return Step::Ended;
        }
        let before = self.given;
        while self.given < t.groups.count() && self.copy.is_full(self.given) {
            if self.copy.broken.load(Ordering::Acquire) {
                // The flags say so only to let pass what was queued.
                return Step::Moved;
            }
            let group = self.given;
            // If there are other copies, this thread is needed for them.
            let has_time = t.groups.cut().is_short() && !t.watcher.has_others();
            for index in t.groups.chunks(group) {
                let copy = Arc::clone(&self.copy);
                let sent = move || copy.has_sent(group);
                let (from, len) =
                    (t.view.slot(t.groups.chunk_at(index)), t.groups.cut().len_of(index));
                // SAFETY: the slot is full, and the device writes it again only once all of the
                // group has been sent; the closure keeps the piece.
                unsafe { t.bulk.send(t.number, index, from, len, has_time, sent) };
            }
            self.given += 1;
        }
        let (slot, round) = t.groups.slot_and_round(self.given);
        match self.given {
            given if given == t.groups.count() => Step::Ended,
            given if given > before => Step::Moved,
            _ if round > 1 && !t.is_set(Flag::Free(slot), round - 1) => Step::ForBytes,
            _ => Step::ForDevice,
        }
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.copy.transfer.liveness_check(&self.copy.transfer.pool)
    }

    fn give_up(&mut self) {
        self.gave_up = true;
    }
}
