//! The part of a CUDA driver library that does not depend on where its devices are.
//!
//! Outboard has two driver libraries: `libcuda.so.1`, whose devices are on a server, and the
//! software device. Both use this crate: the exported entry points and `cuGetProcAddress`, the
//! private tables, the stack of current contexts, primary contexts, handles, the map of
//! allocations, libraries and kernels, and the checks that CUDA makes before it queues anything.
//! Below it each library implements [`backend::Backend`], with plain numbers for objects and
//! addresses.
//!
//! Invariants:
//! - A handle given to a program is never a pointer: a look-up detects a freed or foreign one.
//! - No entry point panics across the C border, writes to the program's output, or works in a
//!   forked child.
//! - Nothing here depends on which back end it runs on.
#![warn(missing_docs, clippy::missing_errors_doc)]
// Entry points keep the names and the signatures of cuda.h, and have one shape: generic over the
// driver library, whether they need it or not.
#![allow(non_snake_case, clippy::extra_unused_type_parameters, clippy::too_many_arguments)]

mod addresses;
mod array;
pub mod backend;
mod border;
#[doc(hidden)]
pub mod calls;
mod capture;
mod checkpoint;
mod collectives;
mod context;
mod copy;
mod copy_queue;
mod coredump;
mod device;
mod dropped;
mod ending;
pub mod entry;
mod errors;
mod event;
pub mod fault;
mod files;
mod function;
mod gone;
mod graph;
mod green;
mod handles;
mod host_call;
mod image;
mod integrity;
mod ipc;
mod jit;
mod launch;
mod launch_attributes;
mod launch_check;
mod library;
mod link;
mod logs;
mod managed;
mod memory;
mod memory_operations;
mod module;
mod occupancy;
mod order;
mod parts;
mod peer;
mod pool;
pub mod proc_address;
mod process;
pub mod profile;
mod recent;
mod reference;
mod refusals;
pub mod several;
mod spread;
mod state;
mod storage;
pub mod stream;
mod tables;
#[cfg(test)]
mod tests;
mod texture;
mod variables;
mod visible;
mod vmm;

mod generated {
    pub(crate) mod backend;
    pub(crate) mod collectives;
    pub(crate) mod symbols;
    #[macro_use]
    mod exports;
    #[cfg(test)]
    pub(crate) mod recorder;
}

pub use gone::is_forked;
pub use logs::warn;
#[doc(hidden)]
pub use outboard_abi as abi;
pub use process::{Front, Library, Process};
