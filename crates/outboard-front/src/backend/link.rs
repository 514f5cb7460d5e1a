//! What the linker needs of a device.

use super::{ContextId, JitLog, JitOptions, ObjectId, Result};

/// One input of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkInput<'a> {
    /// `CUjitInputType`.
    pub kind: u32,
    /// The bytes, as the program gave them.
    pub data: &'a [u8],
    /// What messages call it.
    pub name: &'a str,
    /// Options for this input alone.
    pub options: &'a JitOptions,
}

/// The part of a [`Backend`](super::Backend) for the linker.
pub trait Linking: Sized {
    /// `cuLinkCreate`. Call.
    fn link_create(&self, ctx: ContextId, link: ObjectId, options: &JitOptions) -> Result<()>;
    /// Adds an input. `log` is filled whether it works or not. Call.
    fn link_add(&self, ctx: ContextId, link: ObjectId, input: LinkInput<'_>, log: &mut JitLog) -> Result<()>;
    /// Links; the image, which [`Backend::module_load`](super::Backend::module_load) takes. `log` is filled whether it works or not. Call.
    fn link_complete(&self, ctx: ContextId, link: ObjectId, log: &mut JitLog) -> Result<Vec<u8>>;
    /// Ends the link. Posted.
    fn link_destroy(&self, ctx: ContextId, link: ObjectId) -> Result<()>;
}
