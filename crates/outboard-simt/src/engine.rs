//! The engine: memory, programs, launches.

use crate::{Fault, Kernel, Launch, LoadError, Memory, Program};
use outboard_ptx::ir;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How to build an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// OS threads that run blocks; all of the machine's when `None`.
    pub threads: Option<usize>,
    /// Size of device memory in bytes.
    pub arena_bytes: u64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig { threads: None, arena_bytes: 8 << 30 }
    }
}

/// Why an engine could not be built.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Address space for the arena could not be reserved.
    #[error("cannot reserve {bytes} bytes of address space for device memory: {source}; set a smaller device memory")]
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

/// Sizes that `cuCtxSetLimit` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of stack per thread, beyond what a kernel is known to need; used by recursion. Default 64 KiB.
    Stack,
    /// Bytes of text that the `printf` calls of one launch may leave behind; what is beyond drops the oldest. Default 1 MiB.
    PrintfFifo,
    /// Bytes of the heap of `malloc` in kernels. Fixed by its first use. Default 8 MiB.
    MallocHeap,
}

/// Compiles programs and runs grids. Shared freely between threads.
pub struct Engine {
    memory: Memory,
    limits: [AtomicU64; 3],
}

impl Engine {
    /// Reserves memory and starts the threads.
    pub fn new(config: &EngineConfig) -> Result<Arc<Engine>, EngineError> {
        let memory = Memory::new(config.arena_bytes)
            .map_err(|source| EngineError::Reserve { bytes: config.arena_bytes, source })?;
        Ok(Arc::new(Engine {
            memory,
            limits: [AtomicU64::new(64 << 10), AtomicU64::new(1 << 20), AtomicU64::new(8 << 20)],
        }))
    }

    /// Device memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The value of a limit.
    pub fn limit(&self, limit: Limit) -> u64 {
        self.limits[limit as usize].load(Ordering::Relaxed)
    }

    /// Sets a limit for launches to come.
    pub fn set_limit(&self, limit: Limit, value: u64) {
        self.limits[limit as usize].store(value, Ordering::Relaxed);
    }

    /// Compiles modules that together form one program: what one declares `.extern` another may define.
    pub fn load(self: &Arc<Self>, modules: &[&ir::Module]) -> Result<Arc<Program>, LoadError> {
        let function = modules.first().and_then(|m| m.functions.first()).map(|f| f.name.clone()).unwrap_or_default();
        Err(LoadError::Codegen { function, message: "the code generator is not there yet".into() })
    }

    /// Runs a grid and returns when it has ended. The calling thread takes part in the work. Several threads may launch at once;
    /// the pool works on their grids in turn.
    pub fn launch(&self, kernel: &Kernel, launch: &Launch<'_>) -> Result<(), Fault> {
        let _ = launch;
        Err(Fault {
            kind: crate::FaultKind::InvalidLaunch("the code generator is not there yet".into()),
            kernel: kernel.name.clone(),
            function: String::new(),
            line: 0,
            block: [0; 3],
            thread: [0; 3],
        })
    }
}
