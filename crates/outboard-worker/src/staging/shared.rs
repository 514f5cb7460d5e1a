//! Copies through memory that the client shares: the client's threads fill and empty the slots, and
//! set and poll the flags.
//!
//! The worker moves no bytes and need not poll often: it queues the device's part, and tells the
//! client if the stream will never reach it. A client that writes to the memory meanwhile damages
//! only its own bytes.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_driver::{Table, call};
use outboard_session::chunks::Cut;
use outboard_session::groups::{BLOCK, BROKE_OFF, FLAGS, Flag, Groups, NOT_QUEUED};
use outboard_transport::Memory;
use outboard_wire::{ContextId, DevicePtr};

use super::blocks::KnownBlocks;
use super::locking::PageLocking;
use super::memory::{Pool, View};
use super::transfer::{CopySite, DeviceSide, Queue};
use super::watch::{CopyDescription, Step, Watched};
use crate::objects::Handle;

/// Which blocks of the shared memory the device knows.
#[derive(Clone)]
pub(crate) struct SharedStaging(Arc<KnownBlocks>);

impl SharedStaging {
    /// Of a driver that locks pages in this way.
    pub(crate) fn new(locking: PageLocking) -> SharedStaging {
        SharedStaging(Arc::new(KnownBlocks::new(locking)))
    }

    /// Makes the first block known ahead. The context is current.
    pub(crate) fn warm(&self, table: &Table, memory: &Memory, ctx: ContextId) {
        let mut context = core::ptr::null_mut();
        // If that fails, the first copy says so.
        let _ = call!(table, cuCtxGetCurrent(&raw mut context)).and_then(|()| {
            let context = (ctx, Handle::new(context));
            self.0.device(table, memory.staging(), context, 0).map(drop)
        });
    }

    /// A context is about to go, and what it registered with it.
    pub(crate) fn forget(&self, ctx: ContextId) {
        self.0.forget(ctx);
    }
}

/// A copy through shared memory, as the client describes it.
pub(crate) struct Staged {
    pub(crate) cut: Cut,
    /// Where its staging memory begins.
    pub(crate) at: u64,
    pub(crate) to_device: bool,
}

/// What the watcher looks after: that a stream that dies is told of.
struct Watch {
    part: Part,
    pool: Arc<Pool>,
    _memory: Arc<Memory>,
}

impl Watched for Watch {
    fn step(&mut self) -> Step {
        // The client looks at the flags itself: no thread waits for this one to read them.
        if self.part.is_over() { Step::Ended } else { Step::ForBytes }
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.part.queue.liveness_check(&self.pool)
    }

    fn give_up(&mut self) {
        self.part.give_up();
    }
}

/// The device's part of a copy, in memory that is the copy's until the part is done.
struct Part {
    queue: Queue,
    /// The flag that the device sets last.
    last: (Flag, u32),
    /// What the client has written for this use of the memory.
    using: u32,
}

impl Part {
    /// Whether the device has done it. Then the client may use the memory for another copy.
    fn is_over(&self) -> bool {
        let (flag, value) = self.last;
        self.queue.is_set(flag, value) || self.queue.used_for() != self.using
    }

    /// The device will not do it any more.
    fn give_up(&self) {
        // It may have come to its end since it was looked at, before its context did.
        if !self.is_over() {
            self.queue.set(Flag::Failed, BROKE_OFF);
            let (flag, value) = self.last;
            self.queue.set(flag, value);
        }
    }
}

/// Queues a copy whose bytes go through shared memory. Tells the client by a flag if it comes to
/// nothing.
pub(crate) fn copy_staged(
    site: &CopySite<'_>,
    shared: &SharedStaging,
    memory: &Arc<Memory>,
    ctx: ContextId,
    staged: &Staged,
    target: Result<DeviceSide, CUresult>,
) -> Result<(), CUresult> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let groups = Groups::shared(staged.cut, staged.to_device);
    let (at, bytes) = (usize::try_from(staged.at).map_err(|_| invalid)?, FLAGS + groups.staging());
    let (block, offset) = (at / BLOCK, at % BLOCK);
    if !groups.fit() || groups.count() == 0 || !at.is_multiple_of(FLAGS) || bytes > BLOCK - offset {
        return Err(invalid);
    }
    if block >= memory.staging().bytes() / BLOCK {
        return Err(invalid);
    }
    // SAFETY: within the segment, as checked above; whoever uses the view holds the memory.
    let view = |device| unsafe { View::new(memory.staging().as_ptr().add(at), device, bytes) };
    let queued = target.and_then(|target| {
        let context = (ctx, Handle::new(site.context));
        let device = shared.0.device(site.table, memory.staging(), context, block)?;
        let device = device.offset(offset as u64);
        let queue = site.queue(groups, view(device));
        // Once it is queued, it may be over, and the memory another copy's.
        let using = queue.used_for();
        let queued =
            if staged.to_device { queue.copy_in(&target, &[]) } else { queue.copy_out(&target) };
        if queued.is_err() {
            queue.set(Flag::Failed, BROKE_OFF);
            queue.release_waits();
        }
        queued.map(|()| (queue, using))
    });
    match queued {
        Ok((queue, using)) => {
            let (slot, round) = groups.slot_and_round(groups.count() - 1);
            let last = if staged.to_device { Flag::Free(slot) } else { Flag::Full(slot) };
            let (pool, memory) = (Arc::clone(site.pool), Arc::clone(memory));
            let what = CopyDescription {
                to_device: staged.to_device,
                way: "shared",
                bytes: staged.cut.len(),
            };
            let part = Part { queue, last: (last, round), using };
            site.watcher.add(Box::new(Watch { part, pool, _memory: memory }), what);
            Ok(())
        }
        Err(error) => {
            // Unless it broke off, which is more.
            site.queue(groups, view(DevicePtr::NULL)).set(Flag::Failed, NOT_QUEUED);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {

    use outboard_session::groups::USE;

    use super::*;
    use crate::recorded;

    #[test]
    fn a_later_copy_in_the_same_memory_is_left_alone() {
        let groups = Groups::shared(Cut::new(1 << 20, 128 << 10).unwrap(), false);
        let bytes = FLAGS + groups.staging();
        let mut memory = vec![0_u64; bytes.div_ceil(8)];
        // SAFETY: the memory is aligned, large enough, and outlives the view.
        let view = unsafe { View::new(memory.as_mut_ptr().cast(), DevicePtr::NULL, bytes) };
        let (context, stream) =
            (Handle::new(core::ptr::null_mut()), Handle::new(core::ptr::null_mut()));
        let queue = Queue { groups, view, table: recorded::table(), context, stream };
        let word = |index| view.flag(index).load(std::sync::atomic::Ordering::Acquire);
        let part = |using| Part { queue, last: (Flag::Full(0), 1), using };
        let begin = |using| {
            view.flag(USE).store(using, std::sync::atomic::Ordering::Release);
            (0..USE).for_each(|at| view.flag(at).store(0, std::sync::atomic::Ordering::Release));
        };
        begin(7);
        let first = part(7);
        assert!(!first.is_over());
        begin(8);
        assert!(first.is_over(), "its memory is another copy's");
        first.give_up();
        assert_eq!((0..USE).map(word).sum::<u32>(), 0);
        // One that the device has done is not given up either, and one that it never does is.
        let second = part(8);
        queue.set(Flag::Full(0), 1);
        second.give_up();
        assert_eq!(word(groups.flag(Flag::Failed)), 0);
        begin(9);
        part(9).give_up();
        assert_eq!(word(groups.flag(Flag::Failed)), BROKE_OFF);
    }
}
