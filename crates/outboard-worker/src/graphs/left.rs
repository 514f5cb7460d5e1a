//! Functions and memory of the client that executables used before they were changed. Running
//! launches may still use them, so they are released later, and many at a time: a thread must wait
//! for the context to know that the launches are done.

use std::sync::Arc;

use outboard_driver::call;
use outboard_wire::ObjectId;

use super::host::HostPart;
use crate::Worker;
use crate::contexts::{Context, current};

/// So many parts, or parts with so many bytes of page-locked memory, are let go at once.
const PARTS: usize = 64;
const BYTES: u64 = 16 << 20;

/// What an executable has left behind.
#[derive(Default)]
pub(crate) struct Left {
    parts: Vec<Arc<HostPart>>,
    bytes: u64,
}

impl Left {
    fn push(&mut self, part: Arc<HostPart>) {
        self.bytes += part.bytes();
        self.parts.push(part);
    }

    /// All of it, if it is much.
    fn take_much(&mut self) -> Option<Vec<Arc<HostPart>>> {
        (self.parts.len() >= PARTS || self.bytes >= BYTES).then(|| std::mem::take(self).parts)
    }

    /// All of it.
    pub(crate) fn into_parts(self) -> Vec<Arc<HostPart>> {
        self.parts
    }
}

impl Worker {
    /// Launches of an executable that are still to come do not need these any more.
    pub(crate) fn leave(&mut self, exec: ObjectId, parts: impl IntoIterator<Item = Arc<HostPart>>) {
        let Some(found) = self.graphs.execs.get_mut(&exec) else { return };
        parts.into_iter().for_each(|part| found.left.push(part));
        if let Some(much) = found.left.take_much() {
            self.let_go(much);
        }
    }

    /// Lets them go when all launches are done. An executable may have been launched in a stream of
    /// any context, whichever is at hand.
    pub(crate) fn let_go(&mut self, parts: Vec<Arc<HostPart>>) {
        let contexts: Vec<Context> = self.contexts.all().copied().collect();
        let table = self.table;
        self.helpers.run_in_turn(move || {
            for context in &contexts {
                // In one that is gone, or has failed, nothing is under way.
                let _ = call!(table, cuCtxSetCurrent(current(context)))
                    .and_then(|()| call!(table, cuCtxSynchronize()));
            }
            drop(parts);
        });
    }
}
