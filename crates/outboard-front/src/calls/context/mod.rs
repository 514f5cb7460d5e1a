//! Contexts.

mod create;
mod primary;
mod settings;
mod stack;

pub use create::*;
pub use primary::*;
pub use settings::*;
pub use stack::*;
