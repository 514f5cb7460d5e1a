//! Device memory, and the map of what is allocated.

use outboard_abi::CUresult;

use crate::backend::{Backend, ContextId, DevicePtr, Result, ServerId, UnifiedPtr};
use crate::border::require;
use crate::context::{Here, primary};
use crate::process::{Front, Process};
use crate::several::one_server;

pub(crate) use crate::parts::memory::{Allocation, Kind};

/// Base, bytes and allocation.
pub(crate) type Found = (UnifiedPtr, u64, Allocation);

/// What holds `address`.
pub(crate) fn find(front: &'static Front, address: UnifiedPtr) -> Option<Found> {
    front.memory.map.find(address)
}

/// A context of the device that has an allocation: its own, or the primary one for physical memory
/// that is mapped.
pub(crate) fn context_of(front: &'static Front, allocation: &Allocation) -> Result<ContextId> {
    match allocation.ctx {
        ContextId::NONE => Ok(primary(front, allocation.device)?.live()?.id),
        ctx => Ok(ctx),
    }
}

/// The context in which memory is filled for a call in `ctx`: that one, or one of the memory's own
/// server.
pub(crate) fn context_for(
    front: &'static Front,
    ctx: ContextId,
    allocation: &Allocation,
) -> Result<ContextId> {
    if allocation.server == ctx.server() { Ok(ctx) } else { context_of(front, allocation) }
}

/// Notes an allocation of `bytes` at `base`.
pub(crate) fn insert(front: &'static Front, here: &Here, base: UnifiedPtr, bytes: u64, kind: Kind) {
    insert_on(front, here, here.context.device, base, bytes, kind);
}

/// As [`insert`], for memory of a device that need not be the context's.
pub(crate) fn insert_on(
    front: &'static Front,
    here: &Here,
    device: usize,
    base: UnifiedPtr,
    bytes: u64,
    kind: Kind,
) {
    if kind.is_managed() || kind.is_host() {
        front.memory.shared.include(base, bytes);
    }
    let id = front.memory.next_id.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let (server, context) = (here.id.server(), here.context.handle);
    let allocation =
        Allocation { ctx: here.id, device, server, context, kind, synchronous: false, id };
    front.memory.map.insert(base, bytes, allocation);
}

/// Takes out the allocation that starts at `base`, if it is `wanted`.
pub(crate) fn remove(
    front: &'static Front,
    base: UnifiedPtr,
    wanted: impl Fn(Kind) -> bool,
) -> Option<(u64, Allocation)> {
    front.memory.map.remove(base, |allocation| wanted(allocation.kind))
}

/// Whether any allocation shares an address with these `bytes` at `base`.
pub(crate) fn overlaps(front: &'static Front, base: UnifiedPtr, bytes: u64) -> bool {
    front.memory.map.overlaps(base, bytes)
}

/// Forgets the allocations of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.memory.map.retain(|allocation| allocation.ctx != id);
}

/// Notes physical memory that has been mapped; no call may use it yet.
pub(crate) fn insert_mapped(
    front: &'static Front,
    (device, server): (usize, ServerId),
    base: DevicePtr,
    bytes: u64,
    memory: u64,
) {
    let id = front.memory.next_id.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let kind = Kind::Mapped { memory, accessible: false };
    front.memory.map.insert(
        base.unified(),
        bytes,
        Allocation {
            ctx: ContextId::NONE,
            device,
            server,
            context: 0,
            kind,
            synchronous: false,
            id,
        },
    );
}

/// Sets whether synchronous operations on the allocation that holds `address` always wait. `false`
/// if there is none.
pub(crate) fn set_synchronous(front: &'static Front, address: UnifiedPtr, now: bool) -> bool {
    front.memory.map.update(address, |allocation| allocation.synchronous = now)
}

/// Says whether the mapping at `base` may be used.
pub(crate) fn set_accessible(front: &'static Front, base: DevicePtr, now: bool) {
    front.memory.map.update(base.unified(), |allocation| {
        if let Kind::Mapped { accessible, .. } = &mut allocation.kind {
            *accessible = now;
        }
    });
}

/// Checks that `bytes` at `address` are device memory, all of one allocation or of mappings next to
/// each other.
pub(crate) fn check_device(
    front: &'static Front,
    address: DevicePtr,
    bytes: u64,
) -> Result<Allocation> {
    // Not by `find`: this is inlined, and then nothing but the allocation is copied.
    let found =
        front.memory.map.find(address.unified()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    check_found(front, &found, address.unified(), bytes)?;
    Ok(found.2)
}

/// As [`check_device`], for an allocation that has been looked up already. The map is asked only
/// for mappings behind it.
#[inline(always)]
pub(crate) fn check_found(
    front: &'static Front,
    found: &Found,
    address: UnifiedPtr,
    bytes: u64,
) -> Result<()> {
    let (base, len, allocation) = found;
    let mut covered = len - address.since(*base);
    let mapped = matches!(allocation.kind, Kind::Mapped { .. });
    require(!matches!(allocation.kind, Kind::Mapped { accessible: false, .. }))?;
    while covered < bytes {
        require(mapped)?;
        let (_, len, next) =
            find(front, address.offset(covered)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        require(matches!(next.kind, Kind::Mapped { accessible: true, .. }))?;
        covered += len;
    }
    Ok(())
}

/// Checks the target of a stream memory operation, and gives it to the stream's device.
pub(crate) fn value_address<B: Backend>(
    process: &'static Process<B>,
    ctx: ContextId,
    address: DevicePtr,
) -> Result<DevicePtr> {
    let allocation = check_device(process, address, 4)?;
    if !is_shared(&allocation) {
        one_server(ctx.server(), [allocation.server])?;
    }
    share(process, ctx, address.unified(), &allocation).map(|()| address)
}

/// Whether the program, and so any device, may use an allocation by its address.
fn is_shared(allocation: &Allocation) -> bool {
    // A variable is each server's own.
    allocation.kind.is_host() || allocation.kind == Kind::Managed
}

/// Has work in a context use an allocation, if that is memory which another server's device shares
/// with the program; other memory is left alone.
pub(crate) fn share<B: Backend>(
    process: &'static Process<B>,
    ctx: ContextId,
    address: UnifiedPtr,
    allocation: &Allocation,
) -> Result<()> {
    if allocation.server == ctx.server() {
        return Ok(());
    }
    match allocation.kind {
        Kind::ManagedGlobal => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ if is_shared(allocation) => process.backend.share_across(ctx, allocation.ctx, address),
        _ => Ok(()),
    }
}
