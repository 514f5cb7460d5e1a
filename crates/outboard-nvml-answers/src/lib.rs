//! NVML's answers about devices that only a driver library knows.
//!
//! A server answers from here what its own NVML does not know, and the NVML library of a program
//! what is asked about the software device in the program's process.
#![warn(missing_docs, clippy::missing_errors_doc)]

mod block;
mod described;
mod load;
mod question;

pub use block::Block;
pub use described::{Described, Use};
pub use question::Question;
