//! Ending sessions.

use std::collections::HashSet;
use std::time::Duration;

use super::attend::Stop;
use super::entry::{Entry, Phase};
use super::{About, Sessions, Table};
use crate::changes::until;
use outboard_control::identity::Identity;

/// How long workers have to end by themselves when the supervisor stops.
const STOP_GRACE: Duration = Duration::from_secs(4);

impl Sessions {
    /// Ends a session's worker now.
    pub(crate) fn kill(&self, session: u64) {
        if let Some(entry) = self.table.sessions.borrow().get(&session) {
            // If the message box is full, the worker is being stopped already.
            let _ = entry.stop.try_send(Stop { sentence: None });
        }
    }

    /// Waits until there is none.
    pub(crate) async fn all_gone(&self) {
        until(&self.table.ended, || self.len() == 0).await;
    }

    /// Ends the sessions whose identity is no longer good; how many.
    pub(crate) fn end_those(&self, is_over: impl Fn(&Identity) -> bool) -> usize {
        self.end("ended, as its token was revoked", |_, about| is_over(&about.identity)).len()
    }

    /// Ends sessions, telling their clients why. `wanted` chooses them.
    pub(crate) fn end(&self, sentence: &str, wanted: impl Fn(u64, &About) -> bool) -> Vec<u64> {
        let sessions = self.table.sessions.borrow();
        let ended = sessions.iter().filter(|(session, entry)| wanted(**session, &entry.about));
        let stop = |(session, entry): (&u64, &Entry)| {
            entry.phase.set(Phase::Ending);
            // If the message box is full, the worker is being stopped already.
            let _ = entry.stop.try_send(Stop { sentence: Some(sentence.to_owned()) });
            *session
        };
        ended.map(stop).collect()
    }

    /// The same for sessions that are not ending already.
    pub(crate) fn end_once(
        &self,
        sentence: &str,
        wanted: impl Fn(u64, &About) -> bool,
    ) -> Vec<u64> {
        let going: HashSet<u64> = {
            let sessions = self.table.sessions.borrow();
            let ending = sessions.iter().filter(|(_, entry)| entry.phase.get() == Phase::Ending);
            ending.map(|(session, _)| *session).collect()
        };
        self.end(sentence, |session, about| !going.contains(&session) && wanted(session, about))
    }

    /// Ends all workers and waits until they are gone.
    pub(crate) async fn stop_all(&self) {
        let all: Vec<u64> = self.table.sessions.borrow().keys().copied().collect();
        for session in all {
            if let Some(entry) = self.table.sessions.borrow().get(&session) {
                // Clients then need not find out by trying to resume. If the message box is full,
                // the worker is being stopped already.
                let _ = entry
                    .stop
                    .try_send(Stop { sentence: Some("ended, as the server stops".to_owned()) });
            }
        }
        if tokio::time::timeout(STOP_GRACE, self.all_gone()).await.is_err() {
            tracing::warn!(sessions = self.len(), "some workers did not end in time");
        }
    }
}

impl Table {
    /// A session has ended, for its client to be told should it come back: as somebody wanted, or
    /// as its worker did.
    pub(super) fn note_end(&self, session: u64, why: Option<String>, well: bool) {
        let Some(key) = self.sessions.borrow().get(&session).map(|entry| entry.key) else { return };
        let otherwise = if well {
            "ended, as its client was away for longer than a session is kept"
        } else {
            "lost with its worker"
        };
        self.over.borrow_mut().note(session, key, why.unwrap_or_else(|| otherwise.to_owned()));
    }

    /// Ends a session and tells its client the reason.
    pub(super) fn stop(&self, session: u64, sentence: &str) {
        if let Some(entry) = self.sessions.borrow().get(&session) {
            // If the message box is full, the worker is being stopped already.
            let _ = entry.stop.try_send(Stop { sentence: Some(sentence.to_owned()) });
        }
    }
}
