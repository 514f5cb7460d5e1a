//! The worker's state: one client's session with the driver library.

use outboard_abi::CUresult;
use outboard_control::{account, meter};
use outboard_driver::{Table, call};
use outboard_transport::SpinLimits;
use outboard_wire::handshake::Refusal;

use crate::budget::Budget;
use crate::chains::Chains;
use crate::client::Client;
use crate::code::Code;
use crate::collectives::Collectives;
use crate::contexts::{Context, Contexts};
use crate::copies::Copies;
use crate::files::Files;
use crate::graphs::Graphs;
use crate::handle_files::HandleFiles;
use crate::helpers::Helpers;
use crate::image_cache::owners_folder;
use crate::io::Start;
use crate::management::Management;
use crate::memory::Memory;
use crate::messages::Messages;
use crate::offer;
use crate::offered::Offered;
use crate::partitions::Partitions;
use crate::prepared::{self, Prepared};
use crate::shown::Shown;
use crate::streams::Streams;
use crate::textures::Textures;
use crate::waits::Waits;

/// The worker's state: one client's session with the driver library.
pub struct Worker {
    pub(crate) table: &'static Table,
    pub(crate) offered: Offered,
    pub(crate) client: Client,
    pub(crate) shown: Shown,
    pub(crate) contexts: Contexts,
    pub(crate) memory: Memory,
    pub(crate) copies: Copies,
    pub(crate) collectives: Collectives,
    pub(crate) messages: Messages,
    pub(crate) code: Code,
    pub(crate) textures: Textures,
    pub(crate) partitions: Partitions,
    pub(crate) helpers: Helpers,
    pub(crate) streams: Streams,
    pub(crate) chains: Chains,
    pub(crate) graphs: Graphs,
    pub(crate) files: Files,
    pub(crate) handle_files: HandleFiles,
}

impl Worker {
    /// Serves a client with the devices that it may see.
    pub(crate) fn new(prepared: Prepared, start: &Start) -> Result<Worker, Refusal> {
        let Prepared {
            setup,
            table,
            mut platform,
            output,
            mut kept,
            addresses,
            arena,
            handle_files,
            ..
        } = prepared;
        offer::choose(&mut platform, &start.devices)?;
        let portions = offer::portions(table, &mut platform, start)?;
        let limits = offer::limit(&mut platform, start);
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
        let mut management = Management::new(setup.driver, limits.clone());
        management.use_library(setup.nvml);
        Ok(Worker {
            table,
            offered: Offered::new(platform, management),
            client: Client::new(output),
            shown: Shown::new(shows_memory),
            contexts: Contexts::new(kept),
            memory: Memory::new(Budget::new(limits, account::seat()), addresses, arena),
            copies: Copies::new(helpers.clone(), setup.locking),
            collectives: Collectives::new(setup.nccl),
            messages: Messages::new(),
            code: Code::new(cache),
            textures: Textures::new(),
            partitions: Partitions::new(portions),
            helpers,
            streams: Streams::new(Waits::new(SpinLimits::from_env())),
            chains,
            graphs: Graphs::default(),
            files: Files::default(),
            handle_files,
        })
    }

    /// Brings what stands of this session on the board up to date.
    pub(crate) fn show(&self) {
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
    pub(crate) fn enter(&mut self) -> Result<Context, CUresult> {
        self.contexts.enter(self.table)
    }
}
