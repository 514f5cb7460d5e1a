//! By which rules the broker decides.

use jiff::{SignedDuration, Timestamp};
use outboard_pool::lease::CLOCK_TOLERANCE;
use outboard_pool::placement::Policy;
use outboard_pool::state::Quotas;
use outboard_pool::words::{GroupName, OwnerName};
use std::collections::BTreeMap;

/// A server that has been silent for so long gets no new leases.
pub const SILENT_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// If two servers with the same key use a name, neither gets leases for so long.
pub(super) const DOUBLED_FOR: SignedDuration = SignedDuration::from_secs(60);

/// A server at another address than before gets leases after so long: then no other one with its
/// key has spoken.
pub(super) const MOVED_FOR: SignedDuration = SignedDuration::from_secs(3);

/// A request leaves the queue if nobody has asked after it for so long.
pub(super) const ABANDONED_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// How long the broker knows what became of a request that waited.
pub(super) const TOLD_FOR: SignedDuration = SignedDuration::from_secs(60);

/// After a restart servers have so long to say which leases are in use.
pub const GRACE: SignedDuration = SignedDuration::from_secs(15);

/// How often servers are to beat, in milliseconds.
pub const BEAT_MS: u32 = 1000;

/// When a server is to beat that has yet to hear more.
pub const MORE_MS: u32 = 200;

/// The most leases of one owner that are over and that a server may still believe: each of them is
/// a word to a server.
pub(super) const MOST_UNCONFIRMED_OF_AN_OWNER: u32 = 1024;

/// How many leases an owner may get at once, ...
pub(super) const LEASES_AT_ONCE: u32 = 1024;

/// ... and how long it takes until it may get another one.
pub(super) const NEXT_LEASE_AFTER: SignedDuration = SignedDuration::from_millis(100);

/// Devices that are kept for somebody are lent to others who do not say for how long, if that is
/// for at least so long.
pub(super) const SHORTEST_LOAN: SignedDuration = SignedDuration::from_hours(1);

/// Devices are kept unused again for requests of an owner that were not served, so long after they
/// were before.
pub(super) const TURN_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// The most requests that wait.
pub(super) const MOST_WAITING: usize = 16_384;

/// The most requests of one owner that wait: others find room too.
pub(super) const MOST_WAITING_OF_AN_OWNER: u32 = 4096;

/// The most servers.
pub(super) const MOST_SERVERS: usize = 4096;

/// The most kinds of devices of one owner's servers.
pub(super) const MOST_KINDS_OF_AN_OWNER: usize = 256;

/// The most servers of one owner.
pub(super) const MOST_SERVERS_OF_AN_OWNER: usize = 1024;

/// How much of each list of the pool is told at once: about as many devices, or leases, or owners.
/// A page has a few MB, and fewer than 32.
pub(super) const MOST_TOLD: usize = 4096;

/// An expired lease may still be believed for so long: a server's clock may be behind, and it may
/// think that its own is ahead.
pub(super) fn is_surely_over(expires: Timestamp, now: Timestamp) -> bool {
    now.duration_since(expires) > CLOCK_TOLERANCE * 2
}

/// What the administrator says.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What placement prefers.
    pub policy: Policy,
    /// How long a lease is good unless it is renewed.
    pub life: SignedDuration,
    /// For how long a lease is renewed at most.
    pub longest: SignedDuration,
    /// For how long devices that are free are kept unused at most, for the first who needs more of
    /// them.
    pub hold: SignedDuration,
    /// What owners and groups may have.
    pub quotas: Quotas,
    /// Whether servers may speak that prove no key, as those of release 0.1.0.
    pub allow_unproven: bool,
    /// The groups of owners; others have the usual one.
    pub groups: BTreeMap<OwnerName, GroupName>,
}

/// The group of owners that have none.
const USUAL_GROUP: &str = "everybody";

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            policy: Policy::Pack,
            life: SignedDuration::from_secs(60),
            longest: SignedDuration::from_hours(7 * 24),
            hold: SignedDuration::from_hours(1),
            quotas: Quotas::default(),
            allow_unproven: false,
            groups: BTreeMap::new(),
        }
    }
}

impl Rules {
    /// How long a lease is good unless it is renewed, if that many seconds were asked for.
    pub(super) fn life_of(&self, seconds: Option<u32>) -> SignedDuration {
        let asked = seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
        asked.map_or(self.life, |asked| asked.min(self.longest))
    }

    /// For how long a lease is renewed at most, if that many seconds were asked for.
    pub(super) fn time_of(&self, seconds: Option<u32>) -> SignedDuration {
        let asked = seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
        asked.map_or(self.longest, |asked| asked.min(self.longest))
    }

    /// An owner's group.
    pub fn group(&self, owner: &OwnerName) -> GroupName {
        let usual = || USUAL_GROUP.parse().expect("it is a name");
        self.groups.get(owner).cloned().unwrap_or_else(usual)
    }
}
