//! Device memory, and the map of what is allocated.

use core::ffi::c_uint;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64};

use outboard_abi::{CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};

use crate::addresses::Addresses;
use crate::backend::{Backend, ContextId, Result};
use crate::border::{put, put_if, require};
use crate::context::{self, Here};
use crate::process::{Front, Process};
use crate::{pool, stream};

/// An allocation that the program knows by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) ctx: ContextId,
    /// The visible device's index.
    pub(crate) device: usize,
    /// The context's handle, for `cuPointerGetAttribute`.
    pub(crate) context: u64,
    pub(crate) kind: Kind,
    /// Whether synchronous operations on it always wait for the device: `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub(crate) synchronous: bool,
    /// Unique in the process, for `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub(crate) id: u64,
}

/// What kind of memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Device memory.
    Device,
    /// Device memory of a stream-ordered allocation, and the handle of its pool: 0 for the device's default one.
    Pooled(u64),
    /// Device memory that a graph allocates: it is known as long as the graph, whether a launch has it or not.
    Graph,
    /// Memory of another process.
    Opened,
    /// Managed memory: of the device, and the host's to touch.
    Managed,
    /// A variable of a module, which lives as long as the module.
    Global,
    /// A managed variable of a module.
    ManagedGlobal,
    /// Physical memory mapped by the virtual-memory calls.
    Mapped {
        /// The physical memory's handle.
        memory: u64,
        /// Whether any device may use it.
        accessible: bool,
    },
    /// Page-locked memory that we allocated, with the flags of `cuMemHostAlloc`.
    HostAllocated(u32),
    /// Page-locked memory of the program, with the flags of `cuMemHostRegister`.
    HostRegistered(u32),
}

/// The allocations of a process, by address.
pub(crate) struct Allocations {
    map: LazyLock<Addresses<Allocation>>,
    next_id: AtomicU64,
    /// Whether any has ever been made synchronous: hardly any program does, and then copies need not ask.
    any_synchronous: AtomicBool,
}

impl Allocations {
    pub(crate) const fn new() -> Allocations {
        Allocations {
            map: LazyLock::new(Addresses::new),
            next_id: AtomicU64::new(1),
            any_synchronous: AtomicBool::new(false),
        }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.map.count()
    }
}

/// Rows of `cuMemAllocPitch` begin at multiples of this, as on devices of today.
const PITCH: u64 = 512;

impl Kind {
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Kind::HostAllocated(_) | Kind::HostRegistered(_))
    }

    pub(crate) fn is_managed(self) -> bool {
        matches!(self, Kind::Managed | Kind::ManagedGlobal)
    }
}

/// Base, bytes and allocation that hold `address`.
pub(crate) fn find(front: &'static Front, address: u64) -> Option<(u64, u64, Allocation)> {
    front.memory.map.find(address)
}

/// Notes an allocation of `bytes` at `base`.
pub(crate) fn insert(front: &'static Front, here: &Here, base: u64, bytes: u64, kind: Kind) {
    insert_on(front, here, here.context.device, base, bytes, kind);
}

/// As [`insert`], for memory of a device that need not be the context's.
pub(crate) fn insert_on(front: &'static Front, here: &Here, device: usize, base: u64, bytes: u64, kind: Kind) {
    let id = front.memory.next_id.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let allocation = Allocation { ctx: here.id, device, context: here.context.handle, kind, synchronous: false, id };
    front.memory.map.insert(base, bytes, allocation);
}

/// Takes out the allocation that starts at `base`, if it is `wanted`.
pub(crate) fn remove(front: &'static Front, base: u64, wanted: impl Fn(Kind) -> bool) -> Option<(u64, Allocation)> {
    front.memory.map.remove(base, |allocation| wanted(allocation.kind))
}

/// Whether any allocation shares an address with these `bytes` at `base`.
pub(crate) fn overlaps(front: &'static Front, base: u64, bytes: u64) -> bool {
    front.memory.map.overlaps(base, bytes)
}

/// Forgets the allocations of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.memory.map.retain(|allocation| allocation.ctx != id);
}

/// The context of mapped memory: none.
const NO_CONTEXT: ContextId = ContextId(0);

/// Notes physical memory that has been mapped; nobody may use it yet.
pub(crate) fn insert_mapped(front: &'static Front, device: usize, base: u64, bytes: u64, memory: u64) {
    let id = front.memory.next_id.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let kind = Kind::Mapped { memory, accessible: false };
    front.memory.map.insert(
        base,
        bytes,
        Allocation { ctx: NO_CONTEXT, device, context: 0, kind, synchronous: false, id },
    );
}

