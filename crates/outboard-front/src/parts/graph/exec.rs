//! Executables: making, updating, launching.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::{Mutex, RwLock};

use crate::backend::{ObjectId, ServerId};
use crate::parts::graph::memory::Allocates;
use crate::parts::graph::spread::Spread;

/// An executable that one server has.
pub(crate) struct Whole {
    /// The backend's name for it.
    pub(crate) id: ObjectId,
    /// The server that has it.
    pub(crate) server: ServerId,
    /// How streams of other servers launch it, once one has.
    pub(crate) elsewhere: OnceLock<Spread>,
}

/// What became of a graph.
pub(crate) enum Made {
    /// All of it is on one server.
    Whole(Whole),
    /// Several servers have pieces of it.
    Spread(Spread),
}

/// An executable.
pub(crate) struct Exec {
    pub(crate) made: Made,
    pub(crate) flags: u64,
    /// The graph it was made of, whose nodes name its own.
    pub(crate) graph: ObjectId,
    /// Nodes that do nothing for now.
    pub(crate) disabled: Mutex<HashSet<u64>>,
    /// What it holds on to.
    pub(crate) objects: Vec<(u64, u32)>,
    /// What launches allocate.
    pub(crate) memory: Allocates,
}

/// The executables of a process, by handle.
pub(crate) type Execs = LazyLock<RwLock<HashMap<u64, Arc<Exec>>>>;
