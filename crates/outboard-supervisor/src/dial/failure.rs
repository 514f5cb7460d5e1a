//! Why there is no connection to another server.

/// What the client that asked for the connection is told, and what only the log says: a client is
/// not to learn from a server what there is in its network.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// A sentence for the client.
    pub(crate) told: String,
    /// The reason, where the sentence does not have it.
    pub(crate) reason: Option<String>,
}

impl Failure {
    /// One that says nothing but what the client itself has asked for, or what this server's
    /// settings are.
    pub(super) fn open(told: impl Into<String>) -> Failure {
        Failure { told: told.into(), reason: None }
    }

    /// One whose reason is the same for the client, whatever it is.
    pub(super) fn hidden(name: &str, reason: String) -> Failure {
        let told = format!(
            "this server cannot reach {name}; its log says why (`outboard serve --peers NETWORK` \
             names the networks in which it connects to others)"
        );
        Failure { told, reason: Some(reason) }
    }
}
