//! What green contexts need of a device: shares of its multiprocessors, and work that keeps to a share.

use outboard_abi::CUstream_flags_enum;

use super::{ContextId, ObjectId, Result};

/// A `CUdevResource`: what is public of it, and bytes that mean something to the driver that made it alone.
pub type Share = [u8; 144];

/// What came of a split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// How many groups there are.
    pub count: u32,
    /// They, unless the split was only tried.
    pub groups: Vec<Share>,
    /// What is left.
    pub remaining: Option<Share>,
}

/// How a resource is to be split.
#[derive(Clone, Copy, Debug)]
pub struct SplitRequest<'a> {
    /// What is split.
    pub input: &'a Share,
    /// How many groups there may be; `None` only tries how many there could be.
    pub groups: Option<u32>,
    /// Whether to tell what is left.
    pub remaining: bool,
    /// `CUdevSmResourceSplit_flags`.
    pub flags: u32,
    /// Multiprocessors of a group, at least.
    pub least: u32,
}

/// The part of a [`Backend`](super::Backend) for green contexts. `ctx` is the primary context of their device.
pub trait GreenContexts: Sized {
    /// What a device has of a `CUdevResourceType`. Call.
    fn device_resource(&self, device: u32, kind: u32) -> Result<Share>;
    /// What a context, or a green one of it, has. Call.
    fn context_resource(&self, ctx: ContextId, green: Option<ObjectId>, kind: u32) -> Result<Share>;
    /// `cuDevSmResourceSplitByCount`. Call.
    fn resource_split(&self, request: SplitRequest<'_>) -> Result<Split>;
    /// `cuDevResourceGenerateDesc`; the descriptor lasts as long as the process. Call.
    fn resource_describe(&self, desc: ObjectId, resources: &[Share]) -> Result<()>;
    /// Makes a green context. Call.
    fn green_open(&self, ctx: ContextId, green: ObjectId, desc: ObjectId, flags: u32) -> Result<()>;
    /// Ends it. Call.
    fn green_close(&self, ctx: ContextId, green: ObjectId) -> Result<()>;
    /// Makes a stream in it; otherwise as [`Backend::stream_create`](super::Backend::stream_create). Posted.
    fn green_stream(&self, ctx: ContextId, green: ObjectId, stream: ObjectId, flags: u32, priority: i32) -> Result<()>;
    /// Makes the stream that stands in for a green context's default stream: streams there that are not non-blocking and this one wait for each other,
    /// where the device can see to it. Posted.
    fn green_default_stream(&self, ctx: ContextId, green: ObjectId, stream: ObjectId) -> Result<()> {
        self.green_stream(ctx, green, stream, CUstream_flags_enum::CU_STREAM_NON_BLOCKING.0, 0)
    }
    /// Records an event behind all work of a context, or of a green one. Posted.
    fn context_record(&self, ctx: ContextId, green: Option<ObjectId>, event: ObjectId) -> Result<()>;
    /// Lets all work to come of a context, or of a green one, wait for an event. Posted.
    fn context_wait(&self, ctx: ContextId, green: Option<ObjectId>, event: ObjectId) -> Result<()>;
}
