//! How much a client may send.

/// The longest source, and the longest path below one, in bytes.
pub const LONGEST_TEXT: usize = 4096;
