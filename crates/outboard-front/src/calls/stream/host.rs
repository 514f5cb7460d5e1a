//! Functions of the program in a stream's order.

use core::ffi::c_void;

use outboard_abi::{CUhostFn, CUstream, CUstreamCallback};

use crate::backend::{Backend, HostCall, Result};
use crate::border::require;
use crate::process::Process;
use crate::stream;

/// Queues a call of the program's function.
pub(super) unsafe fn launch<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> Result<()> {
    let (here, stream) = stream::find(process, stream)?;
    // SAFETY: the program's function.
    let call = unsafe { HostCall::plain(function, data) }?;
    if let Some(outcome) = crate::capture::host(process, &here, stream, function, data) {
        return outcome;
    }
    here.note(process.backend.host_call(here.id, stream, call))
}

/// Queues a callback. Its flags are for later use, and must be 0.
pub(super) unsafe fn add_callback<B: Backend>(
    process: &'static Process<B>,
    named: CUstream,
    function: CUstreamCallback,
    data: *mut c_void,
    flags: u32,
) -> Result<()> {
    let (here, stream) = stream::resolve(process, named)?;
    require(flags == 0)?;
    // SAFETY: the program's function.
    let call = unsafe { HostCall::with_status(function, named, data) }?;
    here.note(process.backend.host_call(here.id, stream, call))
}
