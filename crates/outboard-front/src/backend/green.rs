//! Types of the back end's methods for green contexts: shares of a device's multiprocessors.

/// A `CUdevResource`: what is public of it, and bytes that mean something to the driver that made
/// it alone.
pub type Share = [u8; 144];

/// What came of a split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// How many groups there are.
    pub count: u32,
    /// They, unless the split was only tried.
    pub groups: Vec<Share>,
    /// The remaining multiprocessors.
    pub remaining: Option<Share>,
}

/// How a resource is to be split.
#[derive(Clone, Copy, Debug)]
pub struct SplitRequest<'a> {
    /// The multiprocessors to split.
    pub input: &'a Share,
    /// How many groups there may be; `None` only tries how many there could be.
    pub groups: Option<u32>,
    /// Whether to return the remaining multiprocessors.
    pub remaining: bool,
    /// `CUdevSmResourceSplit_flags`.
    pub flags: u32,
    /// Multiprocessors of a group, at least.
    pub least: u32,
}
