//! Errors that a context reports from now on: a fault in a kernel stays until the context is
//! destroyed or reset.

use std::sync::atomic::{AtomicU32, Ordering};

use outboard_abi::CUresult;

use crate::backend::Result;

/// The sticky error of one context; 0 while there is none.
#[derive(Debug, Default)]
pub struct Fault(AtomicU32);

impl Fault {
    /// Keeps `error` unless an earlier one is there.
    pub fn set(&self, error: CUresult) {
        let _ = self.0.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Keeps the error that a call came back with, if it is a sticky one.
    #[inline]
    pub(crate) fn note<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome
            && is_sticky(*error)
        {
            self.set(*error);
        }
        outcome
    }

    /// `Err` with the sticky error, if any.
    ///
    /// # Errors
    /// The sticky error.
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            error => Err(CUresult(error)),
        }
    }

    /// Forgets the error: the context was reset.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Whether CUDA keeps this error until the context ends.
pub fn is_sticky(error: CUresult) -> bool {
    matches!(
        error,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUresult::CUDA_ERROR_CONTAINED
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
    )
}
