//! Calls that servers have been given, and that may wait there for other ranks.

use std::sync::Arc;

use outboard_abi::CUresult;
use parking_lot::{Condvar, Mutex};

use crate::backend::{ContextId, GroupOutcome};

/// One server's part of a group, under way.
pub(crate) struct Running {
    pub(crate) ctx: ContextId,
    pub(crate) done: Arc<Done>,
}

/// What came of it, once it is known.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) outcome: Mutex<Option<Result<GroupOutcome, CUresult>>>,
    pub(crate) told: Condvar,
}
