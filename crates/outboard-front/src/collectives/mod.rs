//! Collectives: the front keeps communicators and groups; NCCL runs on the servers.

pub(crate) mod captured;
pub(crate) mod check;
pub(crate) mod config;
mod ending;
pub(crate) mod group;
pub(crate) mod running;

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_wire::collectives::CommCall;

use crate::backend::{Backend, ContextId, DeviceId};
use crate::handles::{self, Kind};
use crate::parts::collectives::Comm;
use crate::process::{Front, Process};

/// `ncclResult_t`, with the names of `nccl.h`.
pub(crate) mod result {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const UNHANDLED_CUDA_ERROR: u32 = 1;
    pub(crate) const SYSTEM_ERROR: u32 = 2;
    pub(crate) const INTERNAL_ERROR: u32 = 3;
    pub(crate) const INVALID_ARGUMENT: u32 = 4;
    pub(crate) const INVALID_USAGE: u32 = 5;
    pub(crate) const REMOTE_ERROR: u32 = 6;
    pub(crate) const IN_PROGRESS: u32 = 7;
}

/// Why a call fails: an `ncclResult_t`, and a sentence for `ncclGetLastError`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) result: u32,
    pub(crate) sentence: String,
}

/// The outcome of a call of NCCL.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(result: u32, sentence: impl Into<String>) -> Failure {
        Failure { result, sentence: sentence.into() }
    }

    pub(crate) fn argument(sentence: impl Into<String>) -> Failure {
        Failure::new(result::INVALID_ARGUMENT, sentence)
    }

    pub(crate) fn usage(sentence: impl Into<String>) -> Failure {
        Failure::new(result::INVALID_USAGE, sentence)
    }

    /// The call will be done when `ncclCommGetAsyncError` says so.
    pub(crate) fn in_progress() -> Failure {
        Failure::new(result::IN_PROGRESS, String::new())
    }
}

/// What is CUDA's failure is NCCL's, too.
impl From<CUresult> for Failure {
    fn from(error: CUresult) -> Failure {
        match error {
            CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => {
                Failure::new(result::REMOTE_ERROR, "the connection to the GPU's server is lost")
            }
            CUresult::CUDA_ERROR_NOT_SUPPORTED => Failure::new(
                result::SYSTEM_ERROR,
                "this driver library has no collectives; libcuda.so.1 of Outboard's client has",
            ),
            error => {
                let name = crate::errors::find(error).map(|(name, _)| name.to_string_lossy());
                let name = name.unwrap_or_else(|| error.0.to_string().into());
                Failure::new(result::UNHANDLED_CUDA_ERROR, format!("CUDA says {name}"))
            }
        }
    }
}

/// The communicator of a handle.
pub(crate) fn find(front: &'static Front, handle: u64) -> Outcome<Arc<Comm>> {
    front.communicators.table.get(handle).ok_or_else(|| {
        Failure::argument(if handle == 0 {
            "the communicator is null"
        } else if handles::is(Kind::Communicator, handle) {
            "the communicator has been destroyed or aborted, or its device was reset"
        } else {
            "the handle is no communicator"
        })
    })
}

/// As [`find`], for what a communicator must be ready for.
pub(crate) fn ready<B: Backend>(process: &'static Process<B>, handle: u64) -> Outcome<Arc<Comm>> {
    let comm = find(process, handle)?;
    match state(process, &comm) {
        result::SUCCESS => Ok(comm),
        result::IN_PROGRESS => Err(Failure::usage(
            "the communicator is not ready: ncclCommGetAsyncError says when it is",
        )),
        failed => Err(Failure::new(failed, comm.sentence())),
    }
}

/// A communicator's asynchronous error. If its server is lost, that is one.
pub(crate) fn state<B: Backend>(process: &'static Process<B>, comm: &Comm) -> u32 {
    if let Err(error) = process.backend.collectives_lost(comm.ctx)
        && !matches!(comm.state(), result::REMOTE_ERROR)
    {
        let failure = Failure::from(error);
        comm.set(failure.result, &failure.sentence);
    }
    comm.state()
}

/// Which release of NCCL the server of a device has.
pub(crate) fn release<B: Backend>(process: &'static Process<B>, home: DeviceId) -> Outcome<u32> {
    let place = home.server().place();
    let releases = &process.communicators.releases;
    if let Some((_, known)) = releases.lock().iter().find(|(of, _)| *of == place) {
        return Ok(*known);
    }
    let asked = crate::profile::waited(|| process.backend.collectives_release(home));
    let (release, failure) = asked?;
    if release == 0 {
        return Err(Failure::new(result::SYSTEM_ERROR, failure));
    }
    releases.lock().push((place, release));
    Ok(release)
}

/// A context has ended: its communicators are no more.
pub(crate) fn forget(front: &'static Front, ctx: ContextId) {
    front.communicators.table.remove_where(|comm| comm.ctx == ctx);
}

/// A call that waits for no other rank, in no group: what it gives.
pub(crate) fn alone<B: Backend>(
    process: &'static Process<B>,
    comm: &Arc<Comm>,
    call: CommCall,
) -> Outcome<u64> {
    let running = running::begin(process, comm.ctx, vec![call])?;
    let values = running.wait(process, std::slice::from_ref(comm), None)?;
    Ok(values.first().copied().unwrap_or(0))
}
