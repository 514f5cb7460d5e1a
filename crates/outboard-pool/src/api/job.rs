//! What a scheduler asks for a job, and what the nodes get on which the job runs.

use super::{Ask, Grant};
use crate::words::{Malformed, NodeName, Purpose, Request, Thumbprint};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The most nodes of a job: leases and the queue hold them in memory.
const MOST_NODES: usize = 4096;

/// A request for the lease of a job. The broker makes the lease's key, and gives it to nobody but
/// the asker and these nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobAsk {
    /// What is wanted.
    pub request: Request,
    /// The job; as [`Ask::purpose`].
    pub purpose: Purpose,
    /// The nodes on which the job runs.
    pub nodes: BTreeSet<NodeName>,
    /// As [`Ask::for_seconds`].
    #[serde(default)]
    pub for_seconds: Option<u32>,
    /// As [`Ask::life_seconds`].
    #[serde(default)]
    pub life_seconds: Option<u32>,
}

impl JobAsk {
    /// The request, bound to that key, and the nodes.
    ///
    /// # Errors
    ///
    /// If it has no nodes, or too many.
    pub fn bound_to(self, client_key: Thumbprint) -> Result<(Ask, BTreeSet<NodeName>), Malformed> {
        let JobAsk { request, purpose, nodes, for_seconds, life_seconds } = self;
        if nodes.is_empty() || nodes.len() > MOST_NODES {
            return Err(Malformed(format!(
                "a job with a lease has 1 to {MOST_NODES} nodes, not {}",
                nodes.len()
            )));
        }
        let purpose = Some(purpose);
        Ok((Ask { request, client_key, for_seconds, purpose, life_seconds }, nodes))
    }
}

/// The lease of a job, with the key to which it is bound.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobGrant {
    /// The lease.
    pub grant: Grant,
    /// The private key, as PKCS #8 in PEM.
    pub key: String,
}
