//! The process that serves one client.

pub mod io;

pub use io::{Command, Handler, Replier, Start, run};
