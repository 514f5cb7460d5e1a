//! Streams through memory that a virtual machine and its host share: QEMU's device
//! `ivshmem-plain`, which shows the machine a file of the host as a PCI device's memory.
//!
//! A [region](region) is that file, of which each session gets a [part](Part) with room for some
//! connections. Each of the session's connections may [move](move_to) its bytes there; the
//! connection itself stays, and carries a byte whenever a side that sleeps is to look again.

mod device;
mod handing;
mod part;
mod region;
mod stream;

pub use device::{Device, OFF, UNKNOWN};
pub use handing::{move_to, take_up};
pub use part::Part;
pub use region::{Allotted, Id, LEAST, Region};

#[cfg(test)]
mod tests;
