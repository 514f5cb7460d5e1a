//! What the supervisor and its workers say to each other and show each other.
//!
//! The [`messages`] between them, the [`board`] that all workers of a server share, the [`meter`]
//! of one session, and what both know a session by. It loads no driver, so a supervisor that
//! depends on this crate and not on `outboard-driver` cannot either.
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod account;
pub mod board;
pub mod calls;
pub mod identity;
pub mod messages;
pub mod meter;
pub mod number;
mod sealed;
pub mod suspension;
pub mod trace;

mod generated {
    pub(crate) mod messages;
}
