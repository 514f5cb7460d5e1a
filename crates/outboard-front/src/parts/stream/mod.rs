//! Streams: handles, the default streams, ordering calls.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

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
    /// By which programs tell streams apart: unlike a handle's, its value is small.
    pub(crate) number: u64,
    pub(crate) flags: u32,
    pub(crate) priority: AtomicI32,
}

/// Where NVIDIA's driver (580) begins to number streams, how many numbers a context takes, and
/// which of them its legacy default stream has: a library may have seen no others.
const FIRST_NUMBER: u64 = 6;
const NUMBERS_OF_CONTEXT: u64 = 7;
const NUMBER_OF_LEGACY: u64 = 1;

/// The streams of a process.
pub(crate) struct Streams {
    pub(crate) table: Table<Object>,
    /// Default streams of threads that have ended, to be destroyed by the next thread that makes
    /// one.
    pub(crate) orphans: Mutex<Vec<u64>>,
    next_number: AtomicU64,
}

impl Streams {
    pub(crate) const fn new() -> Streams {
        Streams {
            table: Table::new(Kind::Stream),
            orphans: Mutex::new(Vec::new()),
            next_number: AtomicU64::new(FIRST_NUMBER),
        }
    }

    /// The number of a new stream. None is used twice.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// A context begins: the number of its legacy default stream.
    pub(crate) fn number_of_legacy(&self) -> u64 {
        self.next_number.fetch_add(NUMBERS_OF_CONTEXT, Ordering::Relaxed) + NUMBER_OF_LEGACY
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_nvidias_driver() {
        let streams = Streams::new();
        // A context, the default stream of a thread there, another context, and again.
        assert_eq!(streams.number_of_legacy(), 7);
        assert_eq!(streams.number(), 13);
        assert_eq!(streams.number_of_legacy(), 15);
        assert_eq!([streams.number(), streams.number()], [21, 22]);
        assert_eq!(streams.number_of_legacy(), 24);
    }
}
