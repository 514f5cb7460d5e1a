//! Where the libraries of this installation are.

use std::path::PathBuf;

use miette::{Context, IntoDiagnostic, Result};
use outboard_wire::Code;

use crate::failure::Failure;

/// The software device as a driver library.
pub(crate) const CPU_DRIVER: &str = "liboutboard-cpu.so";

/// `lib/outboard` beside the folder of this executable. `OUTBOARD_LIB` names another place.
fn lib_dir() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("OUTBOARD_LIB") {
        return Ok(PathBuf::from(dir));
    }
    let executable = std::env::current_exe()
        .into_diagnostic()
        .wrap_err("cannot find out where this program lies")?;
    let prefix = executable.parent().and_then(|bin| bin.parent());
    Ok(prefix.map_or_else(PathBuf::new, |prefix| prefix.join("lib/outboard")))
}

/// A file or folder of the installation; an error if it is not there.
fn installed(name: &str, what: &str) -> Result<PathBuf> {
    let path = lib_dir()?.join(name);
    if path.exists() {
        return Ok(path);
    }
    let help = "install Outboard with its libraries, or set OUTBOARD_LIB to the folder lib/outboard of an installation";
    Err(Failure::new(Code::NotInstalled, format!("{what} is not at {}", path.display()), help)
        .into())
}

/// The folder with the client's `libcuda.so.1`.
pub(crate) fn client_dir() -> Result<PathBuf> {
    Ok(parent(installed("client/libcuda.so.1", "the client library")?))
}

/// The folder with what Python packages need. Other programs do without it.
pub(crate) fn python_dir() -> Option<PathBuf> {
    installed("python", "the folder of Python modules").ok()
}

/// The library that is preloaded for MPI programs.
pub(crate) fn mpi() -> Result<PathBuf> {
    installed("liboutboard-mpi.so", "the library for MPI programs")
}

/// The folder with the software device as `libcuda.so.1`.
pub(crate) fn cpu_dir() -> Result<PathBuf> {
    Ok(parent(installed("cpu/libcuda.so.1", "the software device")?))
}

/// The software device as a driver library for the server.
pub(crate) fn cpu_driver() -> Result<PathBuf> {
    installed(CPU_DRIVER, "the software device")
}

fn parent(path: PathBuf) -> PathBuf {
    path.parent().map(PathBuf::from).unwrap_or(path)
}
