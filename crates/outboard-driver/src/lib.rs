//! Loads a CUDA driver library into a table of functions, and describes its devices.
#![warn(missing_docs, clippy::missing_errors_doc)]
// Each driver call is unsafe. What makes it sound is that handles and addresses were looked up,
// which the callers of `call!` see to.
#![allow(clippy::macro_metavars_in_unsafe)]

pub mod nccl;
pub mod nvml;
mod snapshot;

mod generated {
    pub(crate) mod table;
}

use std::path::{Path, PathBuf};

use outboard_abi::CUresult;

pub use generated::table::Table;
pub use snapshot::platform;

/// A loaded driver library. It stays loaded until the process ends: drivers do not like to be
/// unloaded.
#[derive(Clone, Copy)]
pub struct Library {
    /// Its functions.
    pub table: Table,
}

/// Why a driver library is of no use.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be loaded.
    #[error("cannot load the driver library {path}: {error}")]
    Load {
        /// The file.
        path: PathBuf,
        /// What the loader said.
        error: libloading::Error,
    },
    /// The file is not a driver library.
    #[error("{0} is not a CUDA driver library: it has no cuInit")]
    NotADriver(PathBuf),
    /// The library lacks a function that cannot be done without.
    #[error("the driver library has no {0}")]
    Lacks(&'static str),
    /// A call that describes the devices failed.
    #[error("{function} of the driver library failed with error {}", .error.0)]
    Call {
        /// The function.
        function: &'static str,
        /// Its error.
        error: CUresult,
    },
}

impl Library {
    /// Loads the library at `path`, or found by the loader if `path` is a bare name.
    ///
    /// # Safety
    /// The file is a CUDA driver library, whose initialisers this runs.
    ///
    /// # Errors
    /// [`LoadError::Load`] if the loader does not load the file, [`LoadError::NotADriver`] or
    /// [`LoadError::Lacks`] if functions are missing.
    pub unsafe fn load(path: &Path) -> Result<Library, LoadError> {
        // SAFETY: by the contract above.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|error| LoadError::Load { path: path.to_owned(), error })?;
        let find = |name: &std::ffi::CStr| {
            // SAFETY: the symbol is taken for the address that it is.
            unsafe { library.get::<*const core::ffi::c_void>(name.to_bytes_with_nul()) }
                .map_or(core::ptr::null(), |symbol| *symbol)
        };
        // SAFETY: a driver library's symbols are the functions of those names.
        let table = unsafe { Table::load(find) };
        std::mem::forget(library);
        if table.cuInit.is_none() {
            return Err(LoadError::NotADriver(path.to_owned()));
        }
        Ok(Library { table })
    }
}

/// `Err` for what is not `CUDA_SUCCESS`.
///
/// # Errors
/// `status` itself.
pub fn check(status: CUresult) -> Result<(), CUresult> {
    if status == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(status) }
}

/// Calls a function of a [`Table`]: `Err` with its error, or with `CUDA_ERROR_NOT_SUPPORTED` if the
/// library lacks it.
#[macro_export]
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $table.$function {
            // SAFETY: the arguments are as cuda.h says; see each use.
            Some(function) => $crate::check(unsafe { function($($argument),*) }),
            None => Err(::outboard_abi::CUresult::CUDA_ERROR_NOT_SUPPORTED),
        }
    };
}
