//! How a session's commands are carried out.

use outboard_control::meter::Class;
use outboard_wire::handshake::VERSION;

use crate::answer::{Incoming, Outcome};
use crate::generated::dispatch::{continues_chains, dispatch};
use crate::io::{self, Command, Handler, NextPoll, Replier};
use crate::spans;
use crate::worker::Worker;

impl Handler for Worker {
    fn snapshot(&mut self) -> Vec<u8> {
        self.offered.encoded()
    }

    fn pci_devices(&self) -> Vec<String> {
        self.offered.pci_devices().collect()
    }

    fn arena(&self) -> Option<outboard_wire::handshake::arena::Arena> {
        self.memory.arena.terms()
    }

    fn answering(&mut self) {
        // Who has an answer may ask NVML next, over another connection.
        self.show();
        self.shown.update();
    }

    fn drained(&mut self) {
        self.give_back_grants();
        // The last of the commands was answered, mostly, and what was shown then is true still; but
        // helpers may have freed memory.
        match outboard_control::board::get() {
            Some(board) if self.shown.is_true() => self.show_held(board),
            _ => self.show(),
        }
    }

    fn caught_up(&mut self) {
        self.make_launches();
    }

    fn poll(&mut self) -> NextPoll {
        self.poll_waits().or(self.files.next_poll())
    }

    fn closed(&mut self) {
        self.code.flush();
    }

    fn command(&mut self, command: Command<'_>, replier: &Replier) {
        self.contexts.turn_to(command.ctx);
        self.chains.begin(command.more);
        let class = self.shown.begin(command.op);
        self.client.set_replier(replier);
        if !continues_chains(command.op) && !self.chains.is_empty() {
            self.make_launches();
        }
        let incoming =
            Incoming { op: command.op, seq: command.seq, payload: command.payload, replier };
        let traced = (class == Class::Module && spans::on()).then(std::time::Instant::now);
        let dispatched = dispatch(self, &incoming);
        if let Some(begun) = traced {
            let message = outboard_wire::messages::name(incoming.op).unwrap_or_default();
            let bytes = spans::number("outboard.bytes", incoming.payload.len() as u64);
            spans::record("module", begun, vec![spans::text("outboard.command", message), bytes]);
        }
        let outcome: Outcome = match dispatched {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return self.violated(&Unknown(command.op)),
            Err(error) => return self.violated(&error),
        };
        if let Err(error) = outcome {
            self.client.report_failed(self.contexts.here(), command.op, error);
        }
    }
}

/// A command that came from a client of a newer release, or from none of ours.
#[derive(Debug, thiserror::Error)]
#[error("release {release} of the server, protocol {VERSION}, has no command {0}", release = env!("CARGO_PKG_VERSION"))]
struct Unknown(u16);

impl Worker {
    /// Ends the session: what a client of ours would never send has come.
    pub(crate) fn violated(&self, what: &dyn std::fmt::Display) {
        tracing::warn!(reason = %what, "the client broke the protocol; the session ends");
        io::end_session(
            self.client.replier(),
            &format!(
                "ended, as its client broke the protocol ({what}): use client and server of one release"
            ),
        );
    }
}
