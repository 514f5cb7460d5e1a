//! Memory at addresses of the client's choice.
//!
//! The worker reserves a part of its window, the *arena*, before there is a client. The client
//! assigns its addresses and has whole *blocks* mapped there. A device that checks every access is
//! told which parts of a block are allocated; others need not know.

mod offer;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use outboard_abi::{CUdevice_attribute as A, CUmemAccess_flags, CUmemAccessDesc, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::device_id::DeviceId;
use outboard_wire::handshake::arena::Arena as Terms;
use outboard_wire::{ContextId, DevicePtr};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Worker;
use super::answer::Outcome;
use super::commands::vmm::{location, memory_kind};
use super::contexts::current;
use super::shares::Thing;
use super::space::Mapping;
use offer::{CLOSED, DIVIDED, OPEN, has};

pub(super) use offer::Offer;

/// How long a block waits for another one to leave its addresses.
const PATIENCE: Duration = Duration::from_secs(2);

/// A block at its address.
struct Placed {
    /// The context whose memory it is.
    ctx: ContextId,
    bytes: u64,
}

/// The blocks that are mapped in the arena.
#[derive(Default)]
pub(super) struct Arena {
    offer: Option<Offer>,
    blocks: BTreeMap<DevicePtr, Placed>,
    /// Contexts that may use the memory of a context of another device, by that one, with the
    /// ordinals of their devices.
    peers: HashMap<ContextId, BTreeMap<ContextId, u32>>,
    /// Allocations that other sessions may have.
    shared: BTreeSet<DevicePtr>,
    leaving: Leaving,
}

impl Arena {
    pub(super) fn new(offer: Option<Offer>) -> Arena {
        Arena { offer, ..Arena::default() }
    }

    pub(super) fn terms(&self) -> Option<Terms> {
        self.offer.map(|offer| offer.terms)
    }

    /// Whether the driver is told of parts of blocks.
    pub(super) fn is_told(&self) -> bool {
        self.offer.is_some_and(|offer| offer.set_part.is_some())
    }

    /// The block that all of these bytes lie in: where it begins, and its bytes.
    pub(super) fn block_of(&self, address: DevicePtr, bytes: u64) -> Option<(DevicePtr, u64)> {
        let (base, block) = self.blocks.range(..=address).next_back()?;
        let offset = address.since(*base);
        (offset < block.bytes && bytes <= block.bytes - offset).then_some((*base, block.bytes))
    }

    /// Whether a block of this context begins at an address.
    fn is_block(&self, address: DevicePtr, ctx: ContextId) -> bool {
        self.blocks.get(&address).is_some_and(|block| block.ctx == ctx)
    }

    /// Notes that other sessions may have the allocation at this address.
    pub(super) fn shared(&mut self, address: DevicePtr) {
        if self.block_of(address, 1).is_some() {
            self.shared.insert(address);
        }
    }
}

/// Blocks whose addresses will be free once the device is done with them.
#[derive(Clone, Default)]
struct Leaving(Arc<(Mutex<Vec<Range<u64>>>, Condvar)>);

impl Leaving {
    fn all(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.0.0.lock()
    }

    fn begin(&self, range: Range<u64>) {
        self.all().push(range);
    }

    fn end(&self, range: &Range<u64>) {
        self.all().retain(|other| other != range);
        self.0.1.notify_all();
    }

    /// Waits until none of these addresses is one of theirs, within reason.
    fn wait(&self, range: &Range<u64>) -> Outcome {
        let meets = |all: &mut Vec<Range<u64>>| {
            all.iter().any(|other| other.start < range.end && range.start < other.end)
        };
        let mut all = self.all();
        self.0.1.wait_while_for(&mut all, meets, PATIENCE);
        if meets(&mut all) { Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) } else { Ok(()) }
    }
}

/// A block on its way out of the arena; its memory counts until this is dropped.
pub(super) struct Gone {
    address: DevicePtr,
    mapping: Mapping,
}

impl Gone {
    /// Unmaps it. No work uses it any more.
    pub(super) fn unmap(self, table: &Table) {
        let outcome = call!(table, cuMemUnmap(self.address.0, self.mapping.bytes as usize));
        if let Err(error) = outcome {
            tracing::warn!(
                error = error.0,
                address = self.address.0,
                "a block of memory could not be unmapped"
            );
        }
    }
}

