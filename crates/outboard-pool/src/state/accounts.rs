//! What owners and groups have, and the most that they may have.

use crate::words::{Granted, GroupName, OwnerName, Size};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Devices, also parts of them, and their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many devices, where each part of one counts as one.
    pub devices: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            devices: self.devices.saturating_add(other.devices),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    fn minus(self, other: Usage) -> Usage {
        Usage {
            devices: self.devices.saturating_sub(other.devices),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
        }
    }

    pub(crate) fn of(granted: &[Granted]) -> Usage {
        granted.iter().fold(Usage::default(), |sum, one| {
            sum.plus(Usage { devices: 1, memory_bytes: one.memory_bytes })
        })
    }
}

fn counted(devices: u64) -> String {
    let plural = if devices == 1 { "" } else { "s" };
    format!("{devices} device{plural}")
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", counted(self.devices), Size(self.memory_bytes))
    }
}

/// The most that somebody may have; what is not said has no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Devices and parts of them.
    pub devices: Option<u64>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

impl Quota {
    /// Whether somebody may have that much.
    #[must_use]
    pub fn allows(&self, usage: Usage) -> bool {
        self.devices.is_none_or(|most| usage.devices <= most)
            && self.memory_bytes.is_none_or(|most| usage.memory_bytes <= most)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.devices.map(counted);
        let memory = self.memory_bytes.map(|most| Size(most).to_string());
        let said: Vec<String> = devices.into_iter().chain(memory).collect();
        f.write_str(&if said.is_empty() { "no limit".into() } else { said.join(" and ") })
    }
}

/// The quotas of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Of owners with one of their own.
    pub owners: BTreeMap<OwnerName, Quota>,
    /// Of every other owner.
    pub owner: Quota,
    /// Of groups with one of their own.
    pub groups: BTreeMap<GroupName, Quota>,
    /// Of every other group.
    pub group: Quota,
}

impl Quotas {
    /// An owner's.
    #[must_use]
    pub fn of_owner(&self, owner: &OwnerName) -> Quota {
        self.owners.get(owner).copied().unwrap_or(self.owner)
    }

    /// A group's.
    #[must_use]
    pub fn of_group(&self, group: &GroupName) -> Quota {
        self.groups.get(group).copied().unwrap_or(self.group)
    }
}

/// What owners and groups have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Accounts {
    owners: BTreeMap<OwnerName, Usage>,
    groups: BTreeMap<GroupName, Usage>,
}

fn change<K: Ord + Clone>(of: &mut BTreeMap<K, Usage>, who: &K, to: impl Fn(Usage) -> Usage) {
    let usage = of.entry(who.clone()).or_default();
    *usage = to(*usage);
    if *usage == Usage::default() {
        of.remove(who);
    }
}

impl Accounts {
    pub(crate) fn add(&mut self, owner: &OwnerName, group: &GroupName, usage: Usage) {
        change(&mut self.owners, owner, |had| had.plus(usage));
        change(&mut self.groups, group, |had| had.plus(usage));
    }

    pub(crate) fn subtract(&mut self, owner: &OwnerName, group: &GroupName, usage: Usage) {
        change(&mut self.owners, owner, |had| had.minus(usage));
        change(&mut self.groups, group, |had| had.minus(usage));
    }

    pub(crate) fn of_owner(&self, owner: &OwnerName) -> Usage {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    pub(crate) fn of_group(&self, group: &GroupName) -> Usage {
        self.groups.get(group).copied().unwrap_or_default()
    }
}
