//! Functions that are written by hand, each under its C name.
//!
//! Each is `unsafe` for the same reason: its arguments must be those that NVML wants.
#![allow(non_snake_case, clippy::missing_safety_doc)]

mod affinity;
mod event;
mod handles;
mod nothing;
mod process;
mod system;

pub(crate) use affinity::*;
pub(crate) use event::*;
pub(crate) use handles::*;
pub(crate) use nothing::*;
pub(crate) use process::*;
pub(crate) use system::*;
