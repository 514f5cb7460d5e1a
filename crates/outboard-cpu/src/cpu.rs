//! The software device: what the front named, and what its families share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use outboard_abi::CUresult;
use outboard_front::backend::{
    ContextId, DeviceId, DevicePtr, Faults, Launch, ObjectId, Result, StreamId,
};
use outboard_simt::{Engine, EngineConfig};
use parking_lot::Mutex;

use crate::array::{Array, Mipmap};
use crate::checkpoint;
use crate::config::Config;
use crate::context::Context;
use crate::event::Event;
use crate::green::Shares;
use crate::ipc::OpenedMemory;
use crate::launch::Grid;
use crate::link::Link;
use crate::memory::{HostMemory, check_range};
use crate::module::{Function, Module};
use crate::peer::Windows;
use crate::pool::{Pool, Pooled};
use crate::sched::{Lane, Scheduler, Ticket};
use crate::stream::Attributes;
use crate::table::Table;
use crate::vmm::{Mappings, Physical};
use crate::work::{Condition, Word, Work};

/// The software device.
pub struct Cpu {
    /// Who is told of faults, from the first question on.
    pub(crate) faults: OnceLock<&'static dyn Faults>,
    config: Config,
    engines: OnceLock<Vec<Arc<Engine>>>,
    starting: Mutex<()>,
    pub(crate) scheduler: Scheduler,
    pub(crate) host: HostMemory,
    pub(crate) contexts: Table<ContextId, Context>,
    pub(crate) events: Table<ObjectId, Event>,
    pub(crate) modules: Table<ObjectId, Module>,
    pub(crate) functions: Table<ObjectId, Function>,
    pub(crate) physical: Table<ObjectId, Physical>,
    pub(crate) mappings: Mappings,
    pub(crate) links: Table<ObjectId, Link>,
    pub(crate) shares: Shares,
    pub(crate) arrays: Table<ObjectId, Array>,
    pub(crate) mipmaps: Table<ObjectId, Mipmap>,
    pub(crate) references: crate::reference::TextureReferences,
    pub(crate) pools: Table<ObjectId, Arc<Pool>>,
    pub(crate) default_pools: Mutex<HashMap<u32, Arc<Pool>>>,
    pub(crate) pooled: Pooled,
    pub(crate) opened: OpenedMemory,
    pub(crate) windows: Windows,
    pub(crate) launches: AtomicU64,
    pub(crate) attributes: Attributes,
    pub(crate) graphs: crate::graph::Tables,
}

static CPU: LazyLock<Cpu> = LazyLock::new(|| Cpu::new(Config::from_environment()));

/// Has the process know that a context is faulted. What its kernels printed appears first: calls
/// that find the context faulted do not reach the device any more.
fn fault(ctx: ContextId, error: CUresult) {
    let cpu = Cpu::get();
    if let Ok(context) = cpu.context(ctx) {
        context.output.flush();
    }
    if let Some(faults) = cpu.faults.get() {
        faults.fault(ctx, error);
    }
}

impl Cpu {
    /// A device that no program has used yet.
    fn new(config: Config) -> Cpu {
        Cpu {
            faults: OnceLock::new(),
            engines: OnceLock::new(),
            starting: Mutex::new(()),
            scheduler: Scheduler::new(fault, config.most_queued),
            host: HostMemory::default(),
            contexts: Table::new(CUresult::CUDA_ERROR_INVALID_CONTEXT),
            events: Table::new(CUresult::CUDA_ERROR_INVALID_HANDLE),
            modules: Table::new(CUresult::CUDA_ERROR_INVALID_HANDLE),
            functions: Table::new(CUresult::CUDA_ERROR_INVALID_HANDLE),
            physical: Table::new(CUresult::CUDA_ERROR_INVALID_HANDLE),
            mappings: Mappings::default(),
            links: Table::new(CUresult::CUDA_ERROR_INVALID_HANDLE),
            shares: Shares::default(),
            arrays: Table::new(CUresult::CUDA_ERROR_INVALID_HANDLE),
            mipmaps: Table::new(CUresult::CUDA_ERROR_INVALID_HANDLE),
            references: crate::reference::TextureReferences::default(),
            pools: Table::new(CUresult::CUDA_ERROR_INVALID_HANDLE),
            default_pools: Mutex::default(),
            pooled: Pooled::default(),
            opened: OpenedMemory::default(),
            windows: Windows::default(),
            launches: AtomicU64::new(0),
            attributes: Attributes::default(),
            graphs: crate::graph::Tables::new(),
            config,
        }
    }

