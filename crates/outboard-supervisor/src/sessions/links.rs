//! Connections to other servers that a worker asks for, and the answers.

use std::rc::Rc;

use outboard_auth::sparing::STRANGERS;
use outboard_control::messages::ToWorker;
use outboard_control::number::Number;

use super::attend::Attendant;
use crate::dial::{Call, Failure};

impl Attendant<'_> {
    /// Connects to another server for the session's worker, and answers with the connection.
    pub(super) fn dial(&self, request: u64, call: Call) {
        let (session, table, answers) = (self.session, Rc::clone(self.table), self.answers.clone());
        let turns = Rc::clone(&self.turns);
        tokio::task::spawn_local(async move {
            let answer = |payload| ToWorker::Answer { request, payload: Some(payload) };
            match table.outside.dialer.dial(&call, &turns).await {
                Ok(connection) => {
                    // Without the session, nobody needs it.
                    if let Some(entry) = table.sessions.borrow().get(&session) {
                        let sent = entry.further.try_send((answer(Vec::new()), connection));
                        if sent.is_err() {
                            let _ =
                                answers.send(answer(b"too many connections come at once".into()));
                        }
                    }
                }
                Err(Failure { told, reason }) => {
                    // Lines that the sentence refers to have a number of their own.
                    let kind = if reason.is_some() { "unreached" } else { "link" };
                    if let Some(left_out) = STRANGERS.admits(kind) {
                        tracing::info!(session = %Number(session), failure = told, reason, left_out, "no link to another server");
                    }
                    let _ = answers.send(answer(told.into_bytes()));
                }
            }
        });
    }
}
