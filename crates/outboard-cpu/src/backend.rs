//! The device as the front sees it: one line for each thing it asks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use outboard_abi::{CUresult, CUstream_flags_enum};
use outboard_front::backend::{
    Backend, CheckpointStep, Collectives, ContextId, CopyMode, Crossing, DeviceId, DevicePtr,
    Faults, Files, Fill, HostPtr, Image, JitLog, Launch, Messages, ObjectId, Rect, Result,
    Statistics, StreamId,
};
use outboard_wire::launch::{event_of, names_event};
use outboard_wire::platform::{KernelInfo, Platform};

use crate::checkpoint;
use crate::context::Context;
use crate::cpu::{Cpu, lane};
use crate::device;
use crate::event::Event;
use crate::memory::check_range;
use crate::module::{self, Function};
use crate::sched::Lane;
use crate::work::{Stamp, Work};

/// There are no servers.
impl Collectives for Cpu {}
// Its process reads them.
impl Files for Cpu {}
// Messages go between workers.
impl Messages for Cpu {}

impl Crossing for Cpu {}

impl Backend for Cpu {
    fn attach(&self, faults: &'static dyn Faults) {
        let _ = self.faults.set(faults);
    }

    fn checkpoint(&self, process: i32, step: CheckpointStep, limit: u32) -> Result<u32> {
        checkpoint::ask_step(process, step, limit)
    }

    fn platform(&self) -> Result<Platform> {
        Ok(device::platform(self.config()))
    }

    fn context_open(
        &self,
        ctx: ContextId,
        device: DeviceId,
        _flags: u32,
        _primary: bool,
    ) -> Result<()> {
        let engine = self
            .engines()?
            .get(device.ordinal() as usize)
            .ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        self.contexts.insert(ctx, Context::new(ctx, engine.clone()));
        self.scheduler.open(ctx);
        Ok(())
    }

    fn context_close(&'static self, ctx: ContextId) -> Result<()> {
        let engines = self.engines()?;
        let context = self.contexts.remove(ctx)?;
        // From here on nothing may fail: what is left of the context would be left for good.
        self.scheduler.close(ctx);
        self.attributes.forget(Lane::Legacy(ctx));
        context.output.flush();
        self.graphs.forget(ctx);
        self.events.remove_where(|event| event.ctx == ctx);
        self.functions.remove_where(|function| function.ctx == ctx);
        self.modules.remove_where(|module| module.ctx == ctx);
        self.links.remove_where(|link| link.ctx == ctx);
        self.shares.forget(ctx);
        self.references.forget(ctx);
        self.arrays.remove_where(|array| array.ctx == ctx);
        self.mipmaps.remove_where(|mipmap| mipmap.ctx == ctx);
        self.forget_peers(engines, ctx);
        context.objects.end_all();
        context.free_all();
        self.pooled.free_context(ctx);
        self.opened.forget(ctx);
        self.host.remove_context(engines, ctx);
        Ok(())
    }

    fn context_synchronize(&self, ctx: ContextId) -> Result<()> {
        self.synchronize(ctx, self.scheduler.pending(ctx))
    }

    fn context_limit(&self, ctx: ContextId, limit: u32) -> Result<u64> {
        self.context(ctx)?.limit(limit)
    }

    fn context_set_limit(&self, ctx: ContextId, limit: u32, value: u64) -> Result<()> {
        self.context(ctx)?.set_limit(limit, value)
    }

    fn memory_info(&self, ctx: ContextId) -> Result<(u64, u64)> {
        let context = self.context(ctx)?;
        let memory = context.engine.memory();
        Ok((memory.free_bytes(), memory.total()))
    }

    fn memory_alloc(&self, ctx: ContextId, bytes: u64) -> Result<DevicePtr> {
        let context = self.context(ctx)?;
        let address = context.alloc(bytes).or_else(|error| {
            // Some may be on its way back in a stream.
            self.scheduler.wait_all(self.scheduler.pending(ctx));
            context.alloc(bytes).map_err(|_| error)
        });
        address.map(DevicePtr)
    }

