//! Device memory.

use outboard_abi::CUresult;
use outboard_driver::call;
use outboard_wire::DevicePtr;
use outboard_wire::messages::*;

use super::Context;
use crate::answer::{Answer, Outcome};
use crate::budget::{Charge, What};
use crate::generated::dispatch::MemoryCommands;
use crate::shares::Thing;
use crate::worker::Worker;

impl Worker {
    fn alloc(&mut self, bytes: u64) -> Result<DevicePtr, CUresult> {
        let device = self.device_here()?;
        let (address, charge) = self.hold(device, bytes, |worker| {
            let mut address = 0;
            call!(worker.table, cuMemAlloc_v2(&raw mut address, bytes as usize))?;
            Ok(DevicePtr(address))
        })?;
        self.memory.add(self.contexts.here(), address, bytes, charge);
        self.expect_copies(bytes);
        Ok(address)
    }

    /// Other sessions can no longer open what was at this address.
    fn unshare_freed(&mut self, address: DevicePtr) {
        self.memory.shared.unshare(self.client.registry(), Thing::Memory(address));
        self.memory.shared.unshare(self.client.registry(), Thing::Pooled(address));
    }

    /// Before memory is freed: the context to free it in, and what it counted for until then.
    fn forget_freed(&mut self, address: DevicePtr) -> Result<(Context, Option<Charge>), CUresult> {
        self.unshare_freed(address);
        let context = self.enter()?;
        self.forget_allocation(address)?;
        Ok((context, self.memory.budget.release(self.contexts.here(), What::At(address))))
    }

    fn alloc_async(&mut self, message: &MemoryAllocAsync) -> Result<DevicePtr, CUresult> {
        let stream = self.stream(message.stream)?;
        let device = self.device_here()?;
        self.memory.pools.use_them();
        let allocate = |worker: &mut Worker| {
            let mut address = 0;
            call!(worker.table, cuMemAllocAsync(&raw mut address, message.bytes as usize, stream))?;
            Ok(DevicePtr(address))
        };
        let undo = |worker: &mut Worker, address: DevicePtr| {
            let _ = call!(worker.table, cuMemFreeAsync(address.0, stream));
        };
        let address = self.hold_pooled(device, message.bytes, allocate, undo)?;
        self.memory.allocations.insert(address, message.bytes, self.contexts.here());
        self.expect_copies(message.bytes);
        Ok(address)
    }
}

impl MemoryCommands for Worker {
    fn memory_info(&mut self, _: MemoryInfo, answer: Answer<MemoryInfo>) {
        let outcome = self.memory_seen();
        answer.result(outcome.map(|(free, total)| MemoryInfoReply { free, total }));
    }

    fn memory_alloc(&mut self, message: MemoryAlloc, answer: Answer<MemoryAlloc>) {
        let outcome = self.alloc(message.bytes);
        answer.result(outcome.map(|address| MemoryAllocReply { address }));
    }

    fn memory_free(&mut self, message: MemoryFree, answer: Answer<MemoryFree>) {
        let address = message.address;
        match self.forget_freed(address) {
            // The driver waits for all work that may use it.
            Ok((context, charge))
                if !self.streams.waits.is_quiet(self.table, self.contexts.here()) =>
            {
                self.on_helper_when_quiet(
                    context,
                    answer,
                    move |table| {
                        let outcome = call!(table, cuMemFree_v2(address.0));
                        drop(charge);
                        outcome
                    },
                    |answer, outcome| answer.result(outcome.map(|()| MemoryFreeReply {})),
                )
            }
            Ok((_, charge)) => {
                let outcome = call!(self.table, cuMemFree_v2(address.0));
                drop(charge);
                answer.result(outcome.map(|()| MemoryFreeReply {}));
            }
            Err(error) => answer.error(error),
        }
    }

    fn memory_free_idle(&mut self, message: MemoryFreeIdle) -> Outcome {
        let address = message.address;
        let (context, charge) = self.forget_freed(address)?;
        if self.streams.waits.is_quiet(self.table, self.contexts.here()) {
            return call!(self.table, cuMemFree_v2(address.0));
        }
        // Another thread of the client has queued work meanwhile.
        let on_its_way = self.memory.returning.begin();
        self.when_quiet(context, move |entered| {
            let _ = entered.and_then(|table| call!(table, cuMemFree_v2(address.0)));
            drop(charge);
            drop(on_its_way);
        });
        Ok(())
    }

    fn memory_map(&mut self, message: MemoryMap, answer: Answer<MemoryMap>) {
        let outcome = self.map_block(message.address, message.bytes);
        answer.result(outcome.map(|()| MemoryMapReply {}));
    }

    fn memory_unmap(&mut self, message: MemoryUnmap) -> Outcome {
        self.unmap_block(message.address, message.bytes)
    }

    fn memory_part(&mut self, message: MemoryPart) -> Outcome {
        self.part_block(message.address, message.bytes, message.open)
    }

    fn memory_alloc_async(&mut self, message: MemoryAllocAsync, answer: Answer<MemoryAllocAsync>) {
        let outcome = self.alloc_async(&message);
        answer.result(outcome.map(|address| MemoryAllocAsyncReply { address }));
    }

    fn memory_free_async(&mut self, message: MemoryFreeAsync) -> Outcome {
        let stream = self.stream(message.stream)?;
        self.forget_allocation(message.address)?;
        self.unshare_freed(message.address);
        // Of another session's pool; what comes out of pools here counts with them.
        let charge = self.memory.budget.release(self.contexts.here(), What::At(message.address));
        if self.copies.are_any_unqueued() {
            let (context, address) = (self.enter()?, message.address);
            let counts = (charge, self.memory.returning.begin());
            self.copies.free_behind_unqueued(self.table, context, stream, address, counts);
            return Ok(());
        }
        call!(self.table, cuMemFreeAsync(message.address.0, stream))
    }
}
