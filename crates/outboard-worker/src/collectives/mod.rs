//! Communicators of NCCL, by the client's names.
//!
//! NCCL is loaded when it is first needed. A call that may wait for other ranks is made by a
//! helper thread: these may be threads of the same program, whose commands come after. What has
//! been done before waits for nobody, and the dispatcher makes it itself.

mod captured;
mod comm;
mod config;
mod group;
mod step;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use outboard_driver::nccl::Nccl;
use outboard_wire::{ContextId, ObjectId};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::io::Registry;
use crate::nccl::give_sockets;

pub(crate) use captured::capture;
pub(crate) use comm::Comm;
pub(crate) use group::run;
pub(crate) use step::{Prepared, Step};
pub(crate) use watch::{Watch, tell};

/// What NCCL or the worker says of a failure: an `ncclResult_t` and a sentence.
pub(crate) struct Failure {
    pub(crate) result: u32,
    pub(crate) sentence: String,
}

/// `ncclResult_t`, with the names of `nccl.h`.
pub(crate) mod result {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const UNHANDLED_CUDA_ERROR: u32 = 1;
    pub(crate) const SYSTEM_ERROR: u32 = 2;
    pub(crate) const INVALID_ARGUMENT: u32 = 4;
    pub(crate) const INVALID_USAGE: u32 = 5;
    pub(crate) const IN_PROGRESS: u32 = 7;
}

impl Failure {
    pub(crate) fn new(result: u32, sentence: impl Into<String>) -> Failure {
        Failure { result, sentence: sentence.into() }
    }
}

/// NCCL, which is loaded once.
pub(crate) struct Library {
    path: Option<PathBuf>,
    loaded: OnceLock<Result<Nccl, String>>,
    /// The way to whoever has sockets for it.
    registry: OnceLock<Registry>,
}

impl Library {
    /// It gets its sockets from this session's supervisor once it is loaded.
    pub(crate) fn has_sockets_from(&self, registry: &Registry) {
        self.registry.get_or_init(|| registry.clone());
    }

    /// The library, or why there is none.
    pub(crate) fn get(&self) -> Result<&Nccl, Failure> {
        let loaded = self.loaded.get_or_init(|| match &self.path {
            // SAFETY: the server's administrator says that it is NCCL.
            Some(path) => unsafe { Nccl::load(path) }.and_then(|nccl| {
                self.registry.get().map_or(Ok(()), |registry| give_sockets(path, registry))?;
                Ok(nccl)
            }),
            None => Err(NONE.to_owned()),
        });
        loaded.as_ref().map_err(|sentence| Failure::new(result::SYSTEM_ERROR, sentence.clone()))
    }
}

/// What is said of a server that has no collectives.
const NONE: &str = "the GPU's server offers no collectives: its administrator starts it with \
                    `outboard serve --nccl PATH`, and installs NCCL with `pip install nvidia-nccl-cu13` \
                    or `apt install libnccl2`";

/// The communicators that there are, for all threads.
pub(crate) type Comms = Arc<Mutex<FxHashMap<ObjectId, Arc<Comm>>>>;

/// The part of a session that is about communicators.
pub(crate) struct Collectives {
    pub(crate) library: Arc<Library>,
    pub(crate) comms: Comms,
    pub(crate) watch: Watch,
}

impl Collectives {
    pub(crate) fn new(library: Option<PathBuf>) -> Collectives {
        Collectives {
            library: Arc::new(Library {
                path: library,
                loaded: OnceLock::new(),
                registry: OnceLock::new(),
            }),
            comms: Comms::default(),
            watch: Watch::default(),
        }
    }

    /// The communicator of that name.
    pub(crate) fn find(&self, comm: ObjectId) -> Result<Arc<Comm>, Failure> {
        self.comms
            .lock()
            .get(&comm)
            .cloned()
            .ok_or_else(|| Failure::new(result::INVALID_ARGUMENT, "the communicator is no more"))
    }

    /// A context is about to end: its communicators, which are to be aborted before.
    pub(crate) fn forget(&self, ctx: ContextId) -> Vec<Arc<Comm>> {
        let mut comms = self.comms.lock();
        let ended: Vec<Arc<Comm>> =
            comms.values().filter(|comm| comm.ctx == ctx).map(Arc::clone).collect();
        comms.retain(|_, comm| comm.ctx != ctx);
        ended
    }
}