    fn memory_free(&self, ctx: ContextId, DevicePtr(address): DevicePtr) -> Result<()> {
        let context = self.context(ctx)?;
        if self.pooled.contains(address) {
            self.scheduler.wait_all(self.scheduler.pending(ctx));
            self.pooled.free(address);
            return Ok(());
        }
        context.check_owned(address)?;
        self.scheduler.wait_all(self.scheduler.pending(ctx));
        if self.graphs.memory.free(address) { Ok(()) } else { context.free(address) }
    }

    fn memory_alloc_async(
        &self,
        ctx: ContextId,
        bytes: u64,
        _stream: StreamId,
    ) -> Result<DevicePtr> {
        let device = self.device_of(&self.context(ctx)?.engine)?;
        self.alloc_pooled(ctx, &self.default_pool(DeviceId::new(device))?, bytes).map(DevicePtr)
    }

    fn memory_free_async(
        &'static self,
        ctx: ContextId,
        DevicePtr(address): DevicePtr,
        stream: StreamId,
    ) -> Result<()> {
        if self.pooled.contains(address) {
            return self.free_pooled(ctx, address, stream);
        }
        let context = self.context(ctx)?;
        context.check_owned(address)?;
        let free = move || {
            if !self.graphs.memory.free(address) {
                let _ = context.free(address);
            }
        };
        self.scheduler.submit_or_run(ctx, lane(ctx, stream), Work::Call(Box::new(free)))
    }

    fn host_alloc(&self, ctx: ContextId, bytes: usize, _flags: u32) -> Result<*mut u8> {
        self.host.alloc(self.engines()?, ctx, bytes)
    }

    unsafe fn host_free(&self, ctx: ContextId, memory: *mut u8, _bytes: usize) -> Result<()> {
        self.scheduler.wait_all(self.scheduler.pending(ctx));
        self.host.remove(self.engines()?, memory, true)
    }

    fn host_register(
        &self,
        ctx: ContextId,
        memory: *mut u8,
        bytes: usize,
        _flags: u32,
    ) -> Result<()> {
        self.host.register(self.engines()?, ctx, memory, bytes)
    }

    fn host_unregister(&self, ctx: ContextId, memory: *mut u8, _bytes: usize) -> Result<()> {
        self.scheduler.wait_all(self.scheduler.pending(ctx));
        self.host.remove(self.engines()?, memory, false)
    }

    fn host_device_address(&self, _ctx: ContextId, memory: *mut u8) -> Result<DevicePtr> {
        check_range(self.engines()?, memory as u64, 1)?;
        Ok(HostPtr::of(memory).unified().device())
    }

    unsafe fn copy_to_device(
        &'static self,
        ctx: ContextId,
        DevicePtr(dst): DevicePtr,
        src: *const u8,
        bytes: u64,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        self.upload(&*self.context(ctx)?, dst, src, bytes, lane(ctx, stream), mode)
    }

    unsafe fn copy_to_host(
        &'static self,
        ctx: ContextId,
        dst: *mut u8,
        DevicePtr(src): DevicePtr,
        bytes: u64,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        self.download(&*self.context(ctx)?, dst, src, bytes, lane(ctx, stream), mode)
    }

    fn copy_on_device(
        &'static self,
        ctx: ContextId,
        DevicePtr(dst): DevicePtr,
        DevicePtr(src): DevicePtr,
        rect: Rect,
        stream: StreamId,
    ) -> Result<()> {
        self.copy_rect(&*self.context(ctx)?, dst, src, rect, lane(ctx, stream))
    }

    fn fill(&'static self, ctx: ContextId, fill: Fill, stream: StreamId) -> Result<()> {
        self.fill_rows(&*self.context(ctx)?, fill, lane(ctx, stream))
    }

