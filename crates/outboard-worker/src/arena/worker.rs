//! Blocks of the arena in a session: mapped, opened for other devices, and unmapped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outboard_abi::own_tables::Parts;
use outboard_abi::{CUdevice_attribute as A, CUmemAccess_flags, CUmemAccessDesc, CUresult};
use outboard_driver::call;
use outboard_wire::device_id::DeviceId;
use outboard_wire::{ContextId, DevicePtr};

use super::offer::has;
use super::{Gone, Placed};
use crate::answer::Outcome;
use crate::contexts::current;
use crate::kinds::{location, memory_kind};
use crate::shares::Thing;
use crate::space::Mapping;
use crate::worker::Worker;

impl Worker {
    /// Maps a block of memory of the current context's device.
    pub(crate) fn map_block(&mut self, address: DevicePtr, bytes: u64) -> Outcome {
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
        self.memory.space.add_mapping(
            address,
            bytes,
            Mapping { charge: Some(Arc::new(charge)), failure: None },
        );
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
            .and_then(|()| self.set_part(address, bytes, Parts::DIVIDED));
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
        match self.memory.arena.offer.and_then(|offer| offer.parts) {
            // SAFETY: any addresses do; the driver checks them.
            Some(parts) => outboard_driver::check(unsafe { (parts.change)(address.0, bytes, how) }),
            None => Ok(()),
        }
    }

    /// A part of a block is allocated, or free.
    pub(crate) fn part_block(&mut self, address: DevicePtr, bytes: u64, open: bool) -> Outcome {
        let (base, _) =
            self.memory.arena.block_of(address, bytes).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if !self.memory.arena.is_block(base, self.contexts.here()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if !open && self.memory.arena.shared.remove(&address) {
            self.memory.shared.unshare(self.client.registry(), Thing::Memory(address));
        }
        self.set_part(address, bytes, if open { Parts::OPEN } else { Parts::CLOSED })
    }

    /// Removes a block from the account.
    fn forget_block(&mut self, address: DevicePtr) -> Option<Gone> {
        let (bytes, mapping) = self.memory.space.remove_mapping(address)?;
        self.memory.arena.blocks.remove(&address);
        let _ = self.memory.allocations.remove(address);
        let end = address.offset(bytes);
        let shared: Vec<DevicePtr> =
            self.memory.arena.shared.range(address..end).copied().collect();
        for allocation in shared {
            self.memory.arena.shared.remove(&allocation);
            self.memory.shared.unshare(self.client.registry(), Thing::Memory(allocation));
        }
        Some(Gone { address, bytes, mapping })
    }

    /// Unmaps a block of the current context, once no work can use it any more.
    pub(crate) fn unmap_block(&mut self, address: DevicePtr, bytes: u64) -> Outcome {
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
        let on_its_way = self.memory.returning.begin();
        self.helpers.run(move || {
            for context in contexts {
                let _ = call!(table, cuCtxSetCurrent(current(&context)))
                    .and_then(|()| call!(table, cuCtxSynchronize()));
            }
            gone.unmap(table);
            drop(on_its_way);
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
    pub(crate) fn blocks_end(&mut self) -> Vec<Gone> {
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
    pub(crate) fn peer_opens(&mut self, peer: ContextId) -> Outcome {
        let device = self.device_here()?;
        self.set_peer_access(peer, device, true)?;
        self.memory.arena.peers.entry(peer).or_default().insert(self.contexts.here(), device);
        Ok(())
    }

    /// It may no longer.
    pub(crate) fn peer_closes(&mut self, peer: ContextId) -> Outcome {
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
