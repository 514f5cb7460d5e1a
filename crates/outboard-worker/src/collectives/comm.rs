//! One rank of a communicator.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use outboard_driver::nccl::{self, Nccl};
use outboard_wire::collectives::{members, membership};
use outboard_wire::{ContextId, ObjectId};
use parking_lot::Mutex;

use super::result;
use crate::contexts::Context;

/// One rank of a communicator.
pub(crate) struct Comm {
    pub(crate) name: ObjectId,
    pub(crate) ctx: ContextId,
    pub(crate) context: Context,
    /// NCCL's; null before it is made and once it has ended.
    real: AtomicPtr<core::ffi::c_void>,
    /// Held while it is asked, and while it ends.
    asking: Mutex<()>,
    members: AtomicU64,
    /// The asynchronous error that the client knows.
    state: AtomicU32,
    pub(crate) made: Mutex<Made>,
}

/// What NCCL has made of a communicator: the client may name nothing else.
#[derive(Default)]
pub(crate) struct Made {
    pub(crate) ops: BTreeSet<u32>,
    pub(crate) buffers: BTreeSet<u64>,
    pub(crate) windows: BTreeSet<u64>,
}

impl Comm {
    pub(crate) fn new(name: ObjectId, ctx: ContextId, context: Context) -> Comm {
        Comm {
            name,
            ctx,
            context,
            real: AtomicPtr::default(),
            asking: Mutex::default(),
            members: AtomicU64::new(membership(0, 0)),
            state: AtomicU32::new(result::SUCCESS),
            made: Mutex::default(),
        }
    }

    /// NCCL's communicator, if there is one.
    pub(super) fn real(&self) -> Option<nccl::Comm> {
        let real = self.real.load(Ordering::Acquire);
        (!real.is_null()).then_some(real)
    }

    /// NCCL has made it; how many ranks there are, and which one it is, NCCL knows.
    pub(super) fn begin(&self, nccl: &Nccl, real: nccl::Comm) -> u64 {
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: a communicator that was just made, and places for numbers.
        unsafe {
            nccl.ncclCommUserRank(real, &raw mut rank);
            nccl.ncclCommCount(real, &raw mut ranks);
        }
        let membership = membership(rank, ranks);
        self.members.store(membership, Ordering::Release);
        self.real.store(real, Ordering::Release);
        membership
    }

    /// Rank and ranks.
    pub(crate) fn members(&self) -> (i32, i32) {
        members(self.members.load(Ordering::Acquire))
    }

    /// Takes NCCL's communicator away, which is to be ended.
    pub(super) fn end(&self) -> Option<nccl::Comm> {
        let _nobody_asks = self.asking.lock();
        let real = self.real.swap(core::ptr::null_mut(), Ordering::AcqRel);
        (!real.is_null()).then_some(real)
    }

    /// Its asynchronous error, if that has changed.
    pub(super) fn news(&self, nccl: &Nccl) -> Option<u32> {
        let _it_stays = self.asking.lock();
        let real = self.real()?;
        let mut now = result::SUCCESS;
        // SAFETY: a communicator that does not end meanwhile, and a place for a number.
        let asked = unsafe { nccl.ncclCommGetAsyncError(real, &raw mut now) };
        let now = if asked == result::SUCCESS { now } else { asked };
        (now != result::IN_PROGRESS && self.state.swap(now, Ordering::AcqRel) != now).then_some(now)
    }

    /// Ends it whatever it is doing.
    pub(crate) fn abort(&self, nccl: &Nccl) -> u32 {
        // SAFETY: nobody else has the pointer any more but calls that the abortion ends.
        self.end().map_or(result::SUCCESS, |real| unsafe { nccl.ncclCommAbort(real) })
    }
}
