//! The entry points, by their families, with the names and the signatures of cuda.h.
//!
//! Only the exports, the private tables and other entry points call them: code that several
//! families use is in the modules below.

pub mod array;
pub mod capture;
pub mod checkpoint;
pub mod collectives;
pub mod context;
pub mod copy;
pub mod coredump;
pub mod device;
pub mod event;
pub(crate) mod files;
pub mod function;
pub mod graph;
pub mod green;
pub mod host;
pub mod init;
pub mod ipc;
pub mod launch;
pub mod library;
pub mod link;
pub mod logs;
pub mod managed;
pub mod memory;
pub mod memset;
pub(crate) mod message;
pub mod module;
pub mod occupancy;
pub mod peer;
pub mod pointer;
pub mod pool;
pub mod profiler;
pub mod reference;
pub mod stream;
pub mod tensormap;
pub mod texture;
pub mod vmm;
