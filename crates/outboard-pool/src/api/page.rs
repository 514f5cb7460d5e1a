//! A pool is told in pages: of each list so much at once.

use super::{PoolView, UsageView};
use crate::words::{GroupName, LeaseNumber, Malformed, OwnerName, ServerName};
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How far a pool has been told: the last of each list, by which it is in order. As text it is a
/// part of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Told {
    /// The last server, by name.
    pub server: Option<ServerName>,
    /// The last lease.
    pub lease: Option<LeaseNumber>,
    /// The last ticket.
    pub ticket: Option<u64>,
    /// The last owner, by name.
    pub owner: Option<OwnerName>,
}

fn text(of: Option<&impl ToString>) -> String {
    of.map(ToString::to_string).unwrap_or_default()
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, owner) = (text(self.server.as_ref()), text(self.owner.as_ref()));
        let lease = text(self.lease.map(|lease| lease.0).as_ref());
        write!(f, "{server},{lease},{},{owner}", text(self.ticket.as_ref()))
    }
}

impl FromStr for Told {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Told, Malformed> {
        fn part<T: FromStr>(text: &str) -> Result<Option<T>, Malformed> {
            let wrong = |_| Malformed(format!("`{text}` says no place in a list of the pool"));
            if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(wrong) }
        }
        let parts: Vec<&str> = text.split(',').collect();
        let [server, lease, ticket, owner] = parts.as_slice() else {
            return Err(Malformed(format!("`{text}` says nothing of four lists of the pool")));
        };
        Ok(Told {
            server: part(server)?,
            lease: part(lease)?.map(LeaseNumber),
            ticket: part(ticket)?,
            owner: part(owner)?,
        })
    }
}

/// How far it has been told what was had: the last account, but for its model. As text it is a part
/// of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageTold {
    /// The day.
    pub day: Date,
    /// The owner.
    pub owner: OwnerName,
    /// The group.
    pub group: GroupName,
}

impl From<&UsageView> for UsageTold {
    fn from(view: &UsageView) -> UsageTold {
        UsageTold { day: view.day, owner: view.owner.clone(), group: view.group.clone() }
    }
}

impl fmt::Display for UsageTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.day, self.owner, self.group)
    }
}

impl FromStr for UsageTold {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<UsageTold, Malformed> {
        let wrong = || Malformed(format!("`{text}` says no day, owner and group"));
        let parts: Vec<&str> = text.split(',').collect();
        let [day, owner, group] = parts.as_slice() else { return Err(wrong()) };
        let day = day.parse().map_err(|_| wrong())?;
        Ok(UsageTold { day, owner: owner.parse()?, group: group.parse()? })
    }
}

impl TryFrom<String> for Told {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Told, Malformed> {
        text.parse()
    }
}

impl From<Told> for String {
    fn from(told: Told) -> String {
        told.to_string()
    }
}

impl PoolView {
    /// Adds the page that comes behind this one.
    pub fn append(&mut self, page: PoolView) {
        self.servers.extend(page.servers);
        self.leases.extend(page.leases);
        self.queue.extend(page.queue);
        self.owners.extend(page.owners);
        self.next = page.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_text_and_back() {
        let all = Told {
            server: Some("gpu1.x".parse().unwrap()),
            lease: Some(LeaseNumber(7)),
            ticket: Some(u64::MAX),
            owner: Some("a@b".parse().unwrap()),
        };
        for told in [Told::default(), all] {
            assert_eq!(told.to_string().parse(), Ok(told));
        }
        for wrong in ["", ",,", ",,,,", ",x,,", ",,-1,", "a b,,,"] {
            assert!(wrong.parse::<Told>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_told_of_use_is_text_and_back() {
        let text = "2026-11-25,a@b,slurm/c";
        assert_eq!(text.parse::<UsageTold>().unwrap().to_string(), text);
        for wrong in ["", "2026-11-25", "2026-11-25,a", "2026-13-25,a,b", "2026-11-25,a,b,c", ",,"]
        {
            assert!(wrong.parse::<UsageTold>().is_err(), "{wrong}");
        }
    }
}
