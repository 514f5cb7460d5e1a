//! Byte streams between client and server: the transport trait, its conformance suite, TCP, TLS
//! over it, shared memory, Unix sockets, vsock, RDMA, memory of a virtual machine and its host.
//!
//! A [`Transport`] makes [`Stream`]s. A stream never blocks in `read` and `write`; [`Stream::wait`]
//! does, so that the caller decides how long to spin before it. The [`conformance`] suite states
//! what every transport owes its callers.
#![warn(missing_docs, clippy::missing_errors_doc)]

mod address;
mod any;
mod bell;
mod blocking;
pub mod client_key;
pub mod conformance;
mod descriptor;
pub mod host;
pub mod ivshmem;
pub mod lane;
mod locks;
mod memory;
mod met;
pub mod page;
pub mod passing;
pub mod pipe;
mod random;
pub mod rdma;
pub mod reserved;
mod ring;
mod rings;
pub mod segment;
mod settling;
pub mod shm;
mod spin;
mod stream;
pub mod tcp;
pub mod tls;
mod touch;
mod transport;
pub mod unix;
pub mod vsock;
mod waker;

pub use address::{Address, AddressError, DEFAULT_PORT, Endpoint, VsockAddress};
pub use any::{Any, from_descriptor};
pub use bell::{Bell, Signal};
pub use blocking::{PEER_CHECK, read_exact, read_exact_unless_silent, read_exact_until, write_all};
pub use descriptor::abandon;
pub use memory::Memory;
pub use random::random;
pub use settling::{Outcome, stay};
pub use spin::{Patience, Spin, SpinLimits};
pub use stream::{Capabilities, Interest, Readiness, Stream};
pub use transport::{Listener, Transport};
pub use waker::Waker;