    /// The one instance.
    pub fn get() -> &'static Cpu {
        &CPU
    }

    /// The engines, one for each device; the first context starts them.
    pub(crate) fn engines(&self) -> Result<&[Arc<Engine>]> {
        if let Some(engines) = self.engines.get() {
            return Ok(engines);
        }
        let _starting = self.starting.lock();
        if self.engines.get().is_none() {
            let config = EngineConfig {
                threads: Some(self.config.threads),
                arena_bytes: self.config.memory,
                addresses: EngineConfig::ADDRESSES,
                compile_time: self.config.compile_time,
            };
            let engines = Engine::several(&config, self.config.devices).map_err(|error| {
                self.log(&error);
                CUresult::CUDA_ERROR_OUT_OF_MEMORY
            })?;
            let _ = self.engines.set(engines.clone());
            checkpoint::listen(|| Cpu::get().is_quiet(), engines);
        }
        self.engines.get().map(Vec::as_slice).ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }

    /// An engine whose memory stands for all, as they share the arena in which addresses are
    /// reserved.
    pub(crate) fn home(&self) -> Result<&Arc<Engine>> {
        self.engines()?.first().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }

    pub(crate) fn engine(&self, device: DeviceId) -> Result<&Arc<Engine>> {
        self.engines()?.get(device.ordinal() as usize).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    /// Bytes in use of the memory of a device, if it has contexts. Starts nothing.
    pub(crate) fn used_by_contexts(&self, device: u32) -> Option<u64> {
        let engine = self.engines.get()?.get(device as usize)?;
        let has_context = self.contexts.any(|context| Arc::ptr_eq(&context.engine, engine));
        has_context.then(|| engine.memory().used())
    }

    /// Whether nothing is queued anywhere.
    pub(crate) fn is_quiet(&self) -> bool {
        self.contexts.names().into_iter().all(|ctx| self.scheduler.pending(ctx).is_empty())
    }

    /// The latest record of an event, if there is one.
    pub(crate) fn recorded(&self, event: ObjectId) -> Result<Option<Ticket>> {
        Ok(self.event(event)?.latest().map(|record| record.ticket))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn log(&self, what: &dyn std::fmt::Display) {
        if self.config.log {
            outboard_threads::say(what);
        }
    }

    pub(crate) fn context(&self, ctx: ContextId) -> Result<Arc<Context>> {
        self.contexts.get(ctx)
    }

    pub(crate) fn event(&self, id: ObjectId) -> Result<Arc<Event>> {
        self.events.get(id)
    }

    pub(crate) fn insert_event(&self, id: ObjectId, event: Event) {
        self.events.insert(id, event);
    }

    pub(crate) fn function(&self, id: ObjectId) -> Result<Arc<Function>> {
        self.functions.get(id)
    }

    /// A launch of a function, checked and numbered.
    pub(crate) fn grid(
        &self,
        function: &Function,
        ctx: ContextId,
        launch: &Launch<'_>,
    ) -> Result<Grid> {
        let number = self.launches.fetch_add(1, Ordering::Relaxed) + 1;
        let context = self.context(ctx)?;
        Grid::new(
            function.kernel.clone(),
            function.cluster(),
            context,
            launch,
            number,
            self.config.log,
        )
    }

    /// Waits, lets printed text appear, and reports what became of the context.
    pub(crate) fn synchronize(&self, ctx: ContextId, tickets: Vec<Ticket>) -> Result<()> {
        let context = self.context(ctx)?;
        self.scheduler.wait_all(tickets);
        context.output.flush();
        self.scheduler.check(ctx)
    }

    /// The ordinal of an engine's device.
    pub(crate) fn device_of(&self, engine: &Arc<Engine>) -> Result<u32> {
        let at = self.engines()?.iter().position(|other| Arc::ptr_eq(other, engine));
        at.map(|at| at as u32).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    /// Waits for all work of all contexts.
    pub(crate) fn wait_for_everything(&self) {
        for context in self.contexts.names() {
            self.scheduler.wait_all(self.scheduler.pending(context));
        }
    }

    /// An aligned word in memory that may be accessed.
    pub(crate) fn word(&self, address: u64, value: u64, wide: bool) -> Result<Word> {
        let bytes = if wide { 8 } else { 4 };
        if !address.is_multiple_of(bytes) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        check_range(self.engines()?, address, bytes)?;
        Ok(Word { address, value: if wide { value } else { value & 0xffff_ffff }, wide })
    }

    /// Work that waits for a word, with the flags of `cuStreamWaitValue32`.
    pub(crate) fn wait_for_value(
        &self,
        DevicePtr(address): DevicePtr,
        value: u64,
        wide: bool,
        flags: u32,
    ) -> Result<Work> {
        let condition = Condition::new(flags).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(Work::Wait(self.word(address, value, wide)?, condition))
    }
}

/// The queue that a stream is.
pub(crate) fn lane(ctx: ContextId, stream: StreamId) -> Lane {
    match stream.object() {
        None => Lane::Legacy(ctx),
        Some(id) => Lane::Created(id),
    }
}
