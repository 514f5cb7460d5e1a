//! Virtual memory of a server.

use outboard_front::backend::{ContextId, MemoryKind, ObjectId, Result, VirtualMemory};
use outboard_wire::messages as msg;

use super::Remote;

/// None of these calls is of a context, and none puts work into a stream.
const NONE: ContextId = ContextId(0);

impl Remote {
    fn post_idle<M: msg::Message>(&self, message: &M) -> Result<()> {
        self.session()?.post_numbered(NONE, message).map(drop)
    }
}

impl VirtualMemory for Remote {
    fn vmm_granularity(&self, kind: MemoryKind, recommended: bool) -> Result<u64> {
        let MemoryKind { device, handle_types, compression, usage } = kind;
        let message = msg::VmmGranularity { device, handle_types, compression, usage, recommended };
        self.call_idle(NONE, &message, |reply| reply.bytes)
    }

    fn vmm_reserve(&self, bytes: u64, align: u64, hint: u64) -> Result<u64> {
        self.call_idle(NONE, &msg::VmmReserve { bytes, align, hint }, |reply| reply.address)
    }

    fn vmm_free(&self, address: u64, bytes: u64) -> Result<()> {
        // That nothing is mapped there is known.
        self.post_idle(&msg::VmmUnreserve { address, bytes })
    }

    fn vmm_create(&self, memory: ObjectId, bytes: u64, kind: MemoryKind) -> Result<()> {
        let MemoryKind { device, handle_types, compression, usage } = kind;
        let message = msg::VmmCreate { memory: memory.0, bytes, device, handle_types, compression, usage };
        self.call_idle(NONE, &message, |_| ())
    }

    fn vmm_release(&self, memory: ObjectId) -> Result<()> {
        self.unshare_closed();
        self.post_idle(&msg::VmmRelease { memory: memory.0 })
    }

    fn vmm_map(&self, address: u64, bytes: u64, offset: u64, memory: ObjectId) -> Result<()> {
        self.call_idle(NONE, &msg::VmmMap { address, bytes, offset, memory: memory.0 }, |_| ())
    }

    fn vmm_unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.call_idle(NONE, &msg::VmmUnmap { address, bytes }, |_| ())
    }

    fn vmm_set_access(&self, address: u64, bytes: u64, access: &[(u32, u32)]) -> Result<()> {
        self.call_idle(NONE, &msg::VmmSetAccess { address, bytes, access: access.to_vec() }, |_| ())
    }
}
