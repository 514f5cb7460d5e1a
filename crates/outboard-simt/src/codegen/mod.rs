//! From verified PTX to machine code.
//!
//! Instructions are compiled by rule over operation, type and modifiers, one module per family.
//! What the processor does exactly as PTX says is inline; the rest calls runtime functions.

mod analysis;
mod atomic;
mod bits;
mod call;
mod callgraph;
mod convert;
mod effort;
mod float;
mod func;
mod integer;
mod link;
mod memory;
mod movement;
pub(crate) mod program;
mod special;
mod steps;
mod sync;
mod texture;
mod types;
mod values;
mod visit;
