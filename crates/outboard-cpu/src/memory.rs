//! Memory of the devices, and host memory that their kernels may use.
//!
//! Page-locked host memory is ordinary memory of the process, which the engines are told of:
//! kernels use it at its own address.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result};
use outboard_ranges::RangeMap;
use outboard_simt::Engine;
use outboard_transport::page::page_bytes;
use parking_lot::Mutex;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap_anonymous, msync, munmap};

/// Host memory that kernels may use.
#[derive(Default)]
pub(crate) struct HostMemory(Mutex<RangeMap<u64, Range>>);

struct Range {
    ctx: ContextId,
    /// Bytes of our mapping; 0 for memory of the program.
    mapped: u64,
}

impl HostMemory {
    /// Maps fresh memory.
    pub(crate) fn alloc(
        &self,
        engines: &[Arc<Engine>],
        ctx: ContextId,
        bytes: usize,
    ) -> Result<*mut u8> {
        self.map(engines, ctx, bytes, MapFlags::PRIVATE)
    }

    /// Maps fresh memory, which may be more than there is: only pages that are touched take any.
    pub(crate) fn alloc_untouched(
        &self,
        engines: &[Arc<Engine>],
        ctx: ContextId,
        bytes: usize,
    ) -> Result<*mut u8> {
        self.map(engines, ctx, bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    fn map(
        &self,
        engines: &[Arc<Engine>],
        ctx: ContextId,
        bytes: usize,
        flags: MapFlags,
    ) -> Result<*mut u8> {
        let mapped = (bytes as u64)
            .checked_next_multiple_of(page_bytes())
            .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping where the kernel likes touches nothing that exists.
        let memory = unsafe { mmap_anonymous(ptr::null_mut(), mapped as usize, access, flags) }
            .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.insert(engines, memory as u64, bytes as u64, Range { ctx, mapped });
        Ok(memory.cast())
    }

    /// Whether an address is in such memory.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.0.lock().get(address).is_some()
    }

    /// Takes in memory of the program.
    pub(crate) fn register(
        &self,
        engines: &[Arc<Engine>],
        ctx: ContextId,
        memory: *mut u8,
        bytes: usize,
    ) -> Result<()> {
        let (address, bytes) = (memory as u64, bytes as u64);
        let end = address.checked_add(bytes).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if self.0.lock().overlaps(address, bytes) {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        let first = address & !(page_bytes() - 1);
        // SAFETY: an asynchronous flush changes nothing; it fails when pages of the range are not
        // mapped, which is what is asked.
        unsafe { msync(first as *mut c_void, (end - first) as usize, MsyncFlags::ASYNC) }
            .map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.insert(engines, address, bytes, Range { ctx, mapped: 0 });
        Ok(())
    }

    /// Forgets memory that nothing queued uses any more, and unmaps what was mapped here. `owned`
    /// tells which of the two it should be.
    pub(crate) fn remove(
        &self,
        engines: &[Arc<Engine>],
        memory: *mut u8,
        owned: bool,
    ) -> Result<()> {
        let mut ranges = self.0.lock();
        match ranges.get(memory as u64) {
            Some((_, range)) if (range.mapped != 0) == owned => {}
            _ if owned => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            _ => return Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
        }
        if let Some((_, range)) = ranges.remove(memory as u64) {
            release(engines, memory as u64, &range);
        }
        Ok(())
    }

    /// Forgets all that a context made.
    pub(crate) fn remove_context(&self, engines: &[Arc<Engine>], ctx: ContextId) {
        self.0.lock().retain(|address, _, range| {
            if range.ctx == ctx {
                release(engines, address, range);
            }
            range.ctx != ctx
        });
    }

    fn insert(&self, engines: &[Arc<Engine>], address: u64, bytes: u64, range: Range) {
        for engine in engines {
            // SAFETY: the memory is mapped, and stays so until it is unregistered: by the program's
            // promise (`cuMemHostRegister`), or because it is our mapping, which `release`
            // unregisters first.
            unsafe { engine.memory().register_host(address, bytes) };
        }
        self.0.lock().insert(address, bytes, range);
    }
}

fn release(engines: &[Arc<Engine>], address: u64, range: &Range) {
    for engine in engines {
        engine.memory().unregister_host(address);
    }
    if range.mapped != 0 {
        // SAFETY: our own mapping, which the program has given back and no engine knows any more.
        let _ = unsafe { munmap(address as *mut c_void, range.mapped as usize) };
    }
}

/// Checks that a range can be copied or filled: in one live allocation of a device, or in host
/// memory that kernels may use.
pub(crate) fn check_range(engines: &[Arc<Engine>], address: u64, bytes: u64) -> Result<()> {
    let valid =
        engines.iter().map(|engine| engine.memory()).any(|memory| match memory.contains(address) {
            true => memory.check(address, bytes),
            false => memory.is_registered_host(address, bytes),
        });
    valid.then_some(()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Bytes from the first byte of `height` rows to behind the last one.
pub(crate) fn extent(width: u64, height: u64, pitch: u64) -> Result<u64> {
    let before = height.saturating_sub(1).checked_mul(pitch);
    before.and_then(|before| before.checked_add(width)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}
