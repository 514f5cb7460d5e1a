//! What is counted of memory that is tracked.

/// What moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Touches that were noticed.
    pub(crate) faults: u64,
    /// Bytes from the device.
    pub(crate) fetched: u64,
    /// Bytes to the device.
    pub(crate) pushed: u64,
}