    fn stream_create(&self, ctx: ContextId, id: ObjectId, flags: u32, priority: i32) -> Result<()> {
        let blocking = flags & CUstream_flags_enum::CU_STREAM_NON_BLOCKING.0 == 0;
        self.scheduler.add_lane(ctx, Lane::Created(id), blocking, priority < 0)?;
        self.pass_gates(ctx, id)
    }

    fn stream_destroy(&self, _ctx: ContextId, id: ObjectId) -> Result<()> {
        self.attributes.forget(Lane::Created(id));
        self.scheduler.remove_lane(Lane::Created(id))
    }

    fn stream_synchronize(&self, ctx: ContextId, stream: StreamId) -> Result<()> {
        self.synchronize(ctx, self.scheduler.lane_pending(ctx, lane(ctx, stream))?)
    }

    fn stream_query(&self, ctx: ContextId, stream: StreamId) -> Result<()> {
        self.scheduler.check(ctx)?;
        match self.scheduler.lane_pending(ctx, lane(ctx, stream))?.is_empty() {
            // It may have failed since.
            true => self.scheduler.check(ctx),
            false => Err(CUresult::CUDA_ERROR_NOT_READY),
        }
    }

    fn stream_wait_event(
        &'static self,
        ctx: ContextId,
        stream: StreamId,
        event: ObjectId,
        _flags: u32,
    ) -> Result<()> {
        let event = self.event(event)?;
        if let Some(shared) = &event.shared {
            return self.wait_for_shared(ctx, lane(ctx, stream), shared);
        }
        let Some(record) = event.latest() else { return Ok(()) };
        self.scheduler.submit(ctx, lane(ctx, stream), Work::Nothing, Some(record.ticket)).map(drop)
    }

    fn stream_wait_value(
        &'static self,
        ctx: ContextId,
        stream: StreamId,
        address: DevicePtr,
        value: u64,
        wide: bool,
        flags: u32,
    ) -> Result<()> {
        let work = self.wait_for_value(address, value, wide, flags)?;
        self.scheduler.submit(ctx, lane(ctx, stream), work, None).map(drop)
    }

    fn stream_write_value(
        &'static self,
        ctx: ContextId,
        stream: StreamId,
        DevicePtr(address): DevicePtr,
        value: u64,
        wide: bool,
        _flags: u32,
    ) -> Result<()> {
        let work = Work::Write(self.word(address, value, wide)?);
        self.scheduler.submit(ctx, lane(ctx, stream), work, None).map(drop)
    }

    fn event_create(&self, ctx: ContextId, id: ObjectId, flags: u32) -> Result<()> {
        self.events.insert(id, Event::new(ctx, flags)?);
        Ok(())
    }

    fn event_destroy(&self, _ctx: ContextId, id: ObjectId) -> Result<()> {
        self.events.remove(id).map(drop)
    }

    fn event_record(
        &'static self,
        ctx: ContextId,
        id: ObjectId,
        stream: StreamId,
        _flags: u32,
    ) -> Result<()> {
        let event = self.event(id)?;
        if let Some(shared) = &event.shared {
            return self.record_shared(ctx, lane(ctx, stream), shared);
        }
        let stamp = Arc::new(Stamp::default());
        let ticket =
            self.scheduler.submit(ctx, lane(ctx, stream), Work::Stamp(stamp.clone()), None)?;
        event.record(ticket, stamp);
        Ok(())
    }

    fn event_synchronize(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        let event = self.event(id)?;
        if let Some(shared) = &event.shared {
            return self.synchronize_shared(ctx, shared);
        }
        let record = event.latest();
        self.synchronize(ctx, record.map(|record| record.ticket).into_iter().collect())
    }

    fn event_query(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        let event = self.event(id)?;
        match event.latest() {
            _ if event
                .shared
                .as_ref()
                .is_some_and(|shared| !shared.is_reached(shared.latest())) =>
            {
                Err(CUresult::CUDA_ERROR_NOT_READY)
            }
            Some(record) if !self.scheduler.is_done(record.ticket) => {
                Err(CUresult::CUDA_ERROR_NOT_READY)
            }
            _ => self.scheduler.check(ctx),
        }
    }

