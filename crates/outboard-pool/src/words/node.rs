//! Nodes of a scheduler, as the broker knows them.

use super::{Malformed, NodeName, OwnerName};
use std::fmt;

/// A node of a scheduler's cluster. The owner of its token is called `NODE@SCHEDULER`: two clusters
/// may have nodes of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What the scheduler calls it.
    pub name: NodeName,
    /// The owner of the scheduler's token.
    pub scheduler: OwnerName,
}

impl Node {
    /// The node whose token has that owner.
    ///
    /// # Errors
    ///
    /// If no node's token has such an owner.
    pub fn of(owner: &str) -> Result<Node, Malformed> {
        let parts = owner.split_once('@').and_then(|(name, scheduler)| {
            Some(Node { name: name.parse().ok()?, scheduler: scheduler.parse().ok()? })
        });
        parts.ok_or_else(|| {
            Malformed(format!(
                "`{owner}` cannot be the owner of a node's token: that is called NODE@SCHEDULER, such \
                 as n1@slurm"
            ))
        })
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.scheduler)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_names_node_and_scheduler() {
        let node = Node::of("n1@slurm").expect("it is a node's");
        assert_eq!((node.name.as_str(), node.scheduler.as_str()), ("n1", "slurm"));
        // Names of nodes have no `@`, those of schedulers may.
        let node = Node::of("gpu-1.site@slurm@blue").expect("it is a node's");
        assert_eq!((node.name.as_str(), node.scheduler.as_str()), ("gpu-1.site", "slurm@blue"));
        assert_eq!(node.to_string(), "gpu-1.site@slurm@blue");
        for wrong in ["", "n1", "@slurm", "n1@", "n 1@slurm", "n/1@slurm"] {
            let error = Node::of(wrong).expect_err(wrong).to_string();
            assert!(error.contains("NODE@SCHEDULER"), "{error}");
        }
    }
}
