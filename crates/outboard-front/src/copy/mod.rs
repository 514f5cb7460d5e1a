//! Copies: the entry points. What they describe is queued in [`path`].

pub(crate) mod batch;
pub(crate) mod describe;
pub(crate) mod path;

use outboard_abi::CUstream;

use crate::backend::{Backend, Result};
use crate::process::Process;
use crate::stream::{DefaultStream, find, resolve_default};

pub(crate) use describe::Structure;
pub(crate) use path::{Copy, End, Operand, Queue, Wait};

/// Queues a copy in the stream that a call names.
///
/// # Safety
/// As [`Queue::submit`].
pub(crate) unsafe fn queue<B: Backend>(process: &'static Process<B>, stream: CUstream, copy: &Copy) -> Result<()> {
    let (here, stream) = find(process, stream)?;
    // SAFETY: by the contract above.
    unsafe { Queue { here, stream, wait: Wait::Asynchronous }.submit(process, copy) }
}

/// Queues a copy in the default stream that a call means, and waits as far as CUDA says.
///
/// # Safety
/// As [`Queue::submit`].
pub(crate) unsafe fn queue_default<B: Backend>(
    process: &'static Process<B>,
    default: DefaultStream,
    copy: &Copy,
) -> Result<()> {
    let (here, stream) = resolve_default(process, default)?;
    // SAFETY: by the contract above.
    unsafe { Queue { here, stream, wait: Wait::Synchronous }.submit(process, copy) }
}
