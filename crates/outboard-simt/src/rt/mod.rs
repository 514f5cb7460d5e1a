//! Runtime functions that compiled code calls.
//!
//! All are `extern "C"` and none panics or unwinds. Those that may fault return a status or a null
//! result, with the fault recorded in the block. A runtime function that suspends its thread holds
//! nothing that needs dropping while it does, because a faulting block abandons its suspended
//! threads.

pub(crate) mod access;
pub(crate) mod atomics;
pub(crate) mod bits;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod heap;
pub(crate) mod sync;
pub(crate) mod syscalls;
pub(crate) mod texture;
