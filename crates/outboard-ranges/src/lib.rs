//! Ranges of addresses: which of them are free ([`FreeRanges`]), what lies where ([`RangeMap`]),
//! and which of them a process has mapped ([`Mapping`]).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod free;
mod map;
mod mappings;

pub use free::FreeRanges;
pub use map::{Address, RangeMap};
pub use mappings::{FileNumbers, Mapping, gaps, mappings, own_mappings};
