//! Kinds of errors that clients are told.

use outboard_abi::CUresult;

/// Names of kinds of errors, as [`ErrorKind`] numbers them.
pub const ERRORS: [&str; 5] = ["memory", "invalid", "unsupported", "fault", "other"];

/// What kind of error a client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// There was no memory.
    Memory,
    /// What was asked made no sense, or named something that is not there.
    Invalid,
    /// The device does not do this.
    Unsupported,
    /// The context can no longer be used.
    Broken,
    /// Any other error.
    Other,
}

impl ErrorKind {
    /// The kind of an error; `None` for what is none.
    pub(super) fn of(error: CUresult) -> Option<ErrorKind> {
        Some(match error {
            CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_NOT_READY => return None,
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => ErrorKind::Memory,
            CUresult::CUDA_ERROR_INVALID_VALUE
            | CUresult::CUDA_ERROR_INVALID_CONTEXT
            | CUresult::CUDA_ERROR_INVALID_HANDLE
            | CUresult::CUDA_ERROR_INVALID_DEVICE
            | CUresult::CUDA_ERROR_INVALID_IMAGE
            | CUresult::CUDA_ERROR_INVALID_PTX
            | CUresult::CUDA_ERROR_NOT_FOUND => ErrorKind::Invalid,
            CUresult::CUDA_ERROR_NOT_SUPPORTED
            | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => ErrorKind::Unsupported,
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_LAUNCH_FAILED => ErrorKind::Broken,
            _ => ErrorKind::Other,
        })
    }
}
