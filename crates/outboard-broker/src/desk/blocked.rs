//! What requests at the front of the queue wait for: nobody behind them gets that before them.

use outboard_pool::placement::Refusal;
use outboard_pool::state::Pool;
use outboard_pool::words::{GroupName, OwnerName, Request};
use std::collections::BTreeSet;

/// Kinds of devices, and owners and groups that have all they may have.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    kinds: BTreeSet<usize>,
    owners: BTreeSet<OwnerName>,
    groups: BTreeSet<GroupName>,
}

impl Blocked {
    /// Nobody waits for anything.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        *self = Blocked::default();
        pool.reserve(&self.kinds);
    }

    /// Whether a request is behind one with the same quota.
    pub(super) fn has_quota_of(&self, request: &Request) -> bool {
        self.owners.contains(&request.owner) || self.groups.contains(&request.group)
    }

    /// Whether some devices that would do are others' who come first.
    pub(super) fn has_kind_of(&self, pool: &Pool, request: &Request) -> bool {
        pool.kinds(request).any(|kind| self.kinds.contains(&kind))
    }

    /// A request waits. Who waits for a quota of its own keeps no device from others.
    pub(super) fn add(&mut self, pool: &mut Pool, request: &Request, refusal: &Refusal) {
        match refusal {
            Refusal::OwnerQuota(owner, _) => self.add_owner(owner),
            Refusal::GroupQuota(group, _) => {
                self.groups.insert(group.clone());
            }
            _ => {
                let before = self.kinds.len();
                self.kinds.extend(pool.kinds(request));
                if self.kinds.len() > before {
                    pool.reserve(&self.kinds);
                }
            }
        }
    }

    /// An owner gets nothing for now.
    pub(super) fn add_owner(&mut self, owner: &OwnerName) {
        self.owners.insert(owner.clone());
    }

    /// Whether nobody behind can get anything.
    pub(super) fn all(&self, pool: &Pool) -> bool {
        let there = pool.kinds_there();
        there > 0 && self.kinds.len() >= there
    }
}
