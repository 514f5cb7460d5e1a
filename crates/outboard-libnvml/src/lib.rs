//! `libnvidia-ml.so.1`: NVML for the devices of a session, or for the software device of the process.
//!
//! Questions are answered by the server's own NVML, or of what the session knows; what would change
//! the server's GPU is refused. Which is which stands in `api/nvml/`, from which the exports are
//! generated.

mod border;
mod device;
mod error;
mod exports;
mod local;
mod machine;
mod pci;
mod query;
mod session;
mod source;
mod tables;

/// Says whose library this is: a server with it in its library path must not ask itself.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static outboard_nvml: u8 = 1;
