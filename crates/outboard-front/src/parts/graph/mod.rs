//! Graphs: nodes and edges, and executables made of them.

pub(crate) mod exec;
pub(crate) mod memory;
pub(crate) mod mirror;
pub(crate) mod model;
pub(crate) mod object;
pub(crate) mod spread;

use std::sync::LazyLock;
use std::sync::atomic::AtomicUsize;

use parking_lot::{Mutex, RwLock};

/// Graphs, captures and executables of a process.
pub(crate) struct Graphs {
    pub(crate) world: LazyLock<Mutex<model::World>>,
    pub(crate) execs: exec::Execs,
    /// User objects.
    pub(crate) objects: LazyLock<Mutex<object::Objects>>,
    /// How many captures are under way. Every call that queues work reads it first: nearly always
    /// there is none.
    pub(crate) captures: AtomicUsize,
}

impl Graphs {
    pub(crate) const fn new() -> Graphs {
        Graphs {
            world: LazyLock::new(Mutex::default),
            execs: LazyLock::new(RwLock::default),
            objects: LazyLock::new(Mutex::default),
            captures: AtomicUsize::new(0),
        }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let world = self.world.lock();
        world.graphs.len() + world.nodes.len() + self.execs.read().len()
    }
}
