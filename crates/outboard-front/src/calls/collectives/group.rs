//! Groups.

use core::ffi::c_void;

use super::enter;
use crate::backend::Backend;
use crate::collectives::{Failure, group};
use crate::process::Process;

pub unsafe fn ncclGroupStart<B: Backend>(process: &'static Process<B>) -> u32 {
    enter(process, "ncclGroupStart", || {
        group::start();
        Ok(())
    })
}

pub unsafe fn ncclGroupEnd<B: Backend>(process: &'static Process<B>) -> u32 {
    enter(process, "ncclGroupEnd", || group::end(process))
}

/// Would tell how long the group will take.
pub unsafe fn ncclGroupSimulateEnd<B: Backend>(
    process: &'static Process<B>,
    _info: *mut c_void,
) -> u32 {
    enter(process, "ncclGroupSimulateEnd", || {
        let failure =
            Failure::usage("Outboard does not simulate groups; the group's calls are dropped");
        group::abandon(process, &failure);
        Err(failure)
    })
}
