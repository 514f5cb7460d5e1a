//! C types of cuda.h 13.0: names, sizes, values. No logic.
//!
//! Everything is extracted from the header by `cargo xtask facts`; enums are newtypes over their C integer, since a program may pass
//! any value.

#[rustfmt::skip]
mod generated;

pub use generated::*;
