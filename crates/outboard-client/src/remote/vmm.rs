//! Virtual memory of a server.

use outboard_front::backend::{ContextId, MemoryKind, ObjectId, Result, VirtualMemory};
use outboard_wire::messages as msg;

use super::Remote;

/// None of these calls is of a context.
const NONE: ContextId = ContextId(0);

impl VirtualMemory for Remote {
    fn vmm_granularity(&self, kind: MemoryKind, recommended: bool) -> Result<u64> {
        let MemoryKind { device, handle_types, compression, usage } = kind;
        let message = msg::VmmGranularity { device, handle_types, compression, usage, recommended };
        self.call(NONE, &message, |reply| reply.bytes)
    }

    fn vmm_reserve(&self, bytes: u64, align: u64, hint: u64) -> Result<u64> {
        self.call(NONE, &msg::VmmReserve { bytes, align, hint }, |reply| reply.address)
    }

    fn vmm_free(&self, address: u64, bytes: u64) -> Result<()> {
        self.call(NONE, &msg::VmmFree { address, bytes }, |_| ())
    }

    fn vmm_create(&self, memory: ObjectId, bytes: u64, kind: MemoryKind) -> Result<()> {
        let MemoryKind { device, handle_types, compression, usage } = kind;
        let message = msg::VmmCreate { memory: memory.0, bytes, device, handle_types, compression, usage };
        self.call(NONE, &message, |_| ())
    }

    fn vmm_release(&self, memory: ObjectId) -> Result<()> {
        self.unshare_closed();
        self.post(NONE, &msg::VmmRelease { memory: memory.0 })
    }

    fn vmm_map(&self, address: u64, bytes: u64, offset: u64, memory: ObjectId) -> Result<()> {
        self.call(NONE, &msg::VmmMap { address, bytes, offset, memory: memory.0 }, |_| ())
    }

    fn vmm_unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.call(NONE, &msg::VmmUnmap { address, bytes }, |_| ())
    }

    fn vmm_set_access(&self, address: u64, bytes: u64, access: &[(u32, u32)]) -> Result<()> {
        self.call(NONE, &msg::VmmSetAccess { address, bytes, access: access.to_vec() }, |_| ())
    }
}
