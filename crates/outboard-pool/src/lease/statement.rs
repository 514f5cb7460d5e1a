//! What a lease says.

use crate::words::{Granted, GroupName, LeaseNumber, MayShare, OwnerName, ServerName, Thumbprint};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the broker states. In JSON, the names that PASETO has for a claim are PASETO's.
///
/// A server refuses a statement with something that it does not know: it may be a restriction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// Its number in the pool.
    #[serde(rename = "jti")]
    pub number: LeaseNumber,
    /// Who has it.
    #[serde(rename = "sub")]
    pub owner: OwnerName,
    /// The owner's group.
    pub group: GroupName,
    /// The devices, on all servers.
    pub devices: Vec<Granted>,
    /// Higher comes first.
    pub priority: u8,
    /// From when on it is good.
    #[serde(rename = "nbf")]
    pub not_before: Timestamp,
    /// Until when it is good.
    #[serde(rename = "exp")]
    pub expires: Timestamp,
    /// Until when the broker renews it while it is used.
    pub renewable_until: Timestamp,
    /// The key whose holder may use it: a stolen lease is of no use without.
    pub client_key: Thumbprint,
    /// Who may use it besides the process that asked for it.
    pub may_share: MayShare,
}

impl Lease {
    /// What it has on that server.
    pub fn on<'a>(&'a self, server: &'a ServerName) -> impl Iterator<Item = &'a Granted> {
        self.devices.iter().filter(move |granted| granted.server == *server)
    }

    /// Whether a client that has proved this key may use it. How many processes at a time, says
    /// [`Lease::may_share`].
    #[must_use]
    pub fn admits(&self, key: &Thumbprint) -> bool {
        match &self.may_share {
            MayShare::Keys(others) if others.contains(key) => true,
            _ => *key == self.client_key,
        }
    }
}
