//! Copies to the device whose bytes are read when the stream comes to them, because something
//! before them in the stream may still write them: a function of the program, or a copy to the same
//! memory.

use std::collections::HashMap;
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result};
use outboard_wire::Reader;
use outboard_wire::request::SEND;
use parking_lot::{Mutex, MutexGuard};

use crate::link::{Expectation, Later};
use crate::outstanding::Queued;
use crate::requests::Answerer;

/// The copies that the worker has not asked for yet.
#[derive(Debug, Default)]
pub(crate) struct LateCopies(Mutex<HashMap<u64, Late>>);

#[derive(Debug)]
struct Late {
    queued: Arc<Queued>,
    upload: Later,
    /// Requests are heard while there is one.
    _expected: Expectation,
}

impl LateCopies {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Late>> {
        self.0.lock()
    }

    /// Takes in a copy; the command that announces it must follow.
    pub(crate) fn add(&self, queued: Arc<Queued>, upload: Later, expected: Expectation) {
        self.waiting().insert(upload.number(), Late { queued, upload, _expected: expected });
    }

    /// The command that announces a copy has this number.
    pub(crate) fn queued(&self, transfer: u64, seq: u64) {
        if let Some(late) = self.waiting().get(&transfer) {
            late.queued.is(seq);
        }
    }

    /// Sends copies that the worker will not request any more: their context has ended, and the
    /// memory must become the program's own again.
    pub(crate) fn end(&self, ctx: ContextId) {
        let ended: Vec<Late> = self
            .waiting()
            .extract_if(|_, late| late.queued.place().0 == ctx)
            .map(|(_, late)| late)
            .collect();
        for late in ended {
            late.upload.start();
        }
    }
}

impl Answerer for LateCopies {
    fn expects(&self, kind: u32, ctx: ContextId) -> bool {
        kind == SEND && self.waiting().values().any(|late| late.queued.place().0 == ctx)
    }

    fn answer(&self, kind: u32, ctx: ContextId, body: &mut Reader<'_>) -> Option<Result<Vec<u8>>> {
        if kind != SEND {
            return None;
        }
        let Ok(transfer) = body.get::<u64>() else {
            return Some(Err(CUresult::CUDA_ERROR_UNKNOWN));
        };
        let late = {
            let mut waiting = self.waiting();
            let asked = waiting.get(&transfer).is_some_and(|late| late.queued.place().0 == ctx);
            if asked { waiting.remove(&transfer) } else { None }
        };
        if let Some(Late { queued, upload, _expected }) = late {
            if queued.is_over() {
                upload.refuse();
            } else {
                upload.start();
            }
        }
        Some(Ok(Vec::new()))
    }
}
