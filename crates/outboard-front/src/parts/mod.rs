//! The front's state of a process: the parts of [`Front`](crate::process::Front), none of which
//! depends on the whole.

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod collectives;
pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod files;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod green;
pub(crate) mod ipc;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod managed;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod occupancy;
pub(crate) mod peer;
pub(crate) mod pool;
pub(crate) mod reference;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod tensors;
pub(crate) mod texture;
pub(crate) mod vmm;
