//! Memory pools of a server.

use std::collections::BTreeSet;

use outboard_abi::CUmemPool_attribute_enum as A;
use outboard_front::backend::{ContextId, DeviceId, DevicePtr, ObjectId, Result, StreamId};
use outboard_wire::messages as msg;

use super::{NO_CONTEXT, Remote};
use crate::reuse::Pool;

impl Remote {
    /// A block of a pool: one that is kept, or one that the server allocates.
    pub(super) fn allocate_from(
        &self,
        pool: Pool,
        ctx: ContextId,
        bytes: u64,
        stream: StreamId,
        allocate: impl FnOnce() -> Result<DevicePtr>,
    ) -> Result<DevicePtr> {
        let session = self.session()?;
        let reuse = session.reuse();
        if session.link().is_alive()
            && let Some(address) = reuse.take(pool, ctx, stream, bytes)
        {
            return Ok(address);
        }
        reuse.make_room(pool, bytes, |block| session.give_back(block));
        let address = allocate()?;
        reuse.allocated(pool, ctx, address, bytes);
        Ok(address)
    }

    /// Gives back a pool's kept memory, so that the server counts only what the program has.
    fn give_pool_back(&self, name: ObjectId) -> Result<Pool> {
        let session = self.session()?;
        let pool = session.reuse().named(name);
        let mut idle = BTreeSet::new();
        session.reuse().give_pool(pool, |block| {
            let place = (block.ctx, block.stream);
            if session.progress().is_stream_idle(block.ctx, block.stream) {
                idle.insert(place);
            }
            session.give_back(block);
        });
        for (ctx, stream) in idle {
            // Natively these would be free by now, as nothing is before them.
            session.call_idle(ctx, &msg::StreamSynchronize { stream })?;
        }
        Ok(pool)
    }
}

impl Remote {
    pub(super) fn pool_default(&self, pool: ObjectId, device: DeviceId) -> Result<()> {
        self.session()?.reuse().name_default(pool, device);
        self.post(NO_CONTEXT, &msg::PoolDefault { pool, device })
    }

    pub(super) fn pool_destroy(&self, pool: ObjectId) -> Result<()> {
        self.unshare_closed();
        let session = self.session()?;
        session.reuse().end_pool(Pool::Made(pool), |block| session.give_back(block));
        // What was allocated in it is freed before.
        session.wait_for_what_was_postponed();
        self.post(NO_CONTEXT, &msg::PoolDestroy { pool })
    }

    pub(super) fn pool_trim(&self, pool: ObjectId, keep: u64) -> Result<()> {
        self.give_pool_back(pool)?;
        self.call(NO_CONTEXT, &msg::PoolTrim { pool, keep }, |_| ())
    }

    pub(super) fn pool_attribute(&self, pool: ObjectId, attribute: u32) -> Result<u64> {
        let name = self.give_pool_back(pool)?;
        let value =
            self.call_idle(NO_CONTEXT, &msg::PoolAttribute { pool, attribute }, |reply| {
                reply.value
            })?;
        let excess = match A(attribute) {
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => self.session()?.reuse().excess(name),
            _ => 0,
        };
        Ok(value.saturating_sub(excess))
    }

    pub(super) fn pool_set_attribute(
        &self,
        pool: ObjectId,
        attribute: u32,
        value: u64,
    ) -> Result<()> {
        let name = self.give_pool_back(pool)?;
        self.post(NO_CONTEXT, &msg::PoolSetAttribute { pool, attribute, value })?;
        let reuse = self.session()?.reuse();
        match A(attribute) {
            A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => reuse.set_threshold(name, value),
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => reuse.reset_most(name),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn pool_alloc(
        &self,
        ctx: ContextId,
        pool: ObjectId,
        bytes: u64,
        stream: StreamId,
    ) -> Result<DevicePtr> {
        let name = self.session()?.reuse().named(pool);
        let message = msg::PoolAlloc { pool, bytes, stream };
        let allocate = || self.call_to(ctx, stream, &message, |reply| reply.address);
        self.allocate_from(name, ctx, bytes, stream, allocate)
    }
}
