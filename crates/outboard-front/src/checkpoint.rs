//! Suspending other processes, where the back end can.

/// A step of `cuCheckpointProcess*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointStep {
    /// Nothing is queued from here on.
    Lock,
    /// Memory leaves the device.
    Checkpoint,
    /// Memory comes back.
    Restore,
    /// Work continues.
    Unlock,
    /// Only asks how it is.
    State,
}
