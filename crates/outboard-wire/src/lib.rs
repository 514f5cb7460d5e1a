//! Messages, frames and their codec, with limits. No sockets, no unsafe.
//!
//! Everything on the wire is little-endian and written field by field: no structure is ever copied
//! as memory. A connection starts with a [`handshake`]; after it, a command connection carries
//! [`frame`]s, whose payloads are written and read with [`codec`].
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod arrays;
pub mod boxes;
pub mod code;
pub mod codec;
pub mod collectives;
pub mod combine;
pub mod device_id;
pub mod files;
pub mod frame;
pub mod graph;
pub mod handshake;
pub mod image;
pub mod jit;
pub mod lane;
pub mod launch;
pub mod limits;
/// The messages of the driver API from client to worker, and their answers.
#[path = "generated/messages.rs"]
pub mod messages;
pub mod names;
pub mod notice;
mod plain;
pub mod platform;
pub mod references;
pub mod request;
pub mod sum;
pub mod token;
pub mod types;
pub mod window;

pub use code::Code;
pub use codec::{Decode, DecodeError, Encode, Reader, Writer};
pub use names::{ContextId, DevicePtr, HostPtr, ObjectId, StreamId, UnifiedPtr};
pub use plain::{plain, plain_lines};
