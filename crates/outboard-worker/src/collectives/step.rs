//! A call of NCCL whose arguments have been looked up.

use std::sync::Arc;

use outboard_abi::CUstream_st;
use outboard_wire::ObjectId;
use outboard_wire::collectives::{Collective, CommConfig, UniqueId};

use super::{Comm, Comms};
use crate::contexts::Context;
use crate::objects::Handle;

/// A call of NCCL whose arguments have been looked up.
pub(crate) enum Step {
    Init {
        made: Arc<Comm>,
        ranks: i32,
        rank: i32,
        ids: Vec<UniqueId>,
        config: CommConfig,
    },
    Split {
        comm: Arc<Comm>,
        made: Option<Arc<Comm>>,
        color: i32,
        key: i32,
        config: Option<CommConfig>,
    },
    Shrink {
        comm: Arc<Comm>,
        made: Arc<Comm>,
        excluded: Vec<i32>,
        config: Option<CommConfig>,
        flags: i32,
    },
    Finalize(Arc<Comm>),
    Destroy(Arc<Comm>),
    Abort(Arc<Comm>),
    Collective {
        comm: Arc<Comm>,
        call: Collective,
        stream: Handle<CUstream_st>,
    },
    Reduction {
        comm: Arc<Comm>,
        datatype: u32,
        immediate: Vec<u8>,
        address: u64,
    },
    ForgetReduction {
        comm: Arc<Comm>,
        op: u32,
    },
    Register {
        comm: Arc<Comm>,
        address: u64,
        bytes: u64,
    },
    Deregister {
        comm: Arc<Comm>,
        handle: u64,
    },
    RegisterWindow {
        comm: Arc<Comm>,
        address: u64,
        bytes: u64,
        flags: i32,
    },
    DeregisterWindow {
        comm: Arc<Comm>,
        window: u64,
    },
}

/// A group of them.
pub(crate) struct Prepared {
    pub(crate) steps: Vec<Step>,
    /// All communicators, for those that are not made after all.
    pub(crate) comms: Comms,
}

impl Step {
    /// The communicator in whose context it is made.
    pub(super) fn comm(&self) -> &Arc<Comm> {
        use Step::*;
        match self {
            Init { made, .. } => made,
            Finalize(comm) | Destroy(comm) | Abort(comm) => comm,
            Split { comm, .. }
            | Shrink { comm, .. }
            | Collective { comm, .. }
            | Reduction { comm, .. }
            | ForgetReduction { comm, .. }
            | Register { comm, .. }
            | Deregister { comm, .. }
            | RegisterWindow { comm, .. }
            | DeregisterWindow { comm, .. } => comm,
        }
    }

    pub(super) fn context(&self) -> &Context {
        &self.comm().context
    }

    /// The communicator that it makes.
    pub(super) fn made(&self) -> Option<&Arc<Comm>> {
        match self {
            Step::Init { made, .. } | Step::Shrink { made, .. } => Some(made),
            Step::Split { made, .. } => made.as_ref(),
            _ => None,
        }
    }
}

impl Prepared {
    /// Forgets the communicators that were to be made.
    pub(crate) fn forget_made(&self) {
        let made: Vec<ObjectId> =
            self.steps.iter().filter_map(Step::made).map(|made| made.name).collect();
        let mut comms = self.comms.lock();
        made.iter().for_each(|made| drop(comms.remove(made)));
    }
}
