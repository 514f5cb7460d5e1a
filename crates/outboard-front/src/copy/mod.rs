//! Copies: their descriptions by calls (`path`) and structures (`describe`), the location of their
//! sides (`sides`), and how they are made (`plan`, `crossing`).

mod crossing;
pub(crate) mod describe;
pub(crate) mod path;
mod plan;
mod sides;

pub(crate) use describe::Structure;
pub(crate) use path::{Copy, End, Operand};
pub(crate) use plan::{Method, Wait, plan};
pub(crate) use sides::{Resolved, Sides};
