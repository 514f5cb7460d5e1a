//! PTX lexer, parser and verifier.
//!
//! [`parse`] turns the text of a module into a verified program ([`ir::Module`]) that a back end
//! can compile without checking again. What the software device does not have is refused here, by
//! name.
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]

mod ast;
mod error;
#[cfg(feature = "interp")]
pub mod interp;
pub mod ir;
mod lexer;
mod parse;
mod types;
mod verify;

pub use error::{Error, ErrorKind, FunctionName};
pub use types::{Space, Type};

/// Parses and verifies a PTX module. A trailing NUL, as C strings have, is allowed.
///
/// # Errors
/// The first thing that is wrong or not supported, with its line and function.
pub fn parse(text: &str) -> Result<ir::Module, Error> {
    verify::verify(&parse::parse(text)?)
}
