//! The border between C and Rust.

use std::panic::{AssertUnwindSafe, catch_unwind};

use outboard_abi::CUresult;

use crate::backend::Result;
use crate::process::Front;
use crate::{gone, logs, profile};

/// Runs an entry point, `SYMBOLS[symbol]`, and gives its result to C. A panic, which would be a bug
/// of ours, becomes `CUDA_ERROR_UNKNOWN` instead of ending the program.
#[inline]
pub fn enter(front: &Front, symbol: usize, body: impl FnOnce() -> Result<()>) -> CUresult {
    let outer = if profile::is_off() { None } else { profile::entered(symbol) };
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(CUresult::CUDA_ERROR_UNKNOWN));
    let result = outcome.err().unwrap_or(CUresult::CUDA_SUCCESS);
    if result != CUresult::CUDA_SUCCESS {
        logs::failed(&front.logs, symbol, result, gone::is_forked());
    } else {
        logs::succeeded(&front.logs, gone::is_forked);
    }
    if let Some(outer) = outer {
        profile::left(&outer, result);
    }
    gone::before_return();
    result
}

/// The entry point `SYMBOLS[symbol]` is not there.
#[cold]
pub fn refuse(front: &Front, symbol: usize) -> CUresult {
    enter(front, symbol, || Err(CUresult::CUDA_ERROR_NOT_SUPPORTED))
}
