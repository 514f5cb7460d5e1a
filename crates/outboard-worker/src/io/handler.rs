//! What a worker process needs of what serves its client.

use std::time::Duration;

use outboard_control::messages::{ContextMemory, Gauge, Start, Warm};
use outboard_session::server::Command;
use outboard_wire::handshake::Refusal;
use outboard_wire::handshake::arena::Arena;
use outboard_wire::window::Window;

use super::replier::Replier;

/// Executes a client's commands.
pub trait Handler {
    /// The platform for the welcome, encoded.
    fn snapshot(&mut self) -> Vec<u8>;

    /// The addresses that the client may give to memory.
    fn arena(&self) -> Option<Arena> {
        None
    }

    /// The devices of the platform that are on PCI buses, as `0000:1b:00.0`.
    fn pci_devices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Carries out one command. Commands come in the session's order, each once. If it
    /// [`wants_reply`](Command::wants_reply), exactly one reply must follow, now or later.
    fn command(&mut self, command: Command<'_>, replier: &Replier);

    /// Answers are about to be written.
    fn answering(&mut self) {}

    /// No further command has arrived: do the postponed work before anything else.
    fn caught_up(&mut self) {}

    /// No further command has arrived for the moment; called once each time before waiting for one.
    fn drained(&mut self) {}

    /// Polls its waits, between commands and while there is none; when it wants to be called again.
    fn poll(&mut self) -> NextPoll {
        NextPoll::Never
    }

    /// The client is gone; the process ends when this returns.
    fn closed(&mut self) {}
}

/// When a handler wants to look again after what it waits for, if no command comes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextPoll {
    /// It waits for nothing.
    Never,
    /// At once.
    Now,
    /// After so long.
    After(Duration),
}

impl NextPoll {
    /// What suits two that wait.
    pub fn or(self, other: NextPoll) -> NextPoll {
        match (self, other) {
            (NextPoll::Now, _) | (_, NextPoll::Now) => NextPoll::Now,
            (NextPoll::After(one), NextPoll::After(other)) => NextPoll::After(one.min(other)),
            (NextPoll::Never, again) | (again, NextPoll::Never) => again,
        }
    }
}

/// The functions of a worker process.
pub trait Build {
    /// The state that can be prepared before there is a client.
    type Prepared;
    /// What serves the client.
    type Handler: Handler;

    /// Prepares for any client, with the addresses of devices in a window if it can; with `warm`,
    /// so that a later one finds most of a start-up done.
    fn prepare(
        self,
        warm: Option<&Warm>,
        window: Option<Window>,
    ) -> Result<Self::Prepared, Refusal>;

    /// Prepares for a client that only asks about the platform, which is as described: what a
    /// [`snapshot`](Build::snapshot) said.
    fn describe(self, platform: &[u8]) -> Result<Self::Prepared, Refusal>
    where
        Self: Sized,
    {
        let _ = platform;
        self.prepare(None, None)
    }

    /// The platform as a welcome would describe it to a client that sees all devices.
    fn snapshot(prepared: &Self::Prepared) -> Vec<u8>;

    /// The contexts that were made ahead.
    fn contexts(_prepared: &Self::Prepared) -> Vec<ContextMemory> {
        Vec::new()
    }

    /// The window in which the addresses of devices are, if it is known.
    fn window(_prepared: &Self::Prepared) -> Option<Window> {
        None
    }

    /// A function that returns the devices' gauges.
    fn watch(_prepared: Self::Prepared) -> Box<dyn FnMut() -> Vec<Gauge>> {
        Box::new(Vec::new)
    }

    /// Makes the handler; a refusal is what the client gets to read.
    fn build(prepared: Self::Prepared, start: &Start) -> Result<Self::Handler, Refusal>;
}
