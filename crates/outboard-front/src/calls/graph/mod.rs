//! Graphs.

mod build;
mod dot;
mod exec;
mod exec_set;
mod generic;
mod memory;
mod node;
mod object;
mod query;

pub use build::*;
pub use dot::*;
pub use exec::*;
pub use exec_set::*;
pub use generic::*;
pub use memory::*;
pub use node::*;
pub use object::*;
pub use query::*;
