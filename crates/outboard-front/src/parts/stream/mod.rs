//! Streams: handles, the default streams, ordering calls.

use std::sync::atomic::AtomicI32;

use parking_lot::Mutex;

use crate::backend::ContextId;
use crate::handles::Kind;
use crate::handles::Table;
use crate::parts::context::Context;

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
    /// Default streams of threads that have ended, to be destroyed by the next thread that makes one.
    pub(crate) orphans: Mutex<Vec<u64>>,
}

impl Streams {
    pub(crate) const fn new() -> Streams {
        Streams { table: Table::new(Kind::Stream), orphans: Mutex::new(Vec::new()) }
    }
}
