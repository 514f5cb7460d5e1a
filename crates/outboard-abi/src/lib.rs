//! C types of cuda.h and nvml.h 13.0: names, sizes, values. No logic.
//!
//! Everything is extracted from the headers by `cargo xtask facts`; enums are newtypes over their C
//! integer, since a program may pass any value.

#[rustfmt::skip]
mod generated;

/// The types of nvml.h.
#[rustfmt::skip]
pub mod nvml;

pub use generated::*;
