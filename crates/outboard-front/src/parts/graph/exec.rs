//! Executables: making, updating, launching.

use crate::backend::ServerId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use crate::backend::ObjectId;
use parking_lot::{Mutex, RwLock};

use crate::parts::graph::memory::Allocates;

/// An executable.
pub(crate) struct Exec {
    /// The backend's name for it.
    pub(crate) id: ObjectId,
    /// The server that has it.
    pub(crate) server: ServerId,
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