impl Worker {
    /// Maps a block of memory of the current context's device.
    pub(super) fn map_block(&mut self, address: DevicePtr, bytes: u64) -> Outcome {
        let terms = self.memory.arena.terms().ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        let end = address.checked_add(bytes).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if !address.0.is_multiple_of(terms.granule) || !bytes.is_multiple_of(terms.granule) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.memory.arena.leaving.wait(&(address.0..end.0))?;
        self.memory.space.check_free(address, bytes)?;
        let device = self.device_here()?;
        let ((), charge) =
            self.hold(device, bytes, |worker| worker.place_block(device, address, bytes))?;
        self.memory
            .space
            .add_mapping(address, Mapping { bytes, charge: Some(Arc::new(charge)), failure: None });
        self.memory.arena.blocks.insert(address, Placed { ctx: self.contexts.here(), bytes });
        self.memory.allocations.insert(address, bytes, self.contexts.here());
        self.expect_copies(bytes);
        Ok(())
    }

    fn place_block(&self, device: u32, address: DevicePtr, bytes: u64) -> Outcome {
        let table = self.table;
        let direct = self.offered.device(device).is_some_and(|device| {
            has(device, A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)
        });
        // The software device shares memory in another way, which takes no descriptor for each
        // block.
        let types = u32::from(!self.memory.arena.is_told());
        let prop = memory_kind(location(DeviceId::new(device)), types, direct);
        let mut handle = 0;
        call!(table, cuMemCreate(&raw mut handle, bytes as usize, &raw const prop, 0))?;
        let mapped = call!(table, cuMemMap(address.0, bytes as usize, 0, handle, 0));
        // It is there as long as it is mapped.
        let released = call!(table, cuMemRelease(handle));
        mapped.and(released)?;
        let peers = self
            .memory
            .arena
            .peers
            .get(&self.contexts.here())
            .into_iter()
            .flat_map(BTreeMap::values)
            .copied();
        let devices: BTreeSet<u32> = peers.chain([device]).collect();
        let opened = self
            .set_block_access(address, bytes, devices, true)
            .and_then(|()| self.set_part(address, bytes, DIVIDED));
        if opened.is_err() {
            let _ = call!(table, cuMemUnmap(address.0, bytes as usize));
        }
        opened
    }

    fn set_block_access(
        &self,
        address: DevicePtr,
        bytes: u64,
        devices: impl IntoIterator<Item = u32>,
        open: bool,
    ) -> Outcome {
        let flags = match open {
            true => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            false => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
        };
        let desc = |device| CUmemAccessDesc { location: location(DeviceId::new(device)), flags };
        let all: Vec<CUmemAccessDesc> = devices.into_iter().map(desc).collect();
        call!(self.table, cuMemSetAccess(address.0, bytes as usize, all.as_ptr(), all.len()))
    }

    fn set_part(&self, address: DevicePtr, bytes: u64, how: u32) -> Outcome {
        match self.memory.arena.offer.and_then(|offer| offer.set_part) {
            // SAFETY: any addresses do; the driver checks them.
            Some(set_part) => outboard_driver::check(unsafe { set_part(address.0, bytes, how) }),
            None => Ok(()),
        }
    }

