//! Why a request gets nothing, in sentences that say what would help.

use crate::state::{Quota, Usage};
use crate::words::{
    GroupName, Malformed, Named, OwnerName, Request, ServerName, Servers, Size, Use,
};
use std::fmt;

/// Why a request gets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody could get that.
    Malformed(Malformed),
    /// The owner would have too much.
    OwnerQuota(OwnerName, Overdrawn),
    /// The group would have too much.
    GroupQuota(GroupName, Overdrawn),
    /// The pool has no devices of that kind at all. Those that it has, or the first of them.
    NoSuchDevice(Vec<String>),
    /// No device of that kind has so much memory, taken or free. The most that one has, in bytes.
    TooMuchMemory(u64, u64),
    /// No device has that free now.
    NotFree(NotFree),
    /// No device has that free now on other servers than these, which the request avoids.
    NotElsewhere(Vec<ServerName>),
    /// The pool has no such device.
    NotThere(Named),
    /// Others have that device or a part of it, it is not given out now, or others wait for such a
    /// one.
    NamedNotFree(Named),
    /// Fewer devices than wanted have that free now.
    TooFew {
        /// How many were wanted.
        wanted: u32,
        /// How many have that free, and stand together as wanted.
        found: u32,
        /// How they were to stand.
        servers: Servers,
    },
}

/// What somebody has, wants and may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdrawn {
    /// Has.
    pub has: Usage,
    /// Wants in addition.
    pub wants: Usage,
    /// May have.
    pub quota: Quota,
}

/// What is free in place of what was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFree {
    /// The memory that was wanted, in bytes.
    pub memory_bytes: u64,
    /// The part that was wanted.
    pub usage: Use,
    /// The most free memory of a device that has the multiprocessors free, in bytes.
    pub most_bytes: Option<u64>,
    /// The most multiprocessors that are free of one device, in percent.
    pub most_percent: Option<u8>,
}

impl NotFree {
    pub(super) fn new(
        request: &Request,
        most_bytes: Option<u64>,
        most_percent: Option<u8>,
    ) -> NotFree {
        NotFree {
            memory_bytes: request.memory_bytes,
            usage: request.usage,
            most_bytes,
            most_percent,
        }
    }
}

impl Refusal {
    /// Whether waiting for others to give back something can help, with the servers that there are.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Refusal::Malformed(_)
            | Refusal::NoSuchDevice(_)
            | Refusal::TooMuchMemory(..)
            | Refusal::NotThere(_) => false,
            Refusal::OwnerQuota(_, of) | Refusal::GroupQuota(_, of) => of.quota.allows(of.wants),
            Refusal::NotFree(_)
            | Refusal::NotElsewhere(_)
            | Refusal::NamedNotFree(_)
            | Refusal::TooFew { .. } => true,
        }
    }
}

impl fmt::Display for Overdrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overdrawn { has, wants, quota } = self;
        write!(f, "has {has} and asks for {wants}; its quota is {quota}: ")?;
        f.write_str(if quota.allows(*wants) {
            "give back a lease, or wait for one to end"
        } else {
            "ask for less, or ask the pool's administrator for a larger quota"
        })
    }
}

impl fmt::Display for NotFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = Size(self.memory_bytes);
        match (self.usage, self.most_bytes, self.most_percent) {
            (_, _, None) => f.write_str(
                "no device of that kind is given out now: the servers that have them are draining \
                 or silent, or the devices ill",
            ),
            (Use::Exclusive, Some(most), _) => write!(
                f,
                "no device with {wanted} is unused; the largest unused one has {}",
                Size(most)
            ),
            (Use::Exclusive, None, _) => {
                write!(f, "no device of that kind is unused; wait for one, or ask for a shared one")
            }
            (Use::Shared(_), Some(most), _) => {
                write!(f, "no device has {wanted} free; the largest free one has {}", Size(most))
            }
            (Use::Shared(share), None, Some(most)) => write!(
                f,
                "no device has {} percent of its multiprocessors free; the freest one has {most}",
                share.percent()
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Malformed(what) => write!(f, "{what}"),
            Refusal::OwnerQuota(owner, overdrawn) => write!(f, "{owner} {overdrawn}"),
            Refusal::GroupQuota(group, overdrawn) => write!(f, "group {group} {overdrawn}"),
            Refusal::NoSuchDevice(there) if there.is_empty() => {
                f.write_str("the pool has no devices; register a server")
            }
            Refusal::NoSuchDevice(there) => write!(
                f,
                "the pool has no device of that model and compute capability; it has {}",
                there.join(", ")
            ),
            Refusal::TooMuchMemory(wanted, most) => write!(
                f,
                "no device has {} of memory; the largest one has {}: ask for less of each",
                Size(*wanted),
                Size(*most)
            ),
            Refusal::NotFree(not_free) => write!(f, "{not_free}"),
            Refusal::NotElsewhere(avoided) => {
                let avoided: Vec<&str> = avoided.iter().map(ServerName::as_str).collect();
                let avoided = avoided.join(", ");
                write!(f, "no such device is free on other servers than {avoided}")
            }
            Refusal::NotThere(Named { server, device }) => {
                write!(f, "the pool has no device {device} on a server {server}")
            }
            Refusal::NamedNotFree(Named { server, device }) => write!(
                f,
                "{device} of {server} is not free: others have it or wait for such a device, or it \
                 is not given out now; name another one, or ask again later"
            ),
            Refusal::TooFew { wanted, found, servers } => match servers {
                Servers::Any => write!(f, "{found} of the {wanted} devices are free"),
                Servers::Same => write!(
                    f,
                    "no server has {wanted} such devices free, the best one {found}; let them be \
                     on several servers, or wait"
                ),
                Servers::Distinct => write!(
                    f,
                    "the {wanted} devices are to be on as many servers, and such a device is free on \
                     {found}; let several be on one server, or wait"
                ),
            },
        }
    }
}

impl std::error::Error for Refusal {}
