//! Managed memory: allocations, and variables of modules.

use std::ops::Range;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, DevicePtr, ObjectId, Result, StreamId, UnifiedPtr};
use outboard_wire::messages as msg;

use super::Remote;
use crate::pager::{COMMON, Done, page_bytes};
use crate::slabs::{Freed, SLAB, SMALL};

/// How often the device is asked for memory at addresses that nothing has here.
const TRIES: usize = 8;

impl Remote {
    /// Takes a variable of a module in.
    pub(super) fn add_variable(
        &'static self,
        ctx: ContextId,
        module: ObjectId,
        range: Range<UnifiedPtr>,
    ) -> Result<()> {
        let mut variables = self.variables.lock();
        let of_module = variables.entry(module).or_default();
        if !of_module.contains(&range) {
            self.pager.add_variable(ctx, range.clone())?;
            of_module.push(range);
        }
        Ok(())
    }

    /// A module is about to be unloaded.
    pub(super) fn end_variables(&self, module: ObjectId) {
        let gone = self.variables.lock().remove(&module);
        for range in gone.unwrap_or_default() {
            self.pager.remove(
                &(range.start.previous_multiple_of(page_bytes())
                    ..range.end.next_multiple_of(page_bytes())),
                false,
            );
        }
    }

    /// Memory of the server for managed memory, and whether it is zeroed: the device's own, or what
    /// the driver moves where several devices share it or the device has not so much.
    fn device_side(&self, ctx: ContextId, bytes: u64) -> Result<(UnifiedPtr, bool)> {
        if self.session()?.has_one_device() || bytes <= SLAB {
            match self.of_the_device(ctx, bytes) {
                Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {}
                outcome => return outcome.map(|address| (address, false)),
            }
        }
        match self.call(ctx, &msg::ManagedAllocBeyond { bytes }, |reply| reply.address) {
            // An older server.
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) => {
                self.of_the_device(ctx, bytes).map(|address| (address, false))
            }
            // The driver may take smaller blocks from memory that the program has freed.
            outcome => outcome.map(|address| (address, bytes > SLAB)),
        }
    }

    fn of_the_device(&self, ctx: ContextId, bytes: u64) -> Result<UnifiedPtr> {
        let session = self.session()?;
        // Only the driver knows how several devices share it.
        if session.has_one_device()
            && let Some(address) = session.allocate(ctx, bytes)?
        {
            return Ok(address.unified());
        }
        self.call(ctx, &msg::ManagedAlloc { bytes }, |reply| reply.address)
    }

    /// Frees it; no work uses it any more.
    fn free_device_side(&self, ctx: ContextId, address: DevicePtr) -> Result<()> {
        match self.session()?.free(address) {
            true => Ok(()),
            false => self.call(ctx, &msg::MemoryFree { address }, |_| ()),
        }
    }

    /// Managed memory of the device at addresses that nothing has here: its address there, and the
    /// pages.
    fn managed_block(
        &'static self,
        ctx: ContextId,
        bytes: u64,
        room: u64,
        shared: bool,
    ) -> Result<(DevicePtr, Range<UnifiedPtr>)> {
        let mut useless = Vec::new();
        let mut found = Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let mut ask = room.max(bytes);
        for _ in 0..TRIES {
            let (device, is_zeroed) = match self.device_side(ctx, ask) {
                Ok(given) => given,
                Err(error) => {
                    found = Err(error);
                    break;
                }
            };
            let base = device.next_multiple_of(page_bytes());
            let range = base.range(bytes);
            if range.end > device.offset(ask) {
                // Not on a page's start: there must be room to find one. Both at once may be more
                // than the device has.
                ask = bytes + page_bytes();
                self.free_device_side(ctx, device.device())?;
                continue;
            }
            match self.pager.add_managed(
                ctx,
                base,
                bytes as usize,
                true,
                (!shared).then(|| range.clone()),
            ) {
                Ok(true) => {
                    found = Ok((device.device(), range, is_zeroed));
                    break;
                }
                Ok(false) => useless.push(device.device()),
                Err(error) => {
                    useless.push(device.device());
                    found = Err(error);
                    break;
                }
            }
        }
        for address in useless {
            let _ = self.free_device_side(ctx, address);
        }
        let (device, range, is_zeroed) = found?;
        if is_zeroed {
            return Ok((device, range));
        }
        // As the program sees it: zeros.
        let (dst, width) = (range.start.device(), range.end.since(range.start));
        let stream = self.pager_stream(ctx)?;
        self.post(
            ctx,
            &msg::Fill { dst, pitch: 0, value: 0, element: 1, width, height: 1, stream },
        )?;
        Ok((device, range))
    }
}

impl Remote {
    pub(super) fn managed_alloc(&'static self, ctx: ContextId, bytes: u64) -> Result<UnifiedPtr> {
        let mut slabs = self.slabs.lock();
        if bytes > SMALL {
            let bytes = bytes
                .checked_next_multiple_of(page_bytes())
                .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            let (device, range) = self.managed_block(ctx, bytes, bytes, false)?;
            slabs.add(ctx, device, &range, false);
            return Ok(range.start);
        }
        let pages = bytes.next_multiple_of(page_bytes());
        if let Some(address) = slabs.take(ctx, bytes) {
            self.pager.allocate(address.range(pages));
            return Ok(address);
        }
        let (device, range) = self.managed_block(ctx, SLAB - page_bytes(), SLAB, true)?;
        slabs.add(ctx, device, &range, true);
        let address = slabs.take(ctx, bytes).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.pager.allocate(address.range(pages));
        Ok(address)
    }

    pub(super) fn managed_free(&self, ctx: ContextId, address: UnifiedPtr) -> Result<()> {
        // Work that is queued may use it.
        let waited =
            self.waited(Done::Context(ctx), || self.call(ctx, &msg::ContextSynchronize {}, |_| ()));
        let mut slabs = self.slabs.lock();
        match slabs.free(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)? {
            Freed::Block(address, range) => {
                COMMON.remove(&range, false);
                self.pager.remove(&range, false);
                waited.and(self.free_device_side(ctx, address))
            }
            Freed::Part(range) => {
                self.pager.refresh(&range);
                waited
            }
        }
    }

    pub(super) fn managed_prefetch(
        &self,
        ctx: ContextId,
        address: UnifiedPtr,
        bytes: u64,
        to_host: bool,
        stream: StreamId,
    ) -> Result<()> {
        if !self.pager.is_active() {
            return Ok(());
        }
        if to_host {
            self.pager.want(ctx, stream, address.range(bytes));
            return Ok(());
        }
        // Pages that the program has written are sent now rather than before the next launch.
        self.pager.before_work(ctx, stream).map(drop)
    }
}
