//! Totals of sessions by owner, ended sessions included: sums that only grow.

use std::collections::BTreeMap;

use outboard_control::meter::Reading;

/// The most owners that are counted separately; the others are counted together.
const OWNERS: usize = 64;
/// Whose name that is counted under.
const ALL_OTHER_OWNERS: &str = "(others)";

/// Totals of ended sessions.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    owners: BTreeMap<String, Reading>,
}

impl Totals {
    /// Adds a session. An owner who is counted separately once stays so: sums under a name must not
    /// shrink.
    pub(super) fn add(&mut self, owner: &str, reading: &Reading) {
        self.of(owner).add(reading);
    }

    /// Adds a session that has ended.
    pub(super) fn add_ended(&mut self, owner: &str, reading: &Reading) {
        self.of(owner).add_ended(reading);
    }

    /// The name under which an owner is counted, which it has from now on.
    pub(super) fn name<'a>(&mut self, owner: &'a str) -> &'a str {
        if !self.owners.contains_key(owner) {
            if self.owners.len() >= OWNERS {
                self.owners.entry(ALL_OTHER_OWNERS.to_owned()).or_default();
                return ALL_OTHER_OWNERS;
            }
            self.owners.insert(owner.to_owned(), Reading::default());
        }
        owner
    }

    fn of(&mut self, owner: &str) -> &mut Reading {
        let name = self.name(owner);
        self.owners.entry(name.to_owned()).or_default()
    }

    /// All of them.
    pub(super) fn into_owners(self) -> BTreeMap<String, Reading> {
        self.owners
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::field_reassign_with_default, reason = "some fields are another module's")]
    fn owners_beyond_the_bound_are_counted_together() {
        let mut totals = Totals::default();
        let mut one = Reading::default();
        one.wait_ns = 1;
        for owner in 0..OWNERS + 10 {
            totals.add_ended(&format!("owner {owner}"), &one);
        }
        totals.add("owner 3", &one);
        let owners = totals.into_owners();
        assert_eq!(
            (owners.len(), owners[ALL_OTHER_OWNERS].wait_ns, owners["owner 3"].wait_ns),
            (OWNERS + 1, 10, 2)
        );
    }
}
