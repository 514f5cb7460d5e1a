//! The ports at which sockets of workers listen, so that other workers of this server may connect
//! there, whatever `--peers` says of this server's own address.

use std::collections::{BTreeMap, BTreeSet};

/// Ports that are remembered of a session. NCCL has a few for each communicator.
const MOST_OF_A_SESSION: usize = 1024;

/// By session.
#[derive(Default)]
pub(super) struct Listening(BTreeMap<u64, BTreeSet<u16>>);

impl Listening {
    pub(super) fn add(&mut self, session: u64, port: u16) {
        let ports = self.0.entry(session).or_default();
        if ports.len() < MOST_OF_A_SESSION {
            ports.insert(port);
        }
    }

    pub(super) fn has(&self, port: u16) -> bool {
        self.0.values().any(|ports| ports.contains(&port))
    }

    pub(super) fn forget(&mut self, session: u64) {
        self.0.remove(&session);
    }
}
