//! NVML's queries, described: what of their arguments travels, and how.
//!
//! A query is forwarded by its description: the client sends what the function reads, the worker
//! calls the function of that name with memory of its own and sends back what was written. Neither
//! needs code for any one function.
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]

mod codec;
mod description;
mod fitness;
mod gauges;
mod generated;
mod pci;

pub use codec::{Argument, Given, LARGEST, decode, encode, written};
pub use description::{Function, Param, Text, find, versioned_size};
pub use fitness::{Answer, failure, linked};
pub use gauges::{Gauges, gauges};
pub use generated::FUNCTIONS;
pub use pci::PciPlace;