/// Sets whether synchronous operations on the allocation that holds `address` always wait. `false` if there is none.
pub(crate) fn set_synchronous(front: &'static Front, address: u64, now: bool) -> bool {
    front.memory.any_synchronous.fetch_or(now, std::sync::atomic::Ordering::Relaxed);
    front.memory.map.update(address, |allocation| allocation.synchronous = now)
}

/// Whether synchronous operations on what is at `address` always wait for the device.
pub(crate) fn is_synchronous(front: &'static Front, address: u64) -> bool {
    front.memory.any_synchronous.load(std::sync::atomic::Ordering::Relaxed)
        && find(front, address).is_some_and(|(_, _, allocation)| allocation.synchronous)
}

/// Says whether the mapping at `base` may be used.
pub(crate) fn set_accessible(front: &'static Front, base: u64, now: bool) {
    front.memory.map.update(base, |allocation| {
        if let Kind::Mapped { accessible, .. } = &mut allocation.kind {
            *accessible = now;
        }
    });
}

/// Checks that `bytes` at `address` are device memory, all of one allocation or of mappings next to each other.
pub(crate) fn check_device(front: &'static Front, address: u64, bytes: u64) -> Result<Allocation> {
    let map = &*front.memory.map;
    let (base, len, allocation) = map.find(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let mut covered = len - (address - base);
    let mapped = matches!(allocation.kind, Kind::Mapped { .. });
    require(!matches!(allocation.kind, Kind::Mapped { accessible: false, .. }))?;
    while covered < bytes {
        require(mapped)?;
        let (_, len, next) = map.find(address + covered).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        require(matches!(next.kind, Kind::Mapped { accessible: true, .. }))?;
        covered += len;
    }
    Ok(allocation)
}

/// Checks the target of a stream memory operation.
pub(crate) fn value_address(front: &'static Front, address: u64) -> Result<u64> {
    check_device(front, address, 4).map(|_| address)
}

pub unsafe fn cuMemAlloc_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: usize,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && bytes > 0)?;
    crate::capture::refuse_unsafe(process)?;
    let address = here.note(process.backend.memory_alloc(here.id, bytes as u64))?;
    insert(process, &here, address, bytes as u64, Kind::Device);
    // SAFETY: the program's out parameter.
    unsafe { put(out, address) }
}

/// An address as programs of before CUDA 3.2 have it. Memory at another one is not for them.
fn narrow<B: Backend>(process: &'static Process<B>, address: u64) -> Result<u32> {
    u32::try_from(address).map_err(|_| {
        // SAFETY: allocated for this call, and not given to the program.
        let _ = unsafe { cuMemFree_v2(process, address) };
        CUresult::CUDA_ERROR_OUT_OF_MEMORY
    })
}

pub unsafe fn cuMemAlloc<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr_v1,
    bytes: c_uint,
) -> Result<()> {
    require(!out.is_null())?;
    let mut address = 0;
    // SAFETY: the out parameters are ours and the program's.
    unsafe {
        cuMemAlloc_v2(process, &raw mut address, bytes as usize)?;
        put(out, narrow(process, address)?)
    }
}

pub unsafe fn cuMemAllocPitch<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr_v1,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> Result<()> {
    require(!out.is_null() && !pitch.is_null())?;
    let (mut address, mut row) = (0, 0);
    // SAFETY: the out parameters are ours and the program's.
    unsafe {
        cuMemAllocPitch_v2(process, &raw mut address, &raw mut row, width as usize, height as usize, element)?;
        put(out, narrow(process, address)?)?;
        put(pitch, row as c_uint)
    }
}

pub unsafe fn cuMemFree<B: Backend>(process: &'static Process<B>, address: CUdeviceptr_v1) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemFree_v2(process, address.into()) }
}

pub unsafe fn cuMemGetInfo<B: Backend>(
    process: &'static Process<B>,
    free: *mut c_uint,
    total: *mut c_uint,
) -> Result<()> {
    require(!free.is_null() && !total.is_null())?;
    let (mut free_bytes, mut total_bytes) = (0, 0);
    let narrow = |bytes: usize| c_uint::try_from(bytes).unwrap_or(c_uint::MAX);
    // SAFETY: the out parameters are ours and the program's.
    unsafe {
        cuMemGetInfo_v2(process, &raw mut free_bytes, &raw mut total_bytes)?;
        put(free, narrow(free_bytes))?;
        put(total, narrow(total_bytes))
    }
}

