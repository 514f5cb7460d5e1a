//! Why something about RDMA does not work.

use std::io;

/// Sentences that say what happened, and what to do where somebody can do something.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The library is not there.
    #[error(
        "RDMA is not available: {library} is not installed; install rdma-core (Debian: ibverbs-providers)"
    )]
    NoLibrary {
        /// Its name.
        library: String,
    },
    /// It is there and cannot be used.
    #[error(
        "RDMA is not available: {library} cannot be used ({why}); install rdma-core 32 or later"
    )]
    UnusableLibrary {
        /// Its name.
        library: String,
        /// What the loader says.
        why: String,
    },
    /// The system has no adapter, or does not show it.
    #[error("RDMA is not available: this machine shows no RDMA device (`rdma link` lists them)")]
    NoDevice,
    /// No device has that name.
    #[error("there is no RDMA device `{name}`; this machine has {}", listed(.present))]
    UnknownDevice {
        /// The name.
        name: String,
        /// What there is instead.
        present: Vec<String>,
    },
    /// No port of the device can be used.
    #[error(
        "no port of the RDMA device `{device}` can be used: its link must be up, and have an address if it is Ethernet (`rdma link` shows it)"
    )]
    NoPort {
        /// The device.
        device: String,
    },
    /// Less memory may be locked than is needed.
    #[error(
        "RDMA needs {needed} bytes of locked memory more, and the limit is {limit} (`ulimit -l`, LimitMEMLOCK= of a service): raise it"
    )]
    LockedMemory {
        /// Bytes that were asked for.
        needed: u64,
        /// Bytes that all regions of the process may have together.
        limit: u64,
    },
    /// Memory of the program cannot be lent, since children of a fork would lose it.
    #[error(
        "memory of the program is not registered with RDMA adapters: at a fork, this system would leave it out of the child (Linux 5.12 and rdma-core 35 do not)"
    )]
    LostAtFork,
    /// The library cannot register a dma-buf.
    #[error("the RDMA library registers no dma-buf; install rdma-core 34 or later")]
    NoDmaBuf,
    /// A call of the library failed.
    #[error("{call} failed for the RDMA device `{device}`: {}", io::Error::from_raw_os_error(*.errno))]
    Call {
        /// The library's function.
        call: &'static str,
        /// For which device.
        device: String,
        /// The system's error.
        errno: i32,
    },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::NoLibrary { .. }
            | Error::UnusableLibrary { .. }
            | Error::NoDevice
            | Error::NoDmaBuf
            | Error::LostAtFork => io::ErrorKind::Unsupported,
            Error::UnknownDevice { .. } => io::ErrorKind::NotFound,
            Error::NoPort { .. } => io::ErrorKind::AddrNotAvailable,
            Error::LockedMemory { .. } => io::ErrorKind::OutOfMemory,
            Error::Call { errno, .. } => io::Error::from_raw_os_error(*errno).kind(),
        };
        io::Error::new(kind, error)
    }
}
