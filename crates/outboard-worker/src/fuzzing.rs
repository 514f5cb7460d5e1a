//! A worker inside the process of the fuzz target, which gives it commands that no client of ours
//! would send. A violation of the protocol ends the session, not the process. Helper threads' work
//! is done at once, so that the same commands always have the same effect.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use outboard_driver::Table;
use outboard_session::client::CALL;
use outboard_wire::ContextId;
use outboard_wire::handshake::Refusal;
use outboard_wire::messages::{ContextClose, Message};

use super::counted;
use super::io::{Command, Handler, Replier, Violation};
use super::output::Output;
use super::worker::Worker;

/// A session. Dropped, it has ended.
pub struct Fuzzed {
    worker: Worker,
    replier: Replier,
    seq: u64,
}

impl Fuzzed {
    /// A session with one device, whose driver is the table.
    pub fn new(table: &'static Table) -> Result<Fuzzed, Refusal> {
        let output = Output::aside().map_err(|error| counted::failed(&error))?;
        let (worker, replier) = counted::alone(table, output)?;
        Ok(Fuzzed { worker, replier, seq: 0 })
    }

    /// Has the worker carry out a command, as its dispatcher does; false if the command broke the
    /// protocol, so that the session is over.
    pub fn take(&mut self, op: u16, ctx: u32, payload: &[u8], more: bool) -> bool {
        self.seq += 1;
        let ctx = ContextId(ctx);
        let command = Command { seq: self.seq, op, flags: CALL, ctx, payload, more };
        let carried_out = catch_unwind(AssertUnwindSafe(|| {
            self.worker.command(command, &self.replier);
            self.worker.poll();
            if !more {
                self.worker.caught_up();
            }
        }));
        match carried_out {
            Ok(()) => true,
            Err(cause) if cause.is::<Violation>() => false,
            Err(cause) => resume_unwind(cause),
        }
    }
}

impl Drop for Fuzzed {
    fn drop(&mut self) {
        for ctx in self.worker.contexts.names() {
            self.take(ContextClose::OP, ctx.0, &[], false);
        }
        self.worker.closed();
        self.worker.copies.end();
        self.worker.memory.mapped.give_back();
    }
}
