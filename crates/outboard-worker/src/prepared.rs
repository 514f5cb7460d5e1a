//! The state that a worker prepares before it has a client.

use std::path::PathBuf;
use std::sync::Arc;

use outboard_abi::CUdevice_attribute as A;
use outboard_driver::{Library, Table};
use outboard_transport::reserved::Reserved;
use outboard_wire::Code;
use outboard_wire::handshake::{Refusal, RefusalCode};
use outboard_wire::platform::Platform;
use outboard_wire::window::Window;

use crate::handle_files::HandleFiles;
use crate::image_cache::ImageCache;

use super::arena::Offer;
use super::io::{ContextMemory, Warm};
use super::kept::Kept;
use super::output::Output;
use super::staging::PageLocking;
use super::warm::{self, Measures};
use super::{address_map, offer};

/// Which libraries a worker uses, and how.
#[derive(Debug, Clone)]
pub struct Setup {
    pub(super) driver: PathBuf,
    name: String,
    pub(super) nvml: Option<PathBuf>,
    pub(super) nccl: Option<PathBuf>,
    pub(super) shows_memory: bool,
    pub(super) locking: PageLocking,
    images: Option<(PathBuf, u64)>,
}

impl Setup {
    /// A worker for the driver library at `driver`, which is called `name`.
    ///
    /// # Safety
    /// The file is a CUDA driver library, whose initialisers [`run`](super::run) runs.
    pub unsafe fn new(driver: impl Into<PathBuf>, name: impl Into<String>) -> Setup {
        Setup {
            driver: driver.into(),
            name: name.into(),
            nvml: None,
            nccl: None,
            shows_memory: false,
            locking: PageLocking::Pins,
            images: None,
        }
    }

    /// Answers NVML's questions with this library instead of the usual one.
    pub fn with_nvml(mut self, library: Option<PathBuf>) -> Setup {
        self.nvml = library;
        self
    }

    /// Makes collectives with this NCCL; without one, the session has none.
    pub fn with_nccl(mut self, library: Option<PathBuf>) -> Setup {
        self.nccl = library;
        self
    }

    /// Shows other sessions how much memory this one uses: for a driver library whose devices no
    /// NVML knows, and for which the question is cheap.
    pub fn showing_memory(mut self, shows: bool) -> Setup {
        self.shows_memory = shows;
        self
    }

    /// Takes no pages from the system ahead for memory that it registers: for a driver library that
    /// pins none.
    pub fn pinning_pages(mut self, pins: bool) -> Setup {
        self.locking = if pins { PageLocking::Pins } else { PageLocking::Nothing };
        self
    }

    /// Keeps what clients load in this folder, so many bytes of it for each owner.
    pub fn with_image_cache(mut self, folder: impl Into<PathBuf>, limit: u64) -> Setup {
        self.images = Some((folder.into(), limit));
        self
    }

    /// The cache of one owner's images, if there is to be one.
    pub(super) fn image_cache(&self, owner: &str) -> Option<ImageCache> {
        let (folder, limit) = self.images.as_ref()?;
        let opened = ImageCache::open(folder, owner, *limit);
        opened
            .inspect_err(
                |error| tracing::warn!(%error, folder = %folder.display(), "images are not kept"),
            )
            .ok()
    }
}

/// The driver library, started, and what it offers.
pub struct Prepared {
    pub(super) setup: Setup,
    pub(super) table: &'static Table,
    pub(super) platform: Platform,
    pub(super) output: Output,
    pub(super) kept: Kept,
    /// The addresses that are kept from the driver, ...
    pub(super) addresses: Arc<Reserved>,
    /// ... and those that it keeps to.
    pub(super) window: Option<Window>,
    /// The part of the window that the client may cut.
    pub(super) arena: Option<Offer>,
    pub(super) handle_files: HandleFiles,
    /// The memory of the kept contexts.
    pub(super) contexts: Vec<ContextMemory>,
}

/// The value of `CU_DEVICE_ATTRIBUTE_COMPUTE_MODE` that lets several processes have contexts.
const SHARED_MODE: i32 = 0;