pub unsafe fn cuMemGetAddressRange<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr_v1,
    bytes: *mut c_uint,
    address: CUdeviceptr_v1,
) -> Result<()> {
    let (mut base, mut len) = (0, 0);
    // SAFETY: the out parameters are ours.
    unsafe { cuMemGetAddressRange_v2(process, &raw mut base, &raw mut len, address.into()) }?;
    let wide = |_| CUresult::CUDA_ERROR_INVALID_VALUE;
    let (base, len) =
        (u32::try_from(base).map_err(wide)?, c_uint::try_from(len).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?);
    // SAFETY: the program's out parameters, each of which may be left out.
    unsafe {
        put_if(out, base);
        put_if(bytes, len);
    }
    Ok(())
}

pub unsafe fn cuMemAllocPitch_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Result<()> {
    require(!pitch.is_null() && width > 0 && height > 0 && matches!(element, 4 | 8 | 16))?;
    let row = (width as u64).checked_next_multiple_of(PITCH).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let bytes = row.checked_mul(height as u64).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    // SAFETY: the program's out parameters.
    unsafe {
        cuMemAlloc_v2(process, out, bytes as usize)?;
        put(pitch, row as usize)
    }
}

pub unsafe fn cuMemFree_v2<B: Backend>(process: &'static Process<B>, address: CUdeviceptr) -> Result<()> {
    crate::state::ready(process)?;
    if address == 0 {
        return Ok(());
    }
    let is_device = |kind| matches!(kind, Kind::Device | Kind::Pooled(_) | Kind::Graph | Kind::Managed);
    crate::capture::refuse_unsafe(process)?;
    // The allocation's own context frees it, whichever is current; a faulted one reports its fault.
    let (_, _, allocation) = find(process, address)
        .filter(|(base, _, allocation)| *base == address && is_device(allocation.kind))
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let here = context::by_id(process, allocation.ctx).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.live()?;
    if allocation.kind == Kind::Managed {
        let (bytes, _) = remove(process, address, is_device).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        crate::managed::forget(process, address, bytes);
        return here.note(process.backend.managed_free(here.id, address));
    }
    if allocation.kind != Kind::Graph || !crate::graph::memory::is_owned(process, address) {
        remove(process, address, is_device).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    }
    here.note(process.backend.memory_free(here.id, address))
}

pub unsafe fn cuMemGetInfo_v2<B: Backend>(
    process: &'static Process<B>,
    free: *mut usize,
    total: *mut usize,
) -> Result<()> {
    let here = context::current(process)?;
    require(!free.is_null() && !total.is_null())?;
    let (f, t) = here.note(process.backend.memory_info(here.id))?;
    // SAFETY: the program's out parameters.
    unsafe {
        put(free, f as usize)?;
        put(total, t as usize)
    }
}

pub unsafe fn cuMemGetAddressRange_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: *mut usize,
    address: CUdeviceptr,
) -> Result<()> {
    context::current(process)?;
    let (base, len, _) = find(process, address).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    // SAFETY: the program's out parameters, each of which may be left out.
    unsafe {
        put_if(out, base);
        put_if(bytes, len as usize);
    }
    Ok(())
}

pub unsafe fn cuMemAllocAsync<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    let (here, stream) = stream::find(process, stream)?;
    require(!out.is_null())?;
    let address = if bytes == 0 { 0 } else { pool::alloc_from_current(process, &here, bytes as u64, stream)? };
    // SAFETY: the program's out parameter.
    unsafe { put(out, address) }
}

pub unsafe fn cuMemFreeAsync<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    stream: CUstream,
) -> Result<()> {
    let (here, stream) = stream::find(process, stream)?;
    if address == 0 {
        return Ok(());
    }
    if let Some(outcome) = crate::capture::free(process, &here, stream, address) {
        return outcome;
    }
    crate::capture::refuse_unsafe(process)?;
    let is_device = |kind| matches!(kind, Kind::Device | Kind::Pooled(_) | Kind::Graph);
    if !crate::graph::memory::is_owned(process, address) {
        remove(process, address, is_device).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    }
    here.note(process.backend.memory_free_async(here.id, address, stream))
}
