//! Copies to the device whose bytes are read when the stream comes to them, because something before them in the stream may still write them: a
//! function of the program, or a copy to the same memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result};
use outboard_wire::Reader;
use outboard_wire::request::SEND;

use crate::link::{Expectation, Later};
use crate::requests::Answerer;

/// The copies that the worker has not asked for yet.
#[derive(Debug, Default)]
pub(crate) struct LateCopies(Mutex<HashMap<u64, Late>>);

#[derive(Debug)]
struct Late {
    ctx: ContextId,
    upload: Later,
    /// Requests are heard while there is one.
    _expected: Expectation,
}

impl LateCopies {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Late>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a copy; the command that announces it must follow.
    pub(crate) fn add(&self, ctx: ContextId, upload: Later, expected: Expectation) {
        self.waiting().insert(upload.number(), Late { ctx, upload, _expected: expected });
    }

    /// Sends what nobody will ask for any more: the context has ended, and the memory must become the program's own again.
    pub(crate) fn end(&self, ctx: ContextId) {
        let ended: Vec<Late> = self.waiting().extract_if(|_, late| late.ctx == ctx).map(|(_, late)| late).collect();
        for late in ended {
            late.upload.start();
        }
    }
}

impl Answerer for LateCopies {
    fn answer(&self, kind: u32, _ctx: ContextId, body: &mut Reader<'_>) -> Option<Result<Vec<u8>>> {
        if kind != SEND {
            return None;
        }
        let Ok(transfer) = body.get::<u64>() else { return Some(Err(CUresult::CUDA_ERROR_UNKNOWN)) };
        let late = self.waiting().remove(&transfer);
        if let Some(late) = late {
            late.upload.start();
        }
        Some(Ok(Vec::new()))
    }
}
