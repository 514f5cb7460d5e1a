//! The types that fields of messages may have beyond plain ones.

pub use crate::jit::{JitLog, JitOptions};
pub use crate::platform::KernelInfo;
