//! PTX lexer, parser and verifier.
//!
//! The result is a verified program ([`ir::Module`]) that a back end can compile without checking again.
#![forbid(unsafe_code)]

pub mod ir;
mod types;

pub use types::{Space, Type};
