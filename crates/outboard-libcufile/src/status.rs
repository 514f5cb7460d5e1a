//! Errors of cuFile.

/// `CUfileError_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(unreachable_pub)]
pub struct Status {
    pub(crate) error: u32,
    /// The error of the driver library, beside [`code::CUDA_DRIVER_ERROR`].
    pub(crate) cuda: u32,
}

/// Values of `CUfileOpError`.
pub(crate) mod code {
    pub(crate) const DRIVER_NOT_INITIALIZED: u32 = 5001;
    pub(crate) const DRIVER_UNSUPPORTED_LIMIT: u32 = 5003;
    pub(crate) const PLATFORM_NOT_SUPPORTED: u32 = 5007;
    pub(crate) const IO_NOT_SUPPORTED: u32 = 5008;
    pub(crate) const CUDA_DRIVER_ERROR: u32 = 5011;
    pub(crate) const CUDA_POINTER_INVALID: u32 = 5012;
    pub(crate) const INVALID_MAPPING_RANGE: u32 = 5017;
    pub(crate) const INVALID_FILE_TYPE: u32 = 5018;
    pub(crate) const INVALID_VALUE: u32 = 5022;
    pub(crate) const MEMORY_ALREADY_REGISTERED: u32 = 5023;
    pub(crate) const DRIVER_ALREADY_OPEN: u32 = 5026;
    pub(crate) const HANDLE_NOT_REGISTERED: u32 = 5027;
    pub(crate) const HANDLE_ALREADY_REGISTERED: u32 = 5028;
    pub(crate) const INTERNAL_ERROR: u32 = 5030;
    pub(crate) const GETNEWFD_FAILED: u32 = 5031;
    pub(crate) const BATCH_SUBMIT_FAILED: u32 = 5035;
    pub(crate) const GPU_MEMORY_PINNING_FAILED: u32 = 5036;
    pub(crate) const BATCH_FULL: u32 = 5037;
    pub(crate) const ASYNC_NOT_SUPPORTED: u32 = 5038;
}

/// Why a function fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A value of `CUfileOpError`.
    Code(u32),
    /// An error of the driver library.
    Cuda(u32),
    /// An error number of a file.
    File(i32),
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// An argument that cannot be.
pub(crate) const INVALID: Failure = Failure::Code(code::INVALID_VALUE);

/// [`INVALID`] unless `condition`.
pub(crate) fn require(condition: bool) -> Result<()> {
    if condition { Ok(()) } else { Err(INVALID) }
}

/// `CUDA_ERROR_INVALID_VALUE`, which the driver library has for memory that it does not know.
const CUDA_INVALID_VALUE: u32 = 1;

impl Failure {
    /// As functions return it that give a status.
    pub(crate) fn status(self) -> Status {
        match self {
            Failure::Cuda(error) => Status { error: code::CUDA_DRIVER_ERROR, cuda: error },
            Failure::Code(error) => Status { error, cuda: 0 },
            Failure::File(_) => Status { error: code::INTERNAL_ERROR, cuda: 0 },
        }
    }

    /// As functions return it that give a number of bytes: a value of `CUfileOpError` below 0; for
    /// a file -1, and its error number beside it.
    pub(crate) fn below_zero(self) -> (isize, Option<i32>) {
        match self {
            Failure::Code(error) => (-(error as isize), None),
            Failure::Cuda(CUDA_INVALID_VALUE) => (-(code::CUDA_POINTER_INVALID as isize), None),
            Failure::Cuda(_) => (-(code::CUDA_DRIVER_ERROR as isize), None),
            Failure::File(error) => (-1, Some(error)),
        }
    }

    /// As events of batches and results of streams have it, which have no error number beside them.
    pub(crate) fn result(self) -> isize {
        match self.below_zero() {
            (_, Some(error)) => -(error as isize),
            (code, None) => code,
        }
    }
}
