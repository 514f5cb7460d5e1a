//! A process as the library knows it.
//!
//! All state is a part of [`Front`] rather than static, so that a test can have several processes,
//! each over a back end of its own. A thread works for one process: the stack of current contexts
//! and the cache of look-ups belong to the thread.

use core::ffi::c_void;
use std::fmt;
use std::ops::Deref;

use crate::backend::Backend;
use crate::{coredump, device, logs, parts};

/// A driver library. Functions that C calls without telling what for find its process by this.
pub trait Library: 'static {
    /// Where its devices are.
    type Backend: Backend;

    /// The process that has loaded it.
    fn process() -> &'static Process<Self::Backend>;

    /// The address of a private table that only this library has. It begins with its size in bytes
    /// and is never freed.
    fn own_table(_name: &[u8; 16]) -> Option<*const c_void> {
        None
    }
}

/// The front's state of a process, and the back end with its devices.
pub struct Process<B: 'static> {
    pub(crate) backend: &'static B,
    front: Front,
}

/// What the front knows of a process, wherever its devices are. Its parts know their own tables and
/// nothing of each other; code that uses several parts gets all of it.
pub struct Front {
    pub(crate) hooks: Option<Hooks>,
    pub(crate) state: parts::state::DriverState,
    pub(crate) logs: logs::Logs,
    pub(crate) contexts: parts::context::Contexts,
    pub(crate) greens: parts::green::Greens,
    pub(crate) peers: parts::peer::Peers,
    pub(crate) streams: parts::stream::Streams,
    pub(crate) events: parts::event::Events,
    pub(crate) graphs: parts::graph::Graphs,
    pub(crate) memory: parts::memory::Allocations,
    pub(crate) managed: parts::managed::Managed,
    pub(crate) pools: parts::pool::Pools,
    pub(crate) vmm: parts::vmm::Vmm,
    pub(crate) imports: parts::ipc::Imports,
    pub(crate) arrays: parts::array::Arrays,
    pub(crate) textures: parts::texture::Textures,
    pub(crate) references: parts::reference::References,
    pub(crate) modules: parts::module::Modules,
    pub(crate) functions: parts::function::Functions,
    pub(crate) libraries: parts::library::Libraries,
    pub(crate) links: parts::link::Links,
    pub(crate) notifications: device::Notifications,
    pub(crate) core_dumps: coredump::CoreDumps,
    pub(crate) communicators: parts::collectives::Communicators,
    pub(crate) files: parts::files::Files,
}

/// Functions of a library that C calls without telling for which process.
#[derive(Clone, Copy)]
pub(crate) struct Hooks {
    /// Finds a private table.
    pub(crate) table: fn(&[u8; 16]) -> Option<*const c_void>,
    /// Leaves the profile behind when the process exits.
    pub(crate) at_exit: extern "C" fn(),
}

impl<B: Backend> Process<B> {
    /// A process over this back end. `hooks` are those of the library that it has loaded, if any.
    pub(crate) const fn new(backend: &'static B, hooks: Option<Hooks>) -> Process<B> {
        Process { backend, front: Front::new(hooks) }
    }

    /// A process that no library has: it has no private tables and leaves no profile behind.
    pub const fn apart(backend: &'static B) -> Process<B> {
        Process::new(backend, None)
    }
}

impl<B> Deref for Process<B> {
    type Target = Front;

    #[inline]
    fn deref(&self) -> &Front {
        &self.front
    }
}

/// The front of the test that asks.
#[cfg(test)]
pub(crate) fn front() -> &'static Front {
    thread_local! {
        static OWN: &'static Front = Box::leak(Box::new(Front::new(None)));
    }
    OWN.with(|own| *own)
}

#[cfg(test)]
impl Front {
    /// How many there are of what a program makes and ends, by the parts that have them.
    pub(crate) fn counts(&self) -> [(&'static str, usize); 19] {
        [
            ("contexts", self.contexts.count()),
            ("greens", self.greens.count()),
            ("peers", self.peers.count()),
            ("streams", self.streams.count()),
            ("events", self.events.count()),
            ("graphs", self.graphs.count()),
            ("memory", self.memory.count()),
            ("pools", self.pools.count()),
            ("vmm", self.vmm.count()),
            ("imports", self.imports.count()),
            ("arrays", self.arrays.count()),
            ("textures", self.textures.count()),
            ("references", self.references.count()),
            ("modules", self.modules.count()),
            ("functions", self.functions.count()),
            ("libraries", self.libraries.count()),
            ("links", self.links.count()),
            ("communicators", self.communicators.count()),
            ("files", self.files.count()),
        ]
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Front")
    }
}

impl Front {
    const fn new(hooks: Option<Hooks>) -> Front {
        Front {
            hooks,
            state: parts::state::DriverState::new(),
            logs: logs::Logs::new(),
            contexts: parts::context::Contexts::new(),
            greens: parts::green::Greens::new(),
            peers: parts::peer::Peers::new(),
            streams: parts::stream::Streams::new(),
            events: parts::event::Events::new(),
            graphs: parts::graph::Graphs::new(),
            memory: parts::memory::Allocations::new(),
            managed: parts::managed::Managed::new(),
            pools: parts::pool::Pools::new(),
            vmm: parts::vmm::Vmm::new(),
            imports: parts::ipc::Imports::new(),
            arrays: parts::array::Arrays::new(),
            textures: parts::texture::Textures::new(),
            references: parts::reference::References::new(),
            modules: parts::module::Modules::new(),
            functions: parts::function::Functions::new(),
            libraries: parts::library::Libraries::new(),
            links: parts::link::Links::new(),
            notifications: device::Notifications::new(),
            core_dumps: coredump::CoreDumps::new(),
            communicators: parts::collectives::Communicators::new(),
            files: parts::files::Files::new(),
        }
    }
}
