//! Structures that describe copies.

pub(crate) mod describe;
pub(crate) mod path;

pub(crate) use describe::Structure;
pub(crate) use path::{Copy, End, Operand};
