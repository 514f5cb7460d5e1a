//! RDMA adapters by the *verbs* of rdma-core: `libibverbs.so.1`, which is loaded at the first use
//! and need not be installed.
//!
//! [`names`] lists devices, [`Device::open`] opens one, [`Device::endpoint`] chooses its port. Of
//! a device are made a [`Domain`], memory in it ([`Region`], [`Borrowed`]), queues that tell what
//! has been done ([`Queue`], with a descriptor to wait for: [`Channel`]), and reliable connections
//! ([`QueuePair`]). Each keeps alive what it needs, so that all is destroyed in order.
//!
//! The library takes no signal and, as used here, prints nothing.
#![warn(missing_docs, clippy::missing_errors_doc)]

mod completion;
mod device;
mod error;
mod ffi;
mod gid;
mod library;
mod queue_pair;
mod region;
#[cfg(test)]
mod tests;

pub use completion::{Channel, Completion, Queue, WorkError};
pub use device::{Device, Endpoint, Mtu, Port, Reads, names};
pub use error::Error;
pub use gid::{Gid, GidEntry, GidKind};
pub use library::{installed, kernel_has_devices, locked_memory_limit};
pub use queue_pair::{Address, Part, QueuePair, Sizes};
pub use region::{Access, Borrowed, Domain, Region, Remote};
