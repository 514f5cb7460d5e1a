//! Memory pools. Of devices, not of contexts: most commands come without one.

use outboard_abi::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemPool_attribute as A,
    CUmemPoolProps, CUresult,
};
use outboard_driver::call;
use outboard_wire::DevicePtr;
use outboard_wire::messages::*;

use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::PoolCommands;
use crate::kinds::posix;
use crate::shares::Thing;
use crate::worker::Worker;

/// Access of so many devices may be set at once.
const MOST_DEVICES: usize = 64;

/// The attributes whose value is an `int`.
fn is_flag(attribute: u32) -> Result<bool, CUresult> {
    match A(attribute) {
        A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => Ok(true),
        A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        | A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        | A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
        | A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        | A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => Ok(false),
        // What the driver would write for another one has a size that is not known.
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

impl Worker {
    fn make_pool(&mut self, m: &PoolCreate) -> Outcome {
        self.memory.pools.check_new(m.pool)?;
        // SAFETY: a plain structure of numbers and a pointer, all of which may be zero.
        let mut props: CUmemPoolProps = unsafe { std::mem::zeroed() };
        props.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location = self.location(m.device)?;
        props.handleTypes = posix(m.handle_types)?;
        props.maxSize = m.max_bytes as usize;
        props.usage = u16::try_from(m.usage).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let mut pool = core::ptr::null_mut();
        call!(self.table, cuMemPoolCreate(&raw mut pool, &raw const props))?;
        self.memory.pools.add(m.pool, pool, m.device.ordinal());
        Ok(())
    }

    fn attribute(&self, m: &PoolAttribute) -> Result<u64, CUresult> {
        is_flag(m.attribute)?;
        let (pool, _) = self.memory.pools.get(m.pool)?;
        // Four bytes of it or all eight are written; it is little-endian either way.
        let mut value = 0u64;
        call!(
            self.table,
            cuMemPoolGetAttribute(pool.get(), A(m.attribute), (&raw mut value).cast())
        )?;
        Ok(value)
    }

    fn set_pool_access(&self, m: &PoolSetAccess) -> Outcome {
        let (pool, _) = self.memory.pools.get(m.pool)?;
        if m.access.len() > MOST_DEVICES {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut desc = Vec::with_capacity(m.access.len());
        for (device, flags) in &m.access {
            desc.push(CUmemAccessDesc {
                location: self.location(*device)?,
                flags: CUmemAccess_flags(*flags),
            });
        }
        call!(self.table, cuMemPoolSetAccess(pool.get(), desc.as_ptr(), desc.len()))
    }

    fn access(&self, m: &PoolAccess) -> Result<u32, CUresult> {
        let (pool, _) = self.memory.pools.get(m.pool)?;
        let (mut flags, mut place) = (CUmemAccess_flags(0), self.location(m.device)?);
        call!(self.table, cuMemPoolGetAccess(&raw mut flags, pool.get(), &raw mut place))?;
        Ok(flags.0)
    }

    fn alloc_from(&mut self, m: &PoolAlloc) -> Result<DevicePtr, CUresult> {
        let stream = self.stream(m.stream)?;
        let (pool, device) = self.memory.pools.get(m.pool)?;
        self.memory.pools.use_them();
        let allocate = |worker: &mut Worker| {
            let mut address = 0;
            call!(
                worker.table,
                cuMemAllocFromPoolAsync(&raw mut address, m.bytes as usize, pool.get(), stream)
            )?;
            Ok(DevicePtr(address))
        };
        let undo = |worker: &mut Worker, address: DevicePtr| {
            let _ = call!(worker.table, cuMemFreeAsync(address.0, stream));
        };
        let address = self.hold_pooled(device, m.bytes, allocate, undo)?;
        self.memory.allocations.insert(address, m.bytes, self.contexts.here());
        Ok(address)
    }
}

impl PoolCommands for Worker {
    fn pool_default(&mut self, m: PoolDefault) -> Outcome {
        self.memory.pools.check_new(m.pool)?;
        self.location(m.device)?;
        let mut pool = core::ptr::null_mut();
        call!(self.table, cuDeviceGetDefaultMemPool(&raw mut pool, m.device.ordinal() as i32))?;
        self.memory.pools.add(m.pool, pool, m.device.ordinal());
        Ok(())
    }

    fn pool_create(&mut self, m: PoolCreate, answer: Answer<PoolCreate>) {
        let outcome = self.make_pool(&m);
        answer.result(outcome.map(|()| PoolCreateReply {}));
    }

    fn pool_destroy(&mut self, m: PoolDestroy) -> Outcome {
        self.memory.shared.unshare(self.client.registry(), Thing::Pool(m.pool));
        self.memory.pools.destroy_ended(self.table, |_| true);
        self.memory.pools.end(self.table, m.pool)
    }

    fn pool_trim(&mut self, m: PoolTrim, answer: Answer<PoolTrim>) {
        match self.memory.pools.get(m.pool) {
            Ok((pool, _)) => self.on_free_helper(
                answer,
                move |table| call!(table, cuMemPoolTrimTo(pool.get(), m.keep as usize)),
                |answer, outcome| answer.result(outcome.map(|()| PoolTrimReply {})),
            ),
            Err(error) => answer.error(error),
        }
    }

    fn pool_attribute(&mut self, m: PoolAttribute, answer: Answer<PoolAttribute>) {
        answer.result(self.attribute(&m).map(|value| PoolAttributeReply { value }));
    }

    fn pool_set_attribute(&mut self, m: PoolSetAttribute) -> Outcome {
        is_flag(m.attribute)?;
        let (pool, _) = self.memory.pools.get(m.pool)?;
        let mut value = m.value;
        call!(
            self.table,
            cuMemPoolSetAttribute(pool.get(), A(m.attribute), (&raw mut value).cast())
        )
    }

    fn pool_set_access(&mut self, m: PoolSetAccess, answer: Answer<PoolSetAccess>) {
        answer.result(self.set_pool_access(&m).map(|()| PoolSetAccessReply {}));
    }

    fn pool_access(&mut self, m: PoolAccess, answer: Answer<PoolAccess>) {
        answer.result(self.access(&m).map(|flags| PoolAccessReply { flags }));
    }

    fn pool_alloc(&mut self, m: PoolAlloc, answer: Answer<PoolAlloc>) {
        let outcome = self.alloc_from(&m);
        answer.result(outcome.map(|address| PoolAllocReply { address }));
    }
}
