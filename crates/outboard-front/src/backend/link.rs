//! Types of the back end's methods for the linker.

use super::JitOptions;

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
