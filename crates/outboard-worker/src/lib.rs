//! The process that serves one client.
//!
//! The dispatcher takes commands in the client's one order and gives them to the driver library.
//! Whatever may wait for the device is waited for by a helper thread, so that the commands behind
//! it go on. Names on the wire are the client's; every one is looked up, and every device address
//! is checked against what the session has allocated.

mod address_map;
mod allocations;
mod answer;
mod arena;
mod bounds;
mod boxes;
mod budget;
mod chains;
mod client;
mod code;
mod commands;
mod contexts;
mod copies;
mod counted;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod gauges;
mod graphs;
mod helpers;
mod holdings;
mod host_calls;
pub mod image_cache;
mod images;
mod io;
mod jit;
mod launch;
mod layouts;
mod links;
mod management;
mod mapped;
mod memops;
mod memory;
mod modules;
mod objects;
mod offer;
mod offered;
mod opened;
mod order;
mod output;
mod part;
mod partitions;
mod pools;
mod portion;
mod prepared;
#[cfg(test)]
mod recorded;
pub mod sandbox;
mod shares;
mod shown;
mod slots;
mod space;
mod spans;
mod staging;
mod streams;
pub mod suspend;
mod textures;
mod untold;
mod waits;
mod warm;

mod generated {
    pub(crate) mod dispatch;
}

use outboard_abi::CUresult;
use outboard_driver::{Table, call};
use outboard_transport::SpinLimits;
use outboard_wire::handshake::Refusal;

use crate::generated::dispatch::{continues_chains, dispatch};
use crate::image_cache::owners_folder;
use answer::{Incoming, Outcome};
use chains::Chains;
use client::Client;
use code::Code;
use contexts::{Context, Contexts};
use copies::Copies;
use graphs::Graphs;
use helpers::Helpers;
use management::Management;
use memory::Memory;
use offered::Offered;
use outboard_control::meter::{self, Class};
use partitions::Partitions;
use shown::Shown;
use streams::Streams;
use textures::Textures;
use waits::Waits;

pub use counted::Counted;
#[cfg(feature = "fuzzing")]
pub use fuzzing::Fuzzed;
pub use io::{
    Again, Build, Bulk, Command, ContextMemory, Gauge, Handler, Replier, Sink, Start, Warm, run,
};
pub use prepared::{Prepared, Setup};

/// The worker's state: one client's session with the driver library.
pub struct Worker {
    table: &'static Table,
    offered: Offered,
    client: Client,
    shown: Shown,
    contexts: Contexts,
    memory: Memory,
    copies: Copies,
    code: Code,
    textures: Textures,
    partitions: Partitions,
    helpers: Helpers,
    streams: Streams,
    chains: Chains,
    graphs: Graphs,
}

impl Worker {
    /// Serves a client with the devices that it may see.
    fn new(prepared: Prepared, start: &Start) -> Result<Worker, Refusal> {
        let Prepared { setup, table, mut platform, output, mut kept, addresses, arena, .. } =
            prepared;
        offer::choose(&mut platform, &start.devices)?;
        let portions = offer::portions(table, &mut platform, start)?;
        let budget = offer::limit(&mut platform, &start.identity.limits);
        let helpers = Helpers::new();
        let mut chains = Chains::from_env();
        if !portions.is_empty() {
            // The order between streams is seen to launch by launch, and graphs' kernels would not
            // be in the part.
            chains.stop(table);
        }
        // A session that only asks questions allocates nothing.
        let arena = arena
            .filter(|_| !start.only_questions)
            .and_then(|arena| arena.suiting(table, &platform));
        let wanted =
            |ordinal| platform.devices.iter().any(|device| device.id.ordinal() as i32 == ordinal);
        kept.give_back(table, |ordinal| !start.only_questions && wanted(ordinal));
        // Who only asks has no driver to ask anything else of.
        let table = if start.only_questions { prepared::no_driver() } else { table };
        let (shows_memory, cache) =
            (setup.shows_memory, setup.image_cache(&owners_folder(&start.identity.owner)));
        let mut management = Management::new(setup.driver, budget.limit());
        management.use_library(setup.nvml);
        Ok(Worker {
            table,
            offered: Offered::new(platform, management),
            client: Client::new(output),
            shown: Shown::new(shows_memory),
            contexts: Contexts::new(kept),
            memory: Memory::new(budget, addresses, arena),
            copies: Copies::new(helpers.clone()),
            code: Code::new(cache),
            textures: Textures::new(),
            partitions: Partitions::new(portions),
            helpers,
            streams: Streams::new(Waits::new(SpinLimits::from_env())),
            chains,
            graphs: Graphs::default(),
        })
    }

    /// Brings what stands of this session on the board up to date.
    fn show(&self) {
        let Some(board) = outboard_control::board::get() else { return };
        let contexts = self
            .contexts
            .all()
            .fold(0, |mask, context| mask | 1_u64.checked_shl(context.device as u32).unwrap_or(0));
        board.show_contexts(contexts);
        meter::page().set_contexts(contexts);
        self.show_held(board);
        if let Some(context) = self.contexts.current().filter(|_| self.shown.asks_for_memory()) {
            let (mut free, mut total) = (0, 0);
            if call!(self.table, cuMemGetInfo_v2(&raw mut free, &raw mut total)).is_ok() {
                board.show_used(context.device as u32, total.saturating_sub(free) as u64);
            }
        }
    }

    /// Makes the command's context current.
    #[inline]
    fn enter(&mut self) -> Result<Context, CUresult> {
        self.contexts.enter(self.table)
    }
}

impl Handler for Worker {
    fn snapshot(&mut self) -> Vec<u8> {
        self.offered.encoded()
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

    fn look(&mut self) -> Again {
        self.look_after_waits()
    }

    fn closed(&mut self) {
        self.code.flush();
    }

    fn command(&mut self, command: Command<'_>, replier: &Replier) {
        self.contexts.turn_to(command.ctx);
        self.chains.begin(command.more);
        let class = self.shown.begin(command.op);
        self.client.meet(replier);
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
            Ok(None) => return self.violated(&format_args!("there is no message {}", command.op)),
            Err(error) => return self.violated(&error),
        };
        if let Err(error) = outcome {
            self.client.report(self.contexts.here(), command.op, error);
        }
    }
}

impl Worker {
    /// Ends the session: what a client of ours would never send has come.
    fn violated(&self, what: &dyn std::fmt::Display) {
        tracing::warn!(reason = %what, "the client broke the protocol; the session ends");
        io::end_session();
    }
}
