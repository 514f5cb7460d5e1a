//! Device memory, and the map of what is allocated.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64};

use outboard_abi::CUresult;

use crate::addresses::Addresses;
use crate::backend::{ContextId, Result};
use crate::border::require;
use crate::context::Here;
use crate::process::Front;

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
}

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