    fn event_elapsed(&self, ctx: ContextId, start: ObjectId, end: ObjectId) -> Result<f32> {
        let (start, end) = (self.event(start)?.timed()?, self.event(end)?.timed()?);
        self.scheduler.check(ctx)?;
        if !self.scheduler.is_done(start.ticket) || !self.scheduler.is_done(end.ticket) {
            return Err(CUresult::CUDA_ERROR_NOT_READY);
        }
        start.milliseconds_to(&end)
    }

    fn module_load(
        &self,
        ctx: ContextId,
        id: ObjectId,
        image: Image<'_>,
        log: &mut JitLog,
    ) -> Result<()> {
        let context = self.context(ctx)?;
        context.output.flush();
        let module = module::load(&context, image, log).inspect_err(|_| self.log(&log.error))?;
        self.modules.insert(id, module);
        Ok(())
    }

    fn module_unload(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        let module = self.modules.remove(id)?;
        // Its variables and code may be in use.
        self.synchronize(ctx, self.scheduler.pending(ctx)).ok();
        self.functions.remove_where(|function| function.module == id);
        drop(module);
        Ok(())
    }

    fn module_functions(&self, _ctx: ContextId, id: ObjectId) -> Result<Vec<String>> {
        Ok(self.modules.get(id)?.kernels.clone())
    }

    fn module_function(
        &self,
        ctx: ContextId,
        module: ObjectId,
        name: &str,
        function: ObjectId,
    ) -> Result<KernelInfo> {
        let program = self.modules.get(module)?;
        let kernel = program.program.kernel(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        let function = self.functions.insert(function, Function::new(ctx, module, kernel));
        Ok(function.info())
    }

    fn module_global(
        &self,
        _ctx: ContextId,
        module: ObjectId,
        name: &str,
    ) -> Result<(DevicePtr, u64, bool)> {
        let module = self.modules.get(module)?;
        let (address, bytes) = module.program.global(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        Ok((DevicePtr(address), bytes, module.program.is_managed(name)))
    }

    fn function_set_attribute(
        &self,
        _ctx: ContextId,
        function: ObjectId,
        attribute: u32,
        value: i32,
    ) -> Result<()> {
        self.functions.get(function)?.set_attribute(attribute, value)
    }

    fn function_set_cache_config(
        &self,
        _ctx: ContextId,
        function: ObjectId,
        _config: u32,
    ) -> Result<()> {
        self.functions.get(function).map(drop)
    }

    fn occupancy(
        &self,
        _ctx: ContextId,
        function: ObjectId,
        block: u32,
        shared: u64,
        _flags: u32,
    ) -> Result<i32> {
        Ok(self.functions.get(function)?.occupancy(block, shared))
    }

    fn occupancy_dynamic_shared(
        &self,
        _ctx: ContextId,
        function: ObjectId,
        blocks: i32,
        block: i32,
    ) -> Result<u64> {
        self.functions.get(function)?.dynamic_shared(blocks.max(0) as u32, block.max(0) as u32)
    }

    fn launch(&'static self, ctx: ContextId, launch: &Launch<'_>, stream: StreamId) -> Result<()> {
        let function = self.functions.get(launch.function)?;
        let mut grid = self.grid(&function, ctx, launch)?;
        grid.processors = self.shares.processors(stream);
        self.scheduler.submit(ctx, lane(ctx, stream), Work::Launch(Box::new(grid)), None)?;
        // An event that a launch may record earlier is recorded behind it, which is as good to
        // whoever waits.
        let events = launch.attributes.iter().filter(|(id, _)| names_event(*id));
        events
            .map(|(_, value)| event_of(value))
            .try_for_each(|id| self.event_record(ctx, id, stream, 0))
    }

    fn statistics(&self) -> Statistics {
        Statistics::SoftwareDevice { launches: self.launches.load(Ordering::Relaxed) }
    }
}
