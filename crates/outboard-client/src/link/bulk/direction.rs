//! Which way transfers go.

/// Which way a transfer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the worker.
    Up,
    /// From the worker.
    Down,
}
