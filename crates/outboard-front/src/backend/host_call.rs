//! What functions of the program that a stream calls need of a device.

use super::{ContextId, Result, Stream};

pub use crate::host_call::HostCall;

/// The part of a [`Backend`](super::Backend) for functions of the program that a stream calls.
pub trait HostCalls: Sized {
    /// Calls a function of the program, on a thread of the library's, when the stream comes to it; later work of the stream waits for it.
    /// Functions of one context never run at the same time. What the device did before is there: bytes in page-locked memory, text that kernels
    /// printed. Posted.
    fn host_call(&self, ctx: ContextId, stream: Stream, call: HostCall) -> Result<()>;
}
