//! The functions of `nccl.h`, which Outboard's `libnccl.so.2` calls by a private table.

mod communicator;
mod data;
mod group;
mod information;
mod memory;
mod refused;

use core::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use communicator::*;
pub use data::*;
pub use group::*;
pub use information::*;
pub use memory::*;
pub use refused::*;

use crate::collectives::{Failure, Outcome, group as groups, result};
use crate::process::Front;
use crate::state;

/// Whether NCCL's users have asked it to say what goes wrong.
fn talks() -> bool {
    std::env::var_os("NCCL_DEBUG").is_some_and(|level| level != "VERSION" && level != "NONE")
}

/// Runs a function of NCCL, and gives its result to C. A panic, which would be a bug of ours,
/// becomes `ncclInternalError`.
fn enter(front: &'static Front, name: &str, body: impl FnOnce() -> Outcome<()>) -> u32 {
    if state::is_forked() {
        return result::INVALID_USAGE;
    }
    let caught = catch_unwind(AssertUnwindSafe(body));
    let outcome = caught.unwrap_or_else(|_| {
        Err(Failure::new(result::INTERNAL_ERROR, "Outboard's client library has a fault"))
    });
    let Err(failure) = outcome else { return result::SUCCESS };
    if failure.result != result::IN_PROGRESS {
        let sentence = format!("{name}: {}", failure.sentence);
        front.communicators.errors.add(&sentence);
        if talks() {
            let sentence = outboard_wire::plain_lines(&sentence);
            outboard_threads::say(format_args!("NCCL WARN {sentence}"));
        }
        groups::failed(&failure);
    }
    failure.result
}

/// Stores through an out parameter.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn put<T>(out: *mut T, value: T) -> Outcome<()> {
    if out.is_null() {
        return Err(Failure::argument("an out parameter is null"));
    }
    // SAFETY: not null, and the caller says it is then valid.
    unsafe { out.write(value) };
    Ok(())
}

/// `ncclComm_t`: a handle.
pub type Comm = *mut c_void;
/// `const char*`.
pub type Text = *const c_char;
