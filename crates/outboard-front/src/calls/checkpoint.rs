//! Suspending other processes, where the back end can.

use core::ffi::c_int;

use outboard_abi::{
    CUcheckpointCheckpointArgs, CUcheckpointLockArgs, CUcheckpointRestoreArgs,
    CUcheckpointUnlockArgs, CUprocessState,
};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::checkpoint::CheckpointStep;
use crate::process::Process;

pub unsafe fn cuCheckpointProcessLock<B: Backend>(
    process: &'static Process<B>,
    pid: c_int,
    args: *mut CUcheckpointLockArgs,
) -> Result<()> {
    // SAFETY: null, or the program's structure.
    let limit = unsafe { args.as_ref() }.map_or(0, |args| args.timeoutMs);
    process.backend.checkpoint(pid, CheckpointStep::Lock, limit).map(drop)
}

pub unsafe fn cuCheckpointProcessCheckpoint<B: Backend>(
    process: &'static Process<B>,
    pid: c_int,
    _args: *mut CUcheckpointCheckpointArgs,
) -> Result<()> {
    process.backend.checkpoint(pid, CheckpointStep::Checkpoint, 0).map(drop)
}

pub unsafe fn cuCheckpointProcessRestore<B: Backend>(
    process: &'static Process<B>,
    pid: c_int,
    _args: *mut CUcheckpointRestoreArgs,
) -> Result<()> {
    process.backend.checkpoint(pid, CheckpointStep::Restore, 0).map(drop)
}

pub unsafe fn cuCheckpointProcessUnlock<B: Backend>(
    process: &'static Process<B>,
    pid: c_int,
    _args: *mut CUcheckpointUnlockArgs,
) -> Result<()> {
    process.backend.checkpoint(pid, CheckpointStep::Unlock, 0).map(drop)
}

pub unsafe fn cuCheckpointProcessGetState<B: Backend>(
    process: &'static Process<B>,
    pid: c_int,
    state: *mut CUprocessState,
) -> Result<()> {
    require(!state.is_null())?;
    let found = process.backend.checkpoint(pid, CheckpointStep::State, 0)?;
    // SAFETY: the program's out parameter.
    unsafe { put(state, CUprocessState(found)) }
}
