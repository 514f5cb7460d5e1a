//! Further connections of sessions.

use std::os::fd::BorrowedFd;

use outboard_transport::tls;
use outboard_wire::handshake::auth::Proof;
use outboard_wire::handshake::{Refusal, RefusalCode};
use subtle::ConstantTimeEq;

use super::Sessions;
use super::entry::Entry;
use crate::over::no_session;
use outboard_control::identity::Identity;
use outboard_control::messages::ToWorker;

/// Connections that a session may have in its life.
const MOST_PROOFS: usize = 64 << 10;
impl Sessions {
    /// Hands a further connection, with its purpose, to a session's worker, if its owner may have
    /// one.
    pub(crate) fn add(
        &self,
        session: u64,
        key: u128,
        what: ToWorker,
        connection: BorrowedFd<'_>,
        may: impl FnOnce(&Identity) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let sessions = self.table.sessions.borrow();
        let entry = sessions
            .get(&session)
            .filter(|entry| {
                let own = key_of(entry, session, link_of(&what));
                bool::from(own.to_le_bytes().ct_eq(&key.to_le_bytes()))
            })
            .ok_or_else(|| self.table.over.borrow().refusal(session, key))?;
        may(&entry.about.identity)?;
        let failed = |reason: String| Refusal {
            code: RefusalCode::Busy,
            sentence: format!("the connection cannot be handed to the session's worker: {reason}"),
        };
        let connection =
            connection.try_clone_to_owned().map_err(|error| failed(error.to_string()))?;
        entry.further.try_send((what, connection)).map_err(|error| failed(error.to_string()))
    }

    /// Whether the connections of a session are encrypted.
    pub(crate) fn is_secure(&self, session: u64) -> bool {
        self.table.sessions.borrow().get(&session).is_some_and(|entry| entry.proofs.is_some())
    }

    /// The key of a session, or its ticket for a `link`, if this proves that the other side has it,
    /// by a keyed hash of `what`. Each proof is good for one connection.
    pub(crate) fn proven(
        &self,
        session: u64,
        link: Option<u32>,
        proof: &Proof,
        what: &[u8],
    ) -> Result<u128, Refusal> {
        let mut sessions = self.table.sessions.borrow_mut();
        let entry = sessions.get_mut(&session);
        let entry = entry.filter(|entry| {
            let key = key_of(entry, session, link);
            bool::from(tls::tag(key, what).ct_eq(&proof.tag))
        });
        let entry =
            entry.ok_or_else(|| self.table.over.borrow().refusal_to(session, proof, what))?;
        let key = key_of(entry, session, link);
        let proofs = entry.proofs.as_mut().ok_or_else(no_session)?;
        let is_new = proofs.len() < MOST_PROOFS && proofs.insert(proof.nonce);
        if is_new { Ok(key) } else { Err(no_session()) }
    }
}

/// What a further connection of a session shows: the session's key, or that of a ticket.
fn key_of(entry: &Entry, session: u64, link: Option<u32>) -> u128 {
    match link {
        None => entry.key,
        Some(link) => tls::ticket(entry.key, session, link).key,
    }
}

fn link_of(what: &ToWorker) -> Option<u32> {
    match what {
        ToWorker::Peer { link, .. } | ToWorker::MovablePeer { link, .. } => Some(*link),
        _ => None,
    }
}
