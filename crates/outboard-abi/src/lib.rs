//! C types of cuda.h and nvml.h 13.0, and of nccl.h 2.32: names, sizes, values. No logic. Beside
//! them, the private tables of Outboard's own libraries.
//!
//! All but `nvml_13_2` and `own_tables` is extracted from the headers by `cargo xtask facts`; enums
//! are newtypes over their C integer, since a program may pass any value. Generated items have no
//! docs of their own: NVIDIA's manuals of the driver API and of NVML describe them under the same
//! names.
#![warn(missing_docs, clippy::missing_errors_doc)]

#[rustfmt::skip]
mod generated;

/// The types of nccl.h.
#[rustfmt::skip]
pub mod nccl;

/// The types of nvml.h.
#[rustfmt::skip]
pub mod nvml;

pub mod nvml_13_2;
pub mod own_tables;

pub use generated::*;
