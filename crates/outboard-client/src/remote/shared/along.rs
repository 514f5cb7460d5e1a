//! The message of a wait whose answer brings pages along.

use outboard_front::backend::{ContextId, Result};
use outboard_wire::Reader;
use outboard_wire::messages as msg;

use crate::pager::{Brought, Done, Wait};
use crate::session::Session;

/// Stands for the wait's own message where there is something to bring along.
pub(in crate::remote) struct Along {
    message: msg::WaitComparing,
    answer: Vec<u8>,
}

impl Along {
    pub(super) fn new(done: Done, ask: bool, wait: &Wait) -> Along {
        let (what, name) = match done {
            Done::Context(_) => (0, 0),
            Done::Stream((_, stream)) => (1, stream.0),
            Done::Event(event) => (2, event.0),
        };
        let message = msg::WaitComparing {
            what,
            name,
            ask,
            places: wait.places().to_vec(),
            seed: wait.seed(),
            known: wait.known().to_vec(),
        };
        Along { message, answer: Vec::new() }
    }

    /// Waits or asks. The command's number.
    #[cold]
    pub(in crate::remote) fn wait(&mut self, session: &Session, ctx: ContextId) -> Result<u64> {
        let (seq, answer) = session.wait(ctx, &self.message)?;
        self.answer = answer;
        Ok(seq)
    }

    /// The memory that came with the answer.
    pub(super) fn brought(&self) -> Brought<'_> {
        let reply = Reader::new(&self.answer).get();
        reply.map_or_else(
            |_| Brought::default(),
            |msg::WaitComparingReply { data, same }: msg::WaitComparingReply<'_>| Brought {
                data,
                same,
            },
        )
    }
}
