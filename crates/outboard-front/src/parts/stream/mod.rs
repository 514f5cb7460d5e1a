//! Streams: handles, the default streams, ordering calls.

use std::sync::atomic::{AtomicI32, Ordering};

use outboard_abi::CUstream;
use parking_lot::Mutex;

use crate::backend::{ContextId, StreamId};
use crate::handles::{Kind, Table};
use crate::parts::context::Context;

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

pub(crate) struct Object {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) id: ContextId,
    pub(crate) flags: u32,
    pub(crate) priority: AtomicI32,
}

/// The streams of a process.
pub(crate) struct Streams {
    pub(crate) table: Table<Object>,
    /// Default streams of threads that have ended, to be destroyed by the next thread that makes
    /// one.
    pub(crate) orphans: Mutex<Vec<u64>>,
}

impl Streams {
    pub(crate) const fn new() -> Streams {
        Streams { table: Table::new(Kind::Stream), orphans: Mutex::new(Vec::new()) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

impl Streams {
    /// Whether the legacy default stream and this one wait for each other.
    pub(crate) fn is_blocking(&self, stream: StreamId) -> bool {
        self.table.look(stream.0).is_some_and(|object| object.flags & NON_BLOCKING == 0)
    }

    /// The priority of a stream that the program made.
    pub(crate) fn priority(&self, stream: CUstream) -> Option<i32> {
        self.table.look(stream as u64).map(|object| object.priority.load(Ordering::Relaxed))
    }

    /// Keeps a priority that was set as an attribute.
    pub(crate) fn set_priority(&self, stream: CUstream, priority: i32) {
        if let Some(object) = self.table.look(stream as u64) {
            object.priority.store(priority, Ordering::Relaxed);
        }
    }
}
