//! What the holder of a token or a certificate may do at a broker.

use crate::words::Malformed;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What somebody may do at a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Offer devices, and nothing else.
    Server,
    /// Ask for leases of its own, and see the pool.
    Client,
    /// Ask for leases for everybody, and end those that it has asked for.
    Scheduler,
    /// Ask for leases for everybody, and end all of them.
    Admin,
    /// See the pool.
    Viewer,
    /// Read the leases of a scheduler's jobs that run on this node, with their keys, and nothing
    /// else. The owner is called as [`Node`](crate::words::Node) says.
    Node,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 6] =
        [Role::Server, Role::Client, Role::Scheduler, Role::Admin, Role::Viewer, Role::Node];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Client => "client",
            Role::Scheduler => "scheduler",
            Role::Admin => "admin",
            Role::Viewer => "viewer",
            Role::Node => "node",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Role, Malformed> {
        Role::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| {
            let all = Role::ALL.map(Role::as_str).join(", ");
            Malformed(format!("`{text}` is no role; the roles are {all}"))
        })
    }
}
