//! Ranges of addresses: which of them are free ([`FreeRanges`]), and what lies where
//! ([`RangeMap`]).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod free;
mod map;

pub use free::FreeRanges;
pub use map::{Address, RangeMap};