impl Prepared {
    /// Loads the driver library, which is to place what it places in a window, and looks at its
    /// devices.
    pub(super) fn new(setup: Setup, window: Option<Window>) -> Result<Prepared, Refusal> {
        let failed = |error: &dyn std::fmt::Display| {
            let sentence = format!("the worker cannot use its driver library: {error}");
            Refusal::new(RefusalCode::WorkerFailed, Code::DriverUnusable, &sentence)
        };
        let occupied = window.and_then(|window| {
            let failed =
                |error: &_| tracing::warn!(%error, %window, "the worker's addresses cannot be kept to a window");
            address_map::occupy(window).inspect_err(failed).ok()
        });
        // SAFETY: whoever made the setup said that this is a driver library.
        let library = unsafe { Library::load(&setup.driver) }.map_err(|error| failed(&error))?;
        let output = Output::catch().map_err(|error| failed(&error))?;
        let table: &'static Table = Box::leak(Box::new(library.table));
        let mut platform =
            outboard_driver::platform(table, &setup.name).map_err(|error| failed(&error))?;
        if platform.devices.is_empty() {
            let sentence = "the server has no device".to_owned();
            return Err(Refusal { code: RefusalCode::NoDevice, sentence });
        }
        offer::mask_what_is_local(&mut platform);
        let mut prepared = Prepared::of(setup, table, platform, output);
        prepared.handle_files = HandleFiles::of(table);
        if let Some(addresses) = occupied {
            (prepared.addresses, prepared.window) = (addresses, window);
            prepared.check_window(|addresses, window| {
                let failed = |error: &_| tracing::warn!(%error, "what the driver has left of its addresses stays free");
                address_map::occupy_the_rest(addresses, window).inspect_err(failed).is_ok()
                    && address_map::is_kept_to(table, window)
            });
            prepared.arena = prepared
                .window
                .and_then(|window| Offer::reserve(table, &prepared.platform, window));
        }
        Ok(prepared)
    }

    /// A driver that is there, whose addresses are its own choice.
    pub(super) fn of(
        setup: Setup,
        table: &'static Table,
        platform: Platform,
        output: Output,
    ) -> Prepared {
        let (kept, addresses, window, arena, contexts) =
            (Kept::default(), Arc::default(), None, None, Vec::new());
        let handle_files = HandleFiles::default();
        Prepared {
            setup,
            table,
            platform,
            output,
            kept,
            addresses,
            window,
            arena,
            handle_files,
            contexts,
        }
    }

    /// Gives the window up if the driver does not keep to it.
    fn check_window(&mut self, is_kept_to: impl FnOnce(&Reserved, Window) -> bool) {
        if let Some(window) = self.window
            && !is_kept_to(&self.addresses, window)
        {
            tracing::warn!(%window, "the driver does not keep to a window of addresses: the session has none");
            self.addresses.clear();
            self.window = None;
        }
    }

    /// Makes contexts ahead, on those of the devices that processes may share.
    pub(super) fn warm(&mut self, Warm { contexts: wanted, measure, .. }: &Warm) {
        let shared = |ordinal: &&u32| {
            let device =
                self.platform.devices.iter().find(|device| device.id.ordinal() == **ordinal);
            device.is_some_and(|device| {
                device.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE.0) == Some(SHARED_MODE)
            })
        };
        let devices: Vec<i32> =
            wanted.iter().filter(shared).map(|ordinal| *ordinal as i32).collect();
        let measures = (*measure && !devices.is_empty())
            .then(|| Measures::new(&self.setup, &self.platform))
            .flatten();
        let used = |device| measures.as_ref().and_then(|measures| measures.used(device));
        let made = warm::contexts(self.table, &devices, used);
        (self.kept, self.contexts) = (made.kept, made.told);
        self.check_window(|_, window| {
            made.memory.iter().all(|address| window.contains(*address, 1))
        });
    }
}

/// A driver without functions: requests for the device are not supported.
pub(super) fn no_driver() -> &'static Table {
    // SAFETY: no function is said to be anywhere.
    let table = unsafe { Table::load(|_| core::ptr::null()) };
    Box::leak(Box::new(table))
}
