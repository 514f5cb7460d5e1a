//! Device memory, and page-locked memory.

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, DevicePtr, HostPtr, Result, StreamId};
use outboard_wire::messages as msg;

use super::Remote;
use crate::host::Pinned;

impl Remote {
    pub(super) fn memory_info(&self, ctx: ContextId) -> Result<(u64, u64)> {
        let session = self.session()?;
        let before = session.times_given_back();
        let seen = self.memory_seen(ctx)?;
        // What goes back behind the answer counts neither there nor as kept.
        if session.times_given_back() == before { Ok(seen) } else { self.memory_seen(ctx) }
    }

    fn memory_seen(&self, ctx: ContextId) -> Result<(u64, u64)> {
        let (free, total) =
            self.call_idle(ctx, &msg::MemoryInfo {}, |reply| (reply.free, reply.total))?;
        // What is kept is there for the asking.
        let kept = self.session()?.arena().map_or(0, |arena| arena.kept_beside(ctx));
        Ok((free.saturating_add(kept).min(total), total))
    }

    pub(super) fn memory_alloc(&self, ctx: ContextId, bytes: u64) -> Result<DevicePtr> {
        self.expect_copies(bytes)?;
        let session = self.session()?;
        if let Some(address) = session.allocate(ctx, bytes)? {
            return Ok(address);
        }
        self.call_idle(ctx, &msg::MemoryAlloc { bytes }, |reply| reply.address)
    }

    /// Frees an allocation in the arena, if it is one, once no work can use it any more.
    fn free_in_arena(&self, address: DevicePtr) -> Result<Option<()>> {
        let session = self.session()?;
        let Some(users) = session.arena().and_then(|arena| arena.users_of(address)) else {
            return Ok(None);
        };
        let busy = |ctx: &ContextId| {
            !session.link().is_leaving() && !session.progress().is_context_idle(*ctx)
        };
        let mut outcome = session.wait_for_nothing();
        for ctx in users.into_iter().filter(busy) {
            // A fault is no reason to keep the memory.
            outcome = outcome.and(self.context_synchronize(ctx));
        }
        session.free(address);
        outcome.map(Some)
    }

    /// Before memory is freed: copies that this process will start are done with it.
    fn finish_held_copies(&self, ctx: ContextId) -> Result<()> {
        if self.session()?.holds.is_any_held() { self.context_synchronize(ctx) } else { Ok(()) }
    }

    pub(super) fn memory_free(&self, ctx: ContextId, address: DevicePtr) -> Result<()> {
        if let Some(()) = self.free_in_arena(address)? {
            return Ok(());
        }
        let session = self.session()?;
        self.finish_held_copies(ctx)?;
        session.reuse().release(address);
        if self.post_if_idle(ctx, &msg::MemoryFreeIdle { address })? {
            return session.wait_for_nothing();
        }
        self.call_idle(ctx, &msg::MemoryFree { address }, |_| ())
    }

    pub(super) fn memory_alloc_async(
        &self,
        ctx: ContextId,
        bytes: u64,
        stream: StreamId,
    ) -> Result<DevicePtr> {
        self.expect_copies(bytes)?;
        let pool =
            self.session()?.reuse().default_of(ctx).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        let message = msg::MemoryAllocAsync { bytes, stream };
        self.allocate_from(pool, ctx, bytes, stream, || {
            self.call_to(ctx, stream, &message, |reply| reply.address)
        })
    }

    pub(super) fn memory_free_async(
        &self,
        ctx: ContextId,
        address: DevicePtr,
        stream: StreamId,
    ) -> Result<()> {
        let session = self.session()?;
        if session.reuse().keep(ctx, stream, address) || session.free_late(address) {
            return Ok(());
        }
        session.free_in_order(ctx, address, stream)
    }

    pub(super) fn host_alloc(&self, ctx: ContextId, bytes: usize, _flags: u32) -> Result<*mut u8> {
        let memory = self.alloc_host(ctx, bytes)?;
        // SAFETY: it stays until it is freed, before which `memory_goes` takes it back.
        unsafe { self.session()?.link().may_lend(memory, bytes) };
        Ok(memory)
    }

    pub(super) unsafe fn host_free(
        &self,
        _ctx: ContextId,
        memory: *mut u8,
        bytes: usize,
    ) -> Result<()> {
        self.session()?.memory_goes(memory, bytes);
        self.unmap_host(HostPtr::of(memory), false);
        // SAFETY: by the contract of this method.
        unsafe { self.free_host(memory) }
    }

    pub(super) fn host_register(
        &self,
        ctx: ContextId,
        memory: *mut u8,
        bytes: usize,
        _flags: u32,
    ) -> Result<()> {
        self.host.register(ctx, memory, bytes);
        // Where it cannot be shared, nothing is done to it until a kernel is given its address.
        self.share_registered(ctx, HostPtr::of(memory), bytes as u64);
        if let Ok(session) = self.session() {
            // SAFETY: the program keeps it until it unregisters it, before which `memory_goes`
            // takes it back.
            unsafe { session.link().may_lend(memory, bytes) };
        }
        Ok(())
    }

    pub(super) fn host_unregister(
        &self,
        ctx: ContextId,
        memory: *mut u8,
        bytes: usize,
    ) -> Result<()> {
        // As natively, whatever is queued may use it, such as a host function that is running.
        let waited = self.context_synchronize(ctx);
        self.forget_registered(memory, bytes)?;
        waited
    }

    /// Ends what [`host_register`](Self::host_register) began.
    fn forget_registered(&self, memory: *mut u8, bytes: usize) -> Result<()> {
        self.session()?.memory_goes(memory, bytes);
        self.unmap_host(HostPtr::of(memory), true);
        self.host.unregister(memory);
        Ok(())
    }

    /// A context is about to end, and what was page-locked in it does as well. All memory of a
    /// process that leaves ends with it.
    pub(super) fn end_page_locked_memory(&self, ctx: ContextId) {
        if self.session().is_ok_and(|session| session.link().is_leaving()) {
            return;
        }
        for (base, Pinned { bytes, registered, .. }) in self.host.of_context(ctx) {
            let (memory, bytes) = (base.pointer(), bytes as usize);
            // What the worker has of it ends with the context anyway.
            let _ = if registered {
                self.forget_registered(memory, bytes)
            } else {
                // SAFETY: the context in which it was allocated ends, and natively it ends with
                // that: the program does not use it any more.
                unsafe { self.host_free(ctx, memory, bytes) }
            };
        }
    }

    pub(super) fn host_device_address(
        &'static self,
        ctx: ContextId,
        memory: *mut u8,
    ) -> Result<DevicePtr> {
        // The device has it under the same address from now on.
        let host = HostPtr::of(memory);
        let known = self.map_host(ctx, host)?;
        if known { Ok(host.unified().device()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
    }
}
