//! The broker's doors: HTTPS, for few strangers and little patience.

mod answers;
mod body;
mod connection;
mod listen;
mod page;
mod places;

pub(crate) use listen::Listener;
pub use listen::Security;
