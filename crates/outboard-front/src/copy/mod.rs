//! Copies: as calls describe them (`path`, and `describe` from structures), where their sides are
//! (`sides`), and what becomes of them (`plan`).

pub(crate) mod describe;
pub(crate) mod path;
mod plan;
mod sides;

pub(crate) use describe::Structure;
pub(crate) use path::{Copy, End, Operand};
pub(crate) use plan::{Method, Wait, plan};
pub(crate) use sides::{Resolved, Sides};
