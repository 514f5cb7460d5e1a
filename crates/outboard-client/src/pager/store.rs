//! The operations on device memory that the pager uses.

use outboard_front::backend::{ContextId, Result, StreamId, UnifiedPtr};

/// Which memory of the device a region stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Managed memory, in the device's own memory. The host may not use it while kernels run, so
    /// that a page has one writer at a time.
    Managed,
    /// Page-locked memory of the program that kernels use, in page-locked memory of the server.
    /// Both sides may write to a page at the same time.
    Mapped,
}

/// Where a region's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// What kind of memory.
    pub(crate) kind: Kind,
    /// The context that owns it.
    pub(crate) ctx: ContextId,
}

/// The device's side of tracked memory. Its addresses are those of the program.
pub(crate) trait Store: Send + Sync {
    /// Reads bytes as they are now. Whether they differ from what was there before; of managed
    /// memory, that is taken to be so. With a `seed`, mapped memory is likely not to: its sum with
    /// that seed is asked for first.
    ///
    /// # Safety
    /// `to` is valid for reads and writes of `bytes`.
    unsafe fn fetch(
        &self,
        home: Home,
        address: UnifiedPtr,
        to: *mut u8,
        bytes: usize,
        seed: Option<u64>,
    ) -> Result<bool>;

    /// Writes bytes: for managed memory before all work that [`Store::join`] is called for
    /// afterwards, for mapped memory at once.
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes`.
    unsafe fn push(
        &self,
        home: Home,
        address: UnifiedPtr,
        from: *const u8,
        bytes: usize,
    ) -> Result<()>;

    /// Writes those 4-byte words of `data` to mapped memory whose bits in `mask` are set, at once
    /// and each word whole.
    fn patch(&self, home: Home, address: UnifiedPtr, mask: &[u8], data: &[u8]) -> Result<()>;

    /// Of several places of mapped memory (address, length, and sum for the seed), whether the
    /// device has what has that sum.
    fn compare(
        &self,
        ctx: ContextId,
        seed: u64,
        known: &[(UnifiedPtr, u32, u64)],
    ) -> Result<Vec<bool>>;

    /// Waits until all bytes pushed to managed memory of `home`'s context have arrived.
    fn settle(&self, home: ContextId) -> Result<()>;

    /// Work that is queued in the stream from now on comes behind what was pushed to managed memory
    /// of `home`'s context.
    fn join(&self, home: ContextId, ctx: ContextId, stream: StreamId) -> Result<()>;

    /// Gives up mapped memory that was opened at these addresses, once no work uses it any more.
    fn close(&self, home: Home, address: UnifiedPtr, bytes: u64);
}
