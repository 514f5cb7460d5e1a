//! Transfers of large copies: where each runs, and the operations of the device that are queued for
//! it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use outboard_abi::{CUcontext, CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_session::chunks::ChunkError;
use outboard_session::groups::{Flag, Groups, USE};
use outboard_wire::boxes::Extent;
use outboard_wire::{ContextId, DevicePtr, HostPtr};

use super::account::Share;
use super::memory::{Piece, Pool, View};
use super::registered::RegisteredMemory;
use super::watch::Watcher;
use crate::boxes::{self, Placed};
use crate::io::{Bulk, Replier};
use crate::memops::{self, Operation};
use crate::objects::Handle;

/// Where a copy runs.
#[derive(Clone, Copy)]
pub(crate) struct CopySite<'a> {
    pub(crate) table: &'static Table,
    pub(crate) context: CUcontext,
    pub(crate) stream: CUstream,
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) replier: &'a Replier,
    /// By which the bytes of large copies come and go.
    pub(crate) bulk: &'a Bulk,
    /// The client's name of the context.
    pub(crate) ctx: ContextId,
    pub(crate) watcher: &'a Arc<Watcher>,
    /// The copy's memory, if an adapter knows it.
    pub(crate) registered: Option<&'a Arc<RegisteredMemory>>,
}

/// Why a copy was not queued.
pub(crate) enum Failed {
    /// Nothing has been done: the client is still to be told, or its bytes taken.
    NotStarted(CUresult),
    /// It was broken off, and the part that had begun is handled.
    BrokeOff(CUresult),
    /// The client breaks the rules.
    Violation(ChunkError),
}

/// The queued operations of a transfer, and its flags.
#[derive(Clone, Copy)]
pub(super) struct Queue {
    pub(super) groups: Groups,
    pub(super) view: View,
    pub(super) table: &'static Table,
    pub(super) context: Handle<outboard_abi::CUctx_st>,
    pub(super) stream: Handle<outboard_abi::CUstream_st>,
}

// SAFETY: handles are names; see `Handle`.
unsafe impl Sync for Queue {}

/// The common part of transfers over lanes in both directions.
pub(super) struct Transfer {
    pub(super) number: u64,
    pub(super) queue: Queue,
    pub(super) bulk: Bulk,
    pub(super) watcher: Arc<Watcher>,
    pub(super) pool: Arc<Pool>,
    pub(super) piece: Piece,
    /// The share of the account of a copy to the host; given back behind the piece.
    pub(super) _share: Option<Share>,
}

impl std::ops::Deref for Transfer {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.queue
    }
}

/// Tells the client that a copy has failed after the command that queued it.
#[derive(Clone)]
pub(super) struct FailureReporter {
    pub(super) replier: Replier,
    pub(super) ctx: ContextId,
}

/// What a program is told of work that was to come from a server, or to go there, whose link is
/// lost.
pub(super) const LOST: CUresult = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;

impl FailureReporter {
    pub(super) fn of(site: &CopySite<'_>) -> FailureReporter {
        FailureReporter { replier: site.replier.clone(), ctx: site.ctx }
    }

    pub(super) fn report(&self, error: CUresult) {
        self.replier.failed(self.ctx, error);
    }

    /// Tells the program that nothing came of its work, unless that is not `due`: once, and before
    /// its stream goes on.
    pub(super) fn report_loss(&self, due: &mut bool) {
        if std::mem::take(due) {
            self.report(LOST);
        }
    }
}

impl CopySite<'_> {
    pub(super) fn transfer(
        &self,
        number: u64,
        groups: Groups,
        share: Option<Share>,
    ) -> Result<Transfer, CUresult> {
        if !groups.fit() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let piece = self.pool.take(self.table, groups.staging())?.for_lanes(self.bulk);
        Ok(Transfer {
            number,
            queue: self.queue(groups, piece.view()),
            bulk: self.bulk.clone(),
            watcher: Arc::clone(self.watcher),
            pool: Arc::clone(self.pool),
            piece,
            _share: share,
        })
    }

    pub(super) fn queue(&self, groups: Groups, view: View) -> Queue {
        let (context, stream) = (Handle::new(self.context), Handle::new(self.stream));
        Queue { groups, view, table: self.table, context, stream }
    }
}

impl Transfer {
    /// As of [`Queue::release_waits`]; the device may go on to use the piece.
    pub(super) fn release_waits(&self) {
        self.piece.leak();
        self.queue.release_waits();
    }
}

impl Queue {
    pub(super) fn set(&self, flag: Flag, value: u32) {
        // Never down again: see `release_waits`.
        self.view.flag(self.groups.flag(flag)).fetch_max(value, Ordering::AcqRel);
    }

    pub(super) fn is_set(&self, flag: Flag, value: u32) -> bool {
        self.view.flag(self.groups.flag(flag)).load(Ordering::Acquire) >= value
    }

    /// What the client has written for the present use of memory that it shares.
    pub(super) fn used_for(&self) -> u32 {
        self.view.flag(USE).load(Ordering::Acquire)
    }

    /// An operation of the device: it waits until a flag is set.
    pub(super) fn wait(&self, flag: Flag, value: u32) -> Operation {
        Operation::WaitAtLeast(self.view.device_flag(self.groups.flag(flag)), value)
    }

    /// An operation of the device: it sets a flag, behind what was queued before.
    pub(super) fn mark(&self, flag: Flag, value: u32) -> Operation {
        Operation::Write(self.view.device_flag(self.groups.flag(flag)), value)
    }

