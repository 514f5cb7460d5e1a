//! What memory that host and device both touch: mapped and managed need of a device.

use super::{Backend, ContextId, Result, Stream};

/// The part of a [`Backend`] for memory that host and device both touch: mapped and managed. Its addresses are the same on both sides.
pub trait Managed: Sized {
    /// Allocates managed memory, aligned to 256 at least. Call.
    fn managed_alloc(&self, ctx: ContextId, bytes: u64) -> Result<u64>
    where
        Self: Backend,
    {
        self.memory_alloc(ctx, bytes)
    }

    /// Frees an allocation once the work of the context that is queued before is done. Call.
    fn managed_free(&self, ctx: ContextId, address: u64) -> Result<()>
    where
        Self: Backend,
    {
        self.memory_free(ctx, address)
    }

    /// Once the stream comes to it, moves managed memory to the host (`to_host`) or to the device, where it is wanted next. Posted.
    fn managed_prefetch(&self, ctx: ContextId, address: u64, bytes: u64, to_host: bool, stream: Stream) -> Result<()>;
}
