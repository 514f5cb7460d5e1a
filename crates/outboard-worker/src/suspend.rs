//! Suspending and resuming the GPU side of a worker, by the driver's own functions. A process of
//! its own does it: not the worker, and not the supervisor, which loads no driver.

use std::path::Path;

use outboard_abi::{CUcheckpointLockArgs, CUprocessState, CUresult};
use outboard_control::suspension::Action;
use outboard_driver::{Library, Table, call};

/// How long a worker's queued work may take to end before it is left alone, in milliseconds.
const LOCK_MS: u32 = 3000;

/// Suspends or resumes a process of this user.
///
/// # Safety
/// The file is a CUDA driver library, whose initialisers this runs.
pub unsafe fn run(driver: &Path, action: Action, process: u32) -> Result<(), String> {
    // SAFETY: the caller's promise.
    let library = unsafe { Library::load(driver) }.map_err(|error| error.to_string())?;
    let table = &library.table;
    let process = i32::try_from(process).map_err(|_| format!("there is no process {process}"))?;
    // Not every driver asks for it; one that cannot start says so in what follows.
    let _ = call!(table, cuInit(0));
    let failed = |step: &str| {
        let step = step.to_owned();
        move |error: CUresult| {
            format!("the driver could not {step} process {process}: error {}", error.0)
        }
    };
    match action {
        Action::Suspend => {
            lock(table, process).map_err(failed("lock"))?;
            call!(table, cuCheckpointProcessCheckpoint(process, core::ptr::null_mut())).map_err(
                |error| {
                    // As it was, so that its client notices nothing.
                    let _ = call!(table, cuCheckpointProcessUnlock(process, core::ptr::null_mut()));
                    failed("checkpoint")(error)
                },
            )
        }
        // A server that was killed may have left it anywhere between.
        Action::Resume => {
            let mut state = CUprocessState::CU_PROCESS_STATE_RUNNING;
            let asked = call!(table, cuCheckpointProcessGetState(process, &raw mut state));
            if asked.is_ok() && state == CUprocessState::CU_PROCESS_STATE_RUNNING {
                return Ok(());
            }
            if asked.is_err() || state != CUprocessState::CU_PROCESS_STATE_LOCKED {
                call!(table, cuCheckpointProcessRestore(process, core::ptr::null_mut()))
                    .map_err(failed("restore"))?;
            }
            call!(table, cuCheckpointProcessUnlock(process, core::ptr::null_mut()))
                .map_err(failed("unlock"))
        }
    }
}

fn lock(table: &Table, process: i32) -> Result<(), CUresult> {
    let mut args = CUcheckpointLockArgs { timeoutMs: LOCK_MS, reserved0: 0, reserved1: [0; 7] };
    call!(table, cuCheckpointProcessLock(process, &raw mut args))
}