    /// A part of a block is allocated, or free.
    pub(super) fn part_block(&mut self, address: DevicePtr, bytes: u64, open: bool) -> Outcome {
        let (base, _) =
            self.memory.arena.block_of(address, bytes).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if !self.memory.arena.is_block(base, self.contexts.here()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if !open && self.memory.arena.shared.remove(&address) {
            self.memory.shared.unshare(self.client.registry(), Thing::Memory(address));
        }
        self.set_part(address, bytes, if open { OPEN } else { CLOSED })
    }

    /// Removes a block from the account.
    fn forget_block(&mut self, address: DevicePtr) -> Option<Gone> {
        let mapping = self.memory.space.remove_mapping(address)?;
        self.memory.arena.blocks.remove(&address);
        let _ = self.memory.allocations.remove(address);
        let end = address.offset(mapping.bytes);
        let shared: Vec<DevicePtr> =
            self.memory.arena.shared.range(address..end).copied().collect();
        for allocation in shared {
            self.memory.arena.shared.remove(&allocation);
            self.memory.shared.unshare(self.client.registry(), Thing::Memory(allocation));
        }
        Some(Gone { address, mapping })
    }

    /// Unmaps a block of the current context, once no work can use it any more.
    pub(super) fn unmap_block(&mut self, address: DevicePtr, bytes: u64) -> Outcome {
        if !self.memory.arena.is_block(address, self.contexts.here())
            || self.memory.space.whole(address, bytes)?.len() != 1
        {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let Some(gone) = self.forget_block(address) else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        if self.all_quiet() {
            gone.unmap(self.table);
            return Ok(());
        }
        // Another thread of the client has queued work meanwhile. The driver does not wait for it.
        let (table, leaving, range) =
            (self.table, self.memory.arena.leaving.clone(), address.0..address.0 + bytes);
        let contexts: Vec<_> = self.contexts.all().copied().collect();
        leaving.begin(range.clone());
        self.helpers.run(move || {
            for context in contexts {
                let _ = call!(table, cuCtxSetCurrent(current(&context)))
                    .and_then(|()| call!(table, cuCtxSynchronize()));
            }
            gone.unmap(table);
            leaving.end(&range);
        });
        Ok(())
    }

    /// Whether nothing is left to do in any context.
    fn all_quiet(&mut self) -> bool {
        let here = self.contexts.here();
        let quiet = self.contexts.names().into_iter().all(|ctx| {
            self.contexts.turn_to(ctx);
            self.enter().is_ok() && self.streams.waits.is_quiet(self.table, ctx)
        });
        self.contexts.turn_to(here);
        quiet
    }

    /// The blocks of the current context, which is about to end.
    pub(super) fn blocks_end(&mut self) -> Vec<Gone> {
        self.memory.arena.peers.remove(&self.contexts.here());
        for accessors in self.memory.arena.peers.values_mut() {
            accessors.remove(&self.contexts.here());
        }
        let all = self.memory.arena.blocks.iter();
        let blocks: Vec<DevicePtr> = all
            .filter(|(_, block)| block.ctx == self.contexts.here())
            .map(|(base, _)| *base)
            .collect();
        blocks.into_iter().filter_map(|address| self.forget_block(address)).collect()
    }

    /// The current context may use the memory of another device's context from now on.
    pub(super) fn peer_opens(&mut self, peer: ContextId) -> Outcome {
        let device = self.device_here()?;
        self.set_peer_access(peer, device, true)?;
        self.memory.arena.peers.entry(peer).or_default().insert(self.contexts.here(), device);
        Ok(())
    }

    /// It may no longer.
    pub(super) fn peer_closes(&mut self, peer: ContextId) -> Outcome {
        let device = self.device_here()?;
        let Some(accessors) = self.memory.arena.peers.get_mut(&peer) else { return Ok(()) };
        accessors.remove(&self.contexts.here());
        // Another context of the same device may use it still.
        if accessors.values().any(|other| *other == device) {
            return Ok(());
        }
        self.set_peer_access(peer, device, false)
    }

    fn set_peer_access(&self, owner: ContextId, device: u32, open: bool) -> Outcome {
        for (base, block) in self.memory.arena.blocks.iter().filter(|(_, block)| block.ctx == owner)
        {
            self.set_block_access(*base, block.bytes, [device], open)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_beyond_a_block_is_in_none() {
        let mut arena = Arena::default();
        let base = DevicePtr(0x1000);
        arena.blocks.insert(base, Placed { ctx: ContextId(1), bytes: 0x400 });
        let block = Some((base, 0x400));
        assert_eq!(
            (arena.block_of(base, 0x400), arena.block_of(base.offset(0x3ff), 1)),
            (block, block)
        );
        for (address, bytes) in
            [(0xfff, 1), (0x1400, 1), (0x1400, 0), (0x1001, 0x400), (0x1200, u64::MAX), (0x9000, 8)]
        {
            assert_eq!(arena.block_of(DevicePtr(address), bytes), None, "{address:#x} {bytes:#x}");
        }
        assert!(arena.is_block(base, ContextId(1)) && !arena.is_block(base, ContextId(2)));
    }

    #[test]
    fn a_block_waits_for_one_that_leaves_its_addresses() {
        let leaving = Leaving::default();
        leaving.begin(10..20);
        assert_eq!((leaving.wait(&(20..30)), leaving.wait(&(0..10))), (Ok(()), Ok(())));
        let other = leaving.clone();
        let ended = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            other.end(&(10..20));
        });
        assert_eq!(leaving.wait(&(19..21)), Ok(()));
        ended.join().unwrap();
        assert!(leaving.all().is_empty());
    }
}
