//! Contexts: an engine, and what is freed when the context ends.

use std::collections::HashSet;
use std::sync::Arc;

use outboard_abi::{CUlimit_enum, CUresult};
use outboard_front::backend::{ContextId, Result};
use outboard_simt::{Engine, Limit};
use parking_lot::Mutex;

use crate::device;
use crate::output::Output;
use crate::texture::TextureObjects;

/// A context of a program.
pub(crate) struct Context {
    pub(crate) id: ContextId,
    pub(crate) engine: Arc<Engine>,
    pub(crate) output: Output,
    /// Its texture and surface objects, which end with it.
    pub(crate) objects: TextureObjects,
    /// Held while a function of the program runs: one at a time, as with any driver.
    pub(crate) calling: Mutex<()>,
    /// Addresses of its live allocations.
    allocations: Mutex<HashSet<u64>>,
}

/// The greatest stack of a thread, as on NVIDIA's devices: 512 KiB less 1 KiB.
const MOST_STACK: u64 = (512 << 10) - (1 << 10);
/// The least buffer for printed text, as there.
const LEAST_FIFO: u64 = 512 << 10;

/// Why a limit cannot be asked for: a device may lack it (ours lacks launches from kernels), or
/// nobody knows it.
fn no_limit(limit: CUlimit_enum) -> CUresult {
    match limit.0 < CUlimit_enum::CU_LIMIT_MAX.0 {
        true => CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT,
        false => CUresult::CUDA_ERROR_INVALID_VALUE,
    }
}

impl Context {
    pub(crate) fn new(id: ContextId, engine: Arc<Engine>) -> Context {
        Context {
            id,
            objects: TextureObjects::new(engine.clone()),
            engine,
            output: Output::default(),
            calling: Mutex::new(()),
            allocations: Mutex::default(),
        }
    }

    pub(crate) fn limit(&self, limit: u32) -> Result<u64> {
        match CUlimit_enum(limit) {
            CUlimit_enum::CU_LIMIT_STACK_SIZE => Ok(self.engine.limit(Limit::Stack)),
            CUlimit_enum::CU_LIMIT_PRINTF_FIFO_SIZE => Ok(self.engine.limit(Limit::PrintfFifo)),
            CUlimit_enum::CU_LIMIT_MALLOC_HEAP_SIZE => Ok(self.engine.limit(Limit::MallocHeap)),
            CUlimit_enum::CU_LIMIT_MAX_L2_FETCH_GRANULARITY => Ok(64),
            CUlimit_enum::CU_LIMIT_PERSISTING_L2_CACHE_SIZE
            | CUlimit_enum::CU_LIMIT_CIG_ENABLED => Ok(0),
            CUlimit_enum::CU_LIMIT_SHMEM_SIZE => Ok(u64::from(device::SHARED_OPTIN)),
            limit => Err(no_limit(limit)),
        }
    }

    pub(crate) fn set_limit(&self, limit: u32, value: u64) -> Result<()> {
        let (limit, value) = match CUlimit_enum(limit) {
            CUlimit_enum::CU_LIMIT_STACK_SIZE if value > MOST_STACK => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            CUlimit_enum::CU_LIMIT_STACK_SIZE => (Limit::Stack, value & !15),
            CUlimit_enum::CU_LIMIT_PRINTF_FIFO_SIZE => (Limit::PrintfFifo, value.max(LEAST_FIFO)),
            CUlimit_enum::CU_LIMIT_MALLOC_HEAP_SIZE => (Limit::MallocHeap, value),
            // Hints.
            CUlimit_enum::CU_LIMIT_MAX_L2_FETCH_GRANULARITY
            | CUlimit_enum::CU_LIMIT_PERSISTING_L2_CACHE_SIZE => {
                return Ok(());
            }
            limit => return Err(no_limit(limit)),
        };
        self.engine.set_limit(limit, value);
        Ok(())
    }

    /// Allocates device memory that ends with the context.
    pub(crate) fn alloc(&self, bytes: u64) -> Result<u64> {
        let address =
            self.engine.memory().alloc(bytes, 1).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.allocations.lock().insert(address);
        Ok(address)
    }

    /// Whether there is such an allocation.
    pub(crate) fn check_owned(&self, address: u64) -> Result<()> {
        self.allocations
            .lock()
            .contains(&address)
            .then_some(())
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn free(&self, address: u64) -> Result<()> {
        // Taken out first: the address may be given to another context as soon as it is free.
        if !self.allocations.lock().remove(&address) || self.engine.memory().free(address).is_none()
        {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    pub(crate) fn free_all(&self) {
        for address in self.allocations.lock().drain() {
            self.engine.memory().free(address);
        }
    }
}
