//! A pool of servers: its words, which devices a request gets, and leases as signed statements.
//!
//! [`words`] are plain types: servers, devices, requests. [`state`] knows what is free, and
//! [`placement`] chooses from it. A [`lease`] says in signed form what was granted, and [`api`] is
//! what broker, servers and clients say to each other. Nothing here has a socket, a file or a
//! clock: who uses it says what time it is.

#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod api;
pub mod lease;
pub mod placement;
pub mod state;
pub mod words;
