//! The process that serves one client.
//!
//! The dispatcher takes commands in the client's one order and gives them to the driver library.
//! Whatever may wait for the device is waited for by a helper thread, so that the commands behind
//! it go on. Names on the wire are the client's; every one is looked up, and every device address
//! is checked against what the session has allocated.

mod address_map;
mod allocations;
mod answer;
mod arena;
mod bounds;
mod boxes;
mod budget;
mod build;
mod chains;
mod client;
mod code;
mod collectives;
mod commands;
mod contexts;
mod copies;
mod counted;
mod files;
#[cfg(fuzzing)]
mod fuzzing;
mod gauges;
mod graphs;
mod handle_files;
mod handler;
mod helpers;
mod holdings;
mod host_calls;
pub mod image_cache;
mod images;
mod io;
mod jit;
mod kept;
mod kinds;
mod launch;
mod layouts;
mod links;
mod management;
mod mapped;
mod memops;
mod memory;
mod messages;
mod modules;
mod nccl;
mod objects;
mod offer;
mod offered;
mod opened;
mod order;
mod output;
mod own_table;
mod part;
mod partitions;
mod pools;
mod portion;
mod prepared;
#[cfg(test)]
mod recorded;
mod returning;
pub mod sandbox;
mod shares;
mod shown;
mod slots;
mod space;
mod spans;
mod staging;
mod streams;
pub mod suspend;
mod textures;
mod unreported;
mod waits;
mod warm;
mod worker;

mod generated {
    pub(crate) mod dispatch;
}

pub use counted::Counted;
#[cfg(fuzzing)]
pub use fuzzing::Fuzzed;
#[cfg(fuzzing)]
pub use io::hostile_peer;
pub use io::{
    Build, Bulk, Command, ContextMemory, DeviceBytes, Gauge, Handler, NextPoll, Replier, Sink,
    Start, Warm, run,
};
pub use prepared::{Prepared, Setup};
pub use worker::Worker;
