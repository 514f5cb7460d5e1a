//! What must outlast the broker.

use super::queue::Whose;
use jiff::Timestamp;
use jiff::civil::Date;
use outboard_pool::api::Point;
use outboard_pool::lease::Lease;
use outboard_pool::words::{
    Granted, GroupName, LeaseNumber, NodeName, OwnerName, Purpose, Server, ServerName,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// Its name: the owner's, or that of a scheduler or an admin.
    pub name: OwnerName,
    /// The name of its token: if that is revoked, what it has asked for is over.
    pub token: Option<String>,
}

/// Who asks, and what for: there is one request or lease for it.
pub(super) type Aim = (OwnerName, Purpose);

/// A lease that a server may believe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// What it says.
    pub lease: Lease,
    /// Who asked for it.
    pub by: Asker,
    /// What for.
    pub purpose: Option<Purpose>,
    /// The nodes of the job, which get it and its key.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub nodes: BTreeSet<NodeName>,
    /// For how many seconds it is good without being renewed, if not as usual.
    pub life_seconds: Option<u32>,
    /// Whether its asker has had it prolonged: what clients have of it says an earlier end.
    #[serde(default)]
    pub prolonged: bool,
    /// Whether its devices are kept for somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent: Option<Lent>,
    /// When it was asked for.
    pub asked: Timestamp,
    /// What it waited for at last, if it waited.
    pub waited_for: Option<String>,
    /// What placement preferred then.
    pub policy: String,
    /// Whether and why it is over before its time.
    pub over: Option<Over>,
}

impl Kept {
    /// What of its devices nobody else can have: if it is over, those of servers that have not said
    /// yet that they refuse it.
    pub fn held(&self) -> impl Iterator<Item = &Granted> {
        let over = self.over.as_ref();
        let is_held = move |one: &&Granted| {
            over.is_none_or(|over| !over.is_freed && over.outstanding.contains(&one.server))
        };
        self.lease.devices.iter().filter(is_held)
    }

    /// Whether it has such devices on the server.
    pub(super) fn holds_on(&self, server: &ServerName) -> bool {
        self.held().any(|one| one.server == *server)
    }

    /// Whether it has such devices anywhere.
    pub fn has_devices(&self) -> bool {
        self.held().next().is_some()
    }

    /// When it ends at the latest.
    pub(super) fn last_end(&self) -> Timestamp {
        match self.over {
            Some(_) => self.lease.expires,
            None => self.lease.renewable_until,
        }
    }

    /// Whether it is over, and a server may still believe it.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.over.as_ref().is_some_and(|over| !over.is_freed)
    }

    pub(super) fn whose(&self) -> Whose {
        Whose { owner: self.lease.owner.clone(), asked_by: self.by.name.clone() }
    }

    pub(super) fn aim(&self) -> Option<Aim> {
        Some((self.by.name.clone(), self.purpose.clone()?))
    }
}

/// A loan of devices that are kept for a request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lent {
    /// The ticket of that request.
    pub for_ticket: u64,
    /// When the lease ends at the latest as long as that request waits.
    pub until: Timestamp,
    /// Until when it could be renewed otherwise.
    pub otherwise: Timestamp,
}

impl Lent {
    /// Whether the lease ends earlier for it.
    #[must_use]
    pub fn shortens(&self) -> bool {
        self.until < self.otherwise
    }
}

/// The end of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub because: String,
    /// The servers that have not said yet that they refuse it.
    pub outstanding: BTreeSet<ServerName>,
    /// Whether its devices are free: all servers have said so, or one does not have them any more.
    pub is_freed: bool,
    /// Whether the right to it was taken away: servers hear of these first.
    #[serde(default)]
    pub is_revoked: bool,
}

/// A server, without what changes with each beat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// What it has; nobody is busy there, and it is ready.
    pub server: Server,
    /// Where clients reach it.
    pub address: String,
    /// The fingerprint of its certificate.
    pub fingerprint: Option<String>,
    /// Its release.
    pub release: String,
    /// Whose token registered it first.
    pub by: OwnerName,
    /// The key to which its name belongs, once it has proven one.
    #[serde(default)]
    pub key: Option<String>,
}

/// Who speaks for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// The owner of its token.
    pub owner: OwnerName,
    /// The key that it has proven to have.
    pub key: Option<String>,
}

/// Who has had what kind of device, on which day.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The day, in UTC.
    pub day: Date,
    /// Whose lease it was.
    pub owner: OwnerName,
    /// The owner's group then.
    pub group: GroupName,
    /// The model of the device.
    pub model: String,
}

/// What was had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Devices times milliseconds, where a part counts by its share.
    pub device_ms: u64,
    /// Memory in MiB times milliseconds.
    pub mib_ms: u64,
}

/// The keys of leases, as servers are told them. As text they are PASERK's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// The one that signs.
    pub signs: String,
    /// Those that have signed before, each until the last lease that it has signed is over.
    pub former: Vec<Former>,
}

/// A key that signs no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// The key.
    pub key: String,
    /// From then on no lease is good that it has signed.
    pub until: Timestamp,
}

/// Something to keep.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A lease is new, or has changed.
    Lease(Box<Kept>),
    /// No server can believe a lease any more.
    Freed(LeaseNumber),
    /// A server is new, or has changed.
    Server(Box<Registered>),
    /// A server is no more.
    Forgotten(ServerName),
    /// Somebody has had more.
    Used(Account, Used),
    /// That day is too long ago.
    NoDay(Date),
    /// How the pool was in the piece of time that began at that second.
    Passed(i64, Point),
    /// What began before that second is too long ago.
    NoPassed(i64),
    /// Other keys sign, or have signed.
    Keys(Keys),
}

/// All that was kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The number of the next lease.
    pub next: u64,
    /// The servers.
    pub servers: Vec<Registered>,
    /// The leases.
    pub leases: Vec<Kept>,
    /// What was had.
    pub used: Vec<(Account, Used)>,
    /// How the pool was, by the second at which each piece of time began.
    pub passed: Vec<(i64, Point)>,
    /// The keys of leases, if any were kept.
    pub keys: Option<Keys>,
}