    pub(super) fn queue(&self, operations: &[Operation]) -> Result<(), CUresult> {
        memops::queue(self.table, self.stream.get(), operations)
    }

    /// The slot of a group.
    pub(super) fn slot(&self, group: u32) -> *mut u8 {
        self.view.slot(self.groups.group_at(group))
    }

    /// Queues a copy to the device, and these operations before it.
    pub(super) fn copy_in(&self, dst: &DeviceSide, first: &[Operation]) -> Result<(), CUresult> {
        let full = |group| {
            let (slot, round) = self.groups.slot_and_round(group);
            self.wait(Flag::Full(slot), round)
        };
        self.queue(&[first, &[full(0)]].concat())?;
        let last = self.groups.count() - 1;
        for group in 0..=last {
            dst.copy(self, group, true)?;
            let (slot, round) = self.groups.slot_and_round(group);
            let free = self.mark(Flag::Free(slot), round);
            // Both at once: each call costs the device a few microseconds.
            if group < last { self.queue(&[free, full(group + 1)])? } else { self.queue(&[free])? }
        }
        Ok(())
    }

    /// Queues a copy to the host.
    pub(super) fn copy_out(&self, src: &DeviceSide) -> Result<(), CUresult> {
        for group in 0..self.groups.count() {
            src.copy(self, group, false)?;
            let (slot, round) = self.groups.slot_and_round(group);
            let full = self.mark(Flag::Full(slot), round);
            let next = group + 1;
            let (slot, round) = self.groups.slot_and_round(next);
            if next < self.groups.count() && round > 1 {
                self.queue(&[full, self.wait(Flag::Free(slot), round - 1)])?;
            } else {
                self.queue(&[full])?;
            }
        }
        Ok(())
    }

    /// Fills the slots whose bytes have not come with what is where they belong, so that the
    /// device, which copies them all the same, changes nothing there. Each group has a slot of its
    /// own.
    pub(super) fn keep_what_is_there(
        &self,
        target: &DeviceSide,
        pool: &Pool,
    ) -> Result<(), CUresult> {
        call!(self.table, cuCtxSetCurrent(self.context.get()))?;
        let stream = pool.shared_copy_stream(self.table, false)?;
        let queue = Queue { stream, ..*self };
        for group in 0..self.groups.count() {
            let (slot, round) = self.groups.slot_and_round(group);
            if !self.is_set(Flag::Full(slot), round) {
                target.copy(&queue, group, false)?;
            }
        }
        call!(self.table, cuStreamSynchronize(stream.get()))
    }

    /// Whether each group has a slot of its own.
    pub(super) fn has_all_slots(&self) -> bool {
        self.groups.count() <= self.groups.slots()
    }

    /// Lets everything that was queued with the flags pass: queueing it broke off in the middle.
    pub(super) fn release_waits(&self) {
        for flag in 0..=self.groups.flag(Flag::Reached) {
            self.view.flag(flag).store(i32::MAX as u32, Ordering::Release);
        }
    }

    /// As of [`liveness_check`], for this one's context.
    pub(super) fn liveness_check(&self, pool: &Arc<Pool>) -> Box<dyn FnOnce() -> bool + Send> {
        liveness_check(pool, self.table, self.context)
    }
}

/// A function that checks whether streams of a context may still progress.
pub(super) fn liveness_check(
    pool: &Arc<Pool>,
    table: &'static Table,
    context: Handle<outboard_abi::CUctx_st>,
) -> Box<dyn FnOnce() -> bool + Send> {
    let pool = Arc::clone(pool);
    Box::new(move || {
        if pool.is_closed() {
            return false;
        }
        // Any stream of a context with a fault says so. The copy's own may have been destroyed,
        // while its work continues.
        let legacy = core::ptr::null_mut();
        let outcome = call!(table, cuCtxSetCurrent(context.get()))
            .and_then(|()| call!(table, cuStreamQuery(legacy)));
        matches!(outcome, Ok(()) | Err(CUresult::CUDA_ERROR_NOT_READY))
    })
}

/// The device side of a transfer.
#[derive(Clone, Copy)]
pub(crate) enum DeviceSide {
    /// Memory in one piece.
    Linear(DevicePtr),
    /// A range of a box's packed bytes, from `from` on.
    Box { region: Placed, extent: Extent, from: u64 },
}

impl DeviceSide {
    /// Copies the bytes of a group from or to its slot, in the stream.
    pub(super) fn copy(&self, t: &Queue, group: u32, to_device: bool) -> Result<(), CUresult> {
        let ((at, len), slot) = (t.groups.bytes(group), t.slot(group));
        let (stream, table) = (t.stream.get(), t.table);
        match self {
            DeviceSide::Linear(base) if to_device => {
                call!(table, cuMemcpyHtoDAsync_v2(base.offset(at).0, slot.cast(), len, stream))
            }
            DeviceSide::Linear(base) => {
                call!(table, cuMemcpyDtoHAsync_v2(slot.cast(), base.offset(at).0, len, stream))
            }
            DeviceSide::Box { region, extent, from } => {
                let start = from + at;
                extent.parts(start..start + len as u64).try_for_each(|part| {
                    let device = region.part(&part)?;
                    let host =
                        Placed::host(HostPtr::of(slot).offset(part.packed - start), part.extent);
                    let (dst, src) = if to_device { (device, host) } else { (host, device) };
                    boxes::copy(table, &dst, &src, part.extent, stream)
                })
            }
        }
    }
}
