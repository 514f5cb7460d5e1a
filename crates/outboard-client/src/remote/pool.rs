//! Memory pools of a server.

use outboard_front::backend::{ContextId, ObjectId, PoolKind, Pools, Result, Stream};
use outboard_wire::messages as msg;

use super::{Remote, wire};

/// Most of these calls are not of a context.
const NONE: ContextId = ContextId(0);

impl Pools for Remote {
    fn pool_default(&self, pool: ObjectId, device: u32) -> Result<()> {
        self.post(NONE, &msg::PoolDefault { pool: pool.0, device })
    }

    fn pool_create(&self, pool: ObjectId, kind: PoolKind) -> Result<()> {
        let PoolKind { device, handle_types, max_bytes, usage } = kind;
        self.call(NONE, &msg::PoolCreate { pool: pool.0, device, handle_types, max_bytes, usage }, |_| ())
    }

    fn pool_destroy(&self, pool: ObjectId) -> Result<()> {
        self.unshare_closed();
        self.post(NONE, &msg::PoolDestroy { pool: pool.0 })
    }

    fn pool_trim(&self, pool: ObjectId, keep: u64) -> Result<()> {
        self.call(NONE, &msg::PoolTrim { pool: pool.0, keep }, |_| ())
    }

    fn pool_attribute(&self, pool: ObjectId, attribute: u32) -> Result<u64> {
        self.call(NONE, &msg::PoolAttribute { pool: pool.0, attribute }, |reply| reply.value)
    }

    fn pool_set_attribute(&self, pool: ObjectId, attribute: u32, value: u64) -> Result<()> {
        self.post(NONE, &msg::PoolSetAttribute { pool: pool.0, attribute, value })
    }

    fn pool_set_access(&self, pool: ObjectId, access: &[(u32, u32)]) -> Result<()> {
        self.call(NONE, &msg::PoolSetAccess { pool: pool.0, access: access.to_vec() }, |_| ())
    }

    fn pool_access(&self, pool: ObjectId, device: u32) -> Result<u32> {
        self.call(NONE, &msg::PoolAccess { pool: pool.0, device }, |reply| reply.flags)
    }

    fn pool_alloc(&self, ctx: ContextId, pool: ObjectId, bytes: u64, stream: Stream) -> Result<u64> {
        self.call(ctx, &msg::PoolAlloc { pool: pool.0, bytes, stream: wire(stream) }, |reply| reply.address)
    }
}
