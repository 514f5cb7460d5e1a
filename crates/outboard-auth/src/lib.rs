//! Who comes to a server or a broker: tokens, certificates, and seats for those who have not said.

#![forbid(unsafe_code)]

pub mod certificate;
pub mod clients;
mod error;
pub mod files;
pub mod hellos;
pub mod lease_key;
pub mod sparing;
pub mod tokens;

pub use error::AuthError;
