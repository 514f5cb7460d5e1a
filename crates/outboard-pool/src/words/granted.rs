//! What somebody gets.

use super::{DeviceUuid, ServerName, Use};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a lease, unique in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseNumber(pub u64);

impl fmt::Display for LeaseNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One device, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Granted {
    /// The device's server.
    pub server: ServerName,
    /// The device.
    pub device: DeviceUuid,
    /// Memory, in bytes. All of an exclusive device's.
    pub memory_bytes: u64,
    /// Its multiprocessors, and whether others have some too.
    pub usage: Use,
}
