//! How a server's devices are shared: what each session may have.

use crate::identity::Limits;

/// What holds for all clients, whatever they may have of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// What a session, and the sessions of an owner, may have at most.
    pub limits: Limits,
}
