//! What a client asks for, and how that stands.

use super::Role;
use crate::words::{
    DeviceUuid, GroupName, LeaseNumber, Malformed, MayShare, OwnerName, Purpose, Request,
    ServerName, Thumbprint,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The most keys that may share a lease: the queue holds them in memory.
const MOST_KEYS: usize = 64;

/// Whom the broker takes somebody for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Me {
    /// The owner of what it asks for.
    pub owner: OwnerName,
    /// The owner's group.
    pub group: GroupName,
    /// What it may do.
    pub role: Role,
}

/// A request for a lease, and the key to which it is to be bound. Owner and group of the request
/// are those of [`Me`]; only an admin and a scheduler name others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// What is wanted.
    pub request: Request,
    /// The key whose holder may use it.
    pub client_key: Thumbprint,
    /// For how many seconds at most; the broker may allow less. Without it, as long as it allows.
    #[serde(default)]
    pub for_seconds: Option<u32>,
    /// What it is for. While the asker has a request or a lease for the same purpose, this is that
    /// one: so a scheduler may ask again after a crash.
    #[serde(default)]
    pub purpose: Option<Purpose>,
    /// For how many seconds the lease is good without being renewed, if not for as long as is usual
    /// at the broker. For admins and schedulers: a job's lease may live as long as the job.
    #[serde(default)]
    pub life_seconds: Option<u32>,
}

impl Ask {
    /// Asks for that, for as long as the broker allows.
    #[must_use]
    pub fn new(request: Request, client_key: Thumbprint) -> Ask {
        Ask { request, client_key, for_seconds: None, purpose: None, life_seconds: None }
    }

    /// Checks what the types cannot say.
    ///
    /// # Errors
    ///
    /// If nothing could ever be granted for it.
    pub fn check(&self) -> Result<(), Malformed> {
        self.request.check()?;
        match &self.request.may_share {
            MayShare::Keys(keys) if keys.len() > MOST_KEYS => Err(Malformed(format!(
                "{} keys are to share a lease; name at most {MOST_KEYS}, or share one key",
                keys.len()
            ))),
            _ if self.for_seconds == Some(0) || self.life_seconds == Some(0) => {
                Err(Malformed("a lease for 0 seconds is none; ask for a longer one".into()))
            }
            _ => Ok(()),
        }
    }
}

/// A lease is to be good for longer than was said when it was asked for: a job may go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prolong {
    /// For how many seconds from now on, without being renewed; the broker may allow less. One that
    /// is good for longer stays so.
    pub for_seconds: u32,
}

/// How a request stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum Standing {
    /// It has what it asked for.
    Granted(Grant),
    /// It waits.
    Waiting {
        /// By which to ask after it.
        ticket: u64,
        /// Its place in the queue; the first is 1.
        place: u32,
        /// How many wait.
        of: u32,
        /// What it waits for.
        because: String,
    },
}

/// A lease, and where its devices are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The lease, signed.
    pub token: String,
    /// Its number.
    pub number: LeaseNumber,
    /// Its servers.
    pub servers: Vec<Reach>,
    /// When it ends unless it is renewed.
    pub expires: Timestamp,
    /// Until when it is renewed at all.
    pub renewable_until: Timestamp,
    /// Whether that is earlier than it would be if its devices were not lent: another request waits
    /// for them, and if that leaves, it is later. Brokers of release 0.1.0 lend nothing.
    #[serde(default)]
    pub is_shortened: bool,
}

/// A server of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Its name in the pool.
    pub name: ServerName,
    /// Where it is, `HOST:PORT`.
    pub address: String,
    /// The fingerprint of its certificate, if it encrypts.
    pub fingerprint: Option<String>,
    /// Its devices in the lease.
    pub devices: Vec<DeviceUuid>,
}
