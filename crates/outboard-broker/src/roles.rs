//! Who somebody is, and what that allows.

use crate::desk::{Asker, Kind, No, Whose};
use jiff::Timestamp;
use outboard_auth::tokens::{Known, Unaccepted};
use outboard_auth::{clients, sparing::STRANGERS};
use outboard_pool::api::Role;
use outboard_pool::words::{Node, OwnerName};

/// Who may ask for leases.
pub(crate) const ASKERS: [Role; 3] = [Role::Client, Role::Scheduler, Role::Admin];

/// Somebody whom the broker knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) owner: OwnerName,
    pub(crate) role: Role,
    /// The name of the token, if it was one.
    pub(crate) token: Option<String>,
}

/// Nobody has shown who they are. Kept apart from other refusals: HTTP has a status for it.
#[derive(Debug)]
pub(crate) struct Unknown;

/// The same for every reason: who has no token learns nothing.
pub(crate) const UNKNOWN: &str = "the broker does not accept this token or certificate, or has \
    seen none: it is unknown, has expired or was revoked; ask whoever runs the broker for another \
    one (`outboard token create --broker`)";

/// Who shows this token, or this certificate, which has been found good.
pub(crate) fn caller(
    tokens: &Known,
    token: Option<&str>,
    certificate: Option<&[u8]>,
) -> Result<Caller, Unknown> {
    let (identity, role) = match (token, certificate) {
        (Some(token), _) => {
            tokens.refresh();
            tokens.check_as(token, Timestamp::now()).map_err(|reason| {
                if let Some(left_out) = STRANGERS.admits("token") {
                    let token = match reason {
                        Unaccepted::Unknown => "unknown".into(),
                        Unaccepted::NoLonger(name, state) => format!("{name}, {state}"),
                    };
                    tracing::warn!(token, left_out, "a token was shown in vain");
                }
                Unknown
            })?
        }
        (None, Some(certificate)) => {
            let identity = clients::identity(certificate).ok_or(Unknown)?;
            (identity, clients::role(certificate).ok_or(Unknown)?)
        }
        (None, None) => return Err(Unknown),
    };
    let owner = identity.owner.parse().map_err(|_| Unknown)?;
    Ok(Caller { owner, role, token: identity.token })
}

impl Caller {
    pub(crate) fn asker(&self) -> Asker {
        Asker { name: self.owner.clone(), token: self.token.clone() }
    }

    /// Whether it may do what these may.
    pub(crate) fn must_be(&self, roles: &[Role]) -> Result<(), No> {
        if roles.contains(&self.role) {
            return Ok(());
        }
        let roles: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
        Err(No::new(
            Kind::Forbidden,
            format!(
                "this is for the role {}, and {} has the role {}",
                roles.join(" or "),
                self.owner,
                self.role
            ),
        ))
    }

    /// Whether it may see the pool.
    pub(crate) fn may_look(&self) -> Result<(), No> {
        self.must_be(&[Role::Client, Role::Scheduler, Role::Admin, Role::Viewer])
    }

    /// Which node it is.
    pub(crate) fn node(&self) -> Result<Node, No> {
        self.must_be(&[Role::Node])?;
        Node::of(self.owner.as_str()).map_err(|wrong| No::new(Kind::Forbidden, wrong.to_string()))
    }

    /// Whether it acts for others too.
    pub(crate) fn is_trusted(&self) -> bool {
        matches!(self.role, Role::Scheduler | Role::Admin)
    }

    /// Whether it may ask for something that is to be that owner's.
    pub(crate) fn asks_for(&self, owner: &OwnerName) -> Result<(), No> {
        self.must_be(&ASKERS)?;
        self.allow(self.is_trusted() || self.owner == *owner, owner)
    }

    /// Whether it may do something with what is so somebody's.
    pub(crate) fn acts_on(&self, whose: &Whose) -> Result<(), No> {
        self.must_be(&ASKERS)?;
        let is_its_own = match self.role {
            Role::Admin => true,
            Role::Scheduler => whose.asked_by == self.owner,
            _ => whose.owner == self.owner,
        };
        self.allow(is_its_own, &whose.owner)
    }

    fn allow(&self, may: bool, owner: &OwnerName) -> Result<(), No> {
        if may {
            return Ok(());
        }
        let sentence = format!("{} may not act for {owner}; an admin may", self.owner);
        Err(No::new(Kind::Forbidden, sentence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(owner: &str, role: Role) -> Caller {
        Caller { owner: owner.parse().unwrap(), role, token: None }
    }

    #[test]
    fn a_node_neither_looks_nor_asks_nor_ends() {
        let node = caller("n1@slurm", Role::Node);
        assert_eq!(node.node().unwrap(), Node::of("n1@slurm").unwrap());
        let own = Whose { owner: node.owner.clone(), asked_by: node.owner.clone() };
        for no in [node.may_look(), node.asks_for(&node.owner), node.acts_on(&own)] {
            assert_eq!(no.unwrap_err().kind, Kind::Forbidden);
        }
        assert!(!node.is_trusted());
    }

    #[test]
    fn who_is_no_node_has_no_jobs() {
        // A certificate may say any name.
        for (owner, role) in [("n1", Role::Node), ("n1@slurm", Role::Client)] {
            assert_eq!(caller(owner, role).node().unwrap_err().kind, Kind::Forbidden, "{role}");
        }
    }
}
