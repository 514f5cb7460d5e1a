//! The driver library's client half: shadow state and the connection to a server.

pub mod link;
pub mod target;
