//! The engine: memory, programs, launches.

use crate::codegen;
use crate::codegen::program::host_isa;
use crate::exec::grid::Grid;
use crate::exec::pool::{Core, Pool};
use crate::fault::Fault;
use crate::launch::Launch;
use crate::limit::Limit;
use crate::memory::Memory;
use crate::program::{Kernel, LoadError, Program};
use crate::texture::{Objects, Surface, Texture};
use cranelift_codegen::isa::OwnedTargetIsa;
use outboard_ptx::ir;
use std::sync::Arc;
use std::time::Duration;

/// How to build an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// OS threads that run blocks; all of the machine's when `None`.
    pub threads: Option<usize>,
    /// Size of device memory in bytes.
    pub arena_bytes: u64,
    /// Addresses that all engines of a process take together, in bytes, if their memory does not
    /// need more: programs may reserve those that are left, at least half if the memory lets them.
    pub addresses: u64,
    /// The longest that compiling one program may take. It is looked at between functions.
    pub compile_time: Duration,
}

impl EngineConfig {
    /// The longest that compiling one program may take, unless something else is said.
    pub const COMPILE_TIME: Duration = Duration::from_secs(300);
    /// The addresses that all engines of a process together are to take. A server has 2 TiB for all
    /// that a session's process places.
    pub const ADDRESSES: u64 = 7 << 38;
}

impl Default for EngineConfig {
    fn default() -> Self {
        let (addresses, compile_time) = (EngineConfig::ADDRESSES, EngineConfig::COMPILE_TIME);
        EngineConfig { threads: None, arena_bytes: 8 << 30, addresses, compile_time }
    }
}

/// Why an engine could not be built.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Address space for the arena could not be reserved.
    #[error(
        "cannot reserve {bytes} bytes of address space for device memory: {source}; set a smaller device memory"
    )]
    Reserve {
        /// Bytes of device memory asked for.
        bytes: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// This machine's processor is not one the code generator knows.
    #[error("no code generator for this processor: {0}")]
    Processor(String),
    /// Threads could not be started.
    #[error("cannot start the threads of the engine: {0}")]
    Threads(#[source] std::io::Error),
}

/// Compiles programs and runs grids. Shared freely between threads.
pub struct Engine {
    // Before the core: its threads end first.
    _pool: Pool,
    core: Arc<Core>,
    isa: OwnedTargetIsa,
    compile_time: Duration,
}

impl Engine {
    /// Reserves memory and starts the threads.
    ///
    /// # Errors
    /// [`EngineError`] if addresses cannot be reserved, threads cannot be started, or Cranelift has
    /// no code generator for the processor.
    pub fn new(config: &EngineConfig) -> Result<Arc<Engine>, EngineError> {
        Engine::several(config, 1).map(|mut engines| engines.remove(0))
    }

    /// So many engines, whose kernels all reach what is mapped into reservations.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn several(config: &EngineConfig, count: usize) -> Result<Vec<Arc<Engine>>, EngineError> {
        let memory = Memory::several(count, config.arena_bytes, config.addresses)
            .map_err(|source| EngineError::Reserve { bytes: config.arena_bytes, source })?;
        memory.into_iter().map(|memory| Engine::over(config, memory)).collect()
    }

    fn over(config: &EngineConfig, memory: Memory) -> Result<Arc<Engine>, EngineError> {
        let isa = host_isa().map_err(EngineError::Processor)?;
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = config.threads.unwrap_or_else(available).max(1);
        let core = Arc::new(Core::new(memory, threads));
        let pool = Pool::start(&core).map_err(EngineError::Threads)?;
        Ok(Arc::new(Engine { _pool: pool, core, isa, compile_time: config.compile_time }))
    }

    /// Device memory.
    pub fn memory(&self) -> &Memory {
        &self.core.memory
    }

    /// Texture objects of kernels to come.
    pub fn textures(&self) -> &Objects<Texture> {
        &self.core.textures
    }

    /// Surface objects of kernels to come.
    pub fn surfaces(&self) -> &Objects<Surface> {
        &self.core.surfaces
    }

    /// OS threads that run blocks.
    pub fn threads(&self) -> usize {
        self.core.threads
    }

    /// The value of a limit.
    pub fn limit(&self, limit: Limit) -> u64 {
        self.core.limit(limit)
    }

    /// Sets a limit for launches to come.
    pub fn set_limit(&self, limit: Limit, value: u64) {
        self.core.set_limit(limit, value);
    }

    /// Compiles modules that together form one program: what one declares `.extern` another may
    /// define.
    ///
    /// # Errors
    /// [`LoadError`], such as an instruction without an implementation or a symbol that no module
    /// defines.
    pub fn load(&self, modules: &[&ir::Module]) -> Result<Arc<Program>, LoadError> {
        self.load_with(modules, &[])
    }

    /// As [`Engine::load`], with addresses for variables that no module defines.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn load_with(
        &self,
        modules: &[&ir::Module],
        symbols: &[(String, u64)],
    ) -> Result<Arc<Program>, LoadError> {
        codegen::program::load(&self.core, &self.isa, modules, symbols, self.compile_time)
    }

    /// Runs a grid and returns when it has ended. The calling thread takes part in the work.
    /// Several threads may launch at once; the pool works on their grids in turn.
    ///
    /// # Errors
    /// The [`Fault`] that ended the grid, or why it cannot be launched.
    pub fn launch(&self, kernel: &Arc<Kernel>, launch: &Launch<'_>) -> Result<(), Fault> {
        let grid = Grid::new(&self.core, kernel, launch)
            .map_err(|kind| Fault { kernel: kernel.name.clone(), ..Fault::from(kind) })?;
        let grid = Arc::new(grid);
        self.core.run(&grid);
        let (fault, output) = grid.wait();
        if let Some(sink) = launch.output {
            for (stream, text) in output.iter().flat_map(|fifo| fifo.entries()) {
                sink(*stream, text);
            }
        }
        fault.map_or(Ok(()), Err)
    }
}
