//! Memory pools.

use std::sync::Arc;

use outboard_abi::CUmemPool_attribute_enum as A;
use outboard_front::backend::{
    ContextId, DeviceId, DevicePtr, ObjectId, PoolKind, Pools, Result, StreamId,
};

use super::{Allocation, From, Pool, setting};
use crate::cpu::{Cpu, lane};
use crate::work::Work;

/// Read and write: `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

impl Cpu {
    fn named_pool(&self, pool: ObjectId) -> Result<Arc<Pool>> {
        Ok(Arc::clone(&*self.pools.get(pool)?))
    }

    /// The default pool of a device.
    pub(crate) fn default_pool(&self, device: DeviceId) -> Result<Arc<Pool>> {
        let engine = self.engine(device)?.clone();
        let mut pools = self.default_pools.lock();
        Ok(pools
            .entry(device.ordinal())
            .or_insert_with(|| Arc::new(Pool::new(engine, device.ordinal(), 0)))
            .clone())
    }

    /// Allocates what is there when the stream comes to it, since it is there now.
    pub(crate) fn alloc_pooled(&self, ctx: ContextId, pool: &Arc<Pool>, bytes: u64) -> Result<u64> {
        let address = pool.alloc(bytes).or_else(|error| {
            // Some may be on its way back in a stream.
            self.scheduler.wait_all(self.scheduler.pending(ctx));
            pool.alloc(bytes).map_err(|_| error)
        })?;
        self.pooled
            .0
            .lock()
            .insert(address, Allocation { ctx, bytes, from: From::Pool(pool.clone()) });
        Ok(address)
    }

    /// Frees an allocation from a pool when the stream comes to it: at once if that has nothing
    /// left to do.
    pub(crate) fn free_pooled(
        &'static self,
        ctx: ContextId,
        address: u64,
        stream: StreamId,
    ) -> Result<()> {
        let free = move || {
            self.pooled.free(address);
        };
        self.scheduler.submit_or_run(ctx, lane(ctx, stream), Work::Call(Box::new(free)))
    }
}

impl Pools for Cpu {
    fn pool_default(&self, pool: ObjectId, device: DeviceId) -> Result<()> {
        self.pools.insert(pool, self.default_pool(device)?);
        Ok(())
    }

    fn pool_create(&self, pool: ObjectId, kind: PoolKind) -> Result<()> {
        let engine = self.engine(kind.device)?.clone();
        self.pools.insert(pool, Arc::new(Pool::new(engine, kind.device.ordinal(), kind.max_bytes)));
        Ok(())
    }

    fn pool_destroy(&self, _home: DeviceId, pool: ObjectId) -> Result<()> {
        self.pools.remove(pool).map(drop)
    }

    fn pool_trim(&self, _home: DeviceId, pool: ObjectId, _keep: u64) -> Result<()> {
        self.named_pool(pool).map(drop)
    }

    fn pool_attribute(&self, _home: DeviceId, pool: ObjectId, attribute: u32) -> Result<u64> {
        let pool = self.named_pool(pool)?;
        let state = pool.state.lock();
        match A(attribute) {
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT | A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => {
                Ok(state.used)
            }
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => Ok(state.reserved_high),
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => Ok(state.used_high),
            _ => setting(attribute).map(|at| state.settings[at]),
        }
    }

    fn pool_set_attribute(
        &self,
        _home: DeviceId,
        pool: ObjectId,
        attribute: u32,
        value: u64,
    ) -> Result<()> {
        let pool = self.named_pool(pool)?;
        let mut state = pool.state.lock();
        match A(attribute) {
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => state.reserved_high = state.used,
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => state.used_high = state.used,
            _ => state.settings[setting(attribute)?] = value,
        }
        Ok(())
    }

    fn pool_set_access(
        &self,
        _home: DeviceId,
        pool: ObjectId,
        access: &[(DeviceId, u32)],
    ) -> Result<()> {
        let pool = self.named_pool(pool)?;
        for (device, flags) in access {
            self.engine(*device)?;
            let device = device.ordinal();
            let before = pool.state.lock().access.insert(device, *flags).unwrap_or(0);
            match (before, *flags) {
                (0, 1..) => self.windows.open(self.engines()?, device, pool.device),
                (1.., 0) => {
                    self.wait_for_everything();
                    self.windows.close(self.engines()?, device, pool.device);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn pool_access(&self, _home: DeviceId, pool: ObjectId, device: DeviceId) -> Result<u32> {
        let pool = self.named_pool(pool)?;
        if pool.device == device.ordinal() {
            return Ok(READ_WRITE);
        }
        Ok(pool.state.lock().access.get(&device.ordinal()).copied().unwrap_or(0))
    }

    fn pool_alloc(
        &self,
        ctx: ContextId,
        pool: ObjectId,
        bytes: u64,
        _stream: StreamId,
    ) -> Result<DevicePtr> {
        let pool = self.named_pool(pool)?;
        self.alloc_pooled(ctx, &pool, bytes).map(DevicePtr)
    }
}
