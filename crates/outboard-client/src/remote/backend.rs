//! What the front asks of any library.

use std::sync::atomic::Ordering;

use outboard_abi::CUresult;
use outboard_front::backend::{
    Backend, ContextId, CopyMode, Fill, Image, JitLog, Launch, ObjectId, Rect, Result, Stream, TiledMap,
};
use outboard_wire::messages as msg;
use outboard_wire::platform::{KernelInfo, Platform};

use super::shared::MOVER;
use super::{DISABLE_TIMING, INTERPROCESS, NON_BLOCKING, REMOTE, Remote, wire};
use crate::pager::Done;
use crate::progress::Progress;
use crate::session::Session;

/// No function differs from the front's yet.
impl outboard_front::Driver for Remote {}

impl Backend for Remote {
    fn get() -> &'static Remote {
        &REMOTE
    }

    fn platform(&self) -> Result<Platform> {
        let (session, platform) = Session::open()?;
        // Kept for good: calls hold it without counting, and in a forked child its threads are gone.
        self.session.store(Box::into_raw(Box::new(session)), Ordering::Release);
        self.pager.connect(Box::new(&MOVER));
        Ok(platform)
    }

    fn all_hidden(&self, devices: usize) {
        crate::session::explain_hidden(devices);
    }

    fn context_open(&self, ctx: ContextId, device: u32, flags: u32, primary: bool) -> Result<()> {
        let session = self.session()?;
        self.call(ctx, &msg::ContextOpen { device, flags, primary }, |_| ())?;
        session.context_opened(ctx);
        session.reuse().context_opened(ctx, device);
        Ok(())
    }

    fn context_close(&self, ctx: ContextId) -> Result<()> {
        self.seen.context_ends(ctx);
        self.end_shared_memory(ctx);
        let session = self.session()?;
        session.reuse().end_context(ctx, |block| session.give_back(block));
        let outcome = if session.link().is_leaving() {
            // A static runtime does this after main. A device that several processes leave at once takes a second.
            self.call(ctx, &msg::ContextLeave {}, |_| ())
        } else {
            self.call(ctx, &msg::ContextClose {}, |_| ())
        };
        session.context_ended(ctx);
        outcome
    }

    fn context_synchronize(&self, ctx: ContextId) -> Result<()> {
        let wait = || {
            let idle = |progress: &Progress| progress.is_context_idle(ctx);
            self.wait(ctx, &msg::ContextSynchronize {}, idle, |progress, seq| progress.context_done(ctx, seq))
        };
        self.waited(Done::Context(ctx), wait)
    }

    fn context_limit(&self, ctx: ContextId, limit: u32) -> Result<u64> {
        self.call_idle(ctx, &msg::ContextLimit { limit }, |reply| reply.value)
    }

    fn context_set_limit(&self, ctx: ContextId, limit: u32, value: u64) -> Result<()> {
        self.call_idle(ctx, &msg::ContextSetLimit { limit, value }, |_| ())
    }

    fn memory_info(&self, ctx: ContextId) -> Result<(u64, u64)> {
        self.call_idle(ctx, &msg::MemoryInfo {}, |reply| (reply.free, reply.total))
    }

    fn memory_alloc(&self, ctx: ContextId, bytes: u64) -> Result<u64> {
        self.expect_copies(bytes)?;
        self.session()?.with_memory(|| self.call_idle(ctx, &msg::MemoryAlloc { bytes }, |reply| reply.address))
    }

    fn memory_free(&self, ctx: ContextId, address: u64) -> Result<()> {
        let session = self.session()?;
        session.reuse().release(address);
        if self.post_if_idle(ctx, &msg::MemoryFreeIdle { address })? {
            return session.wait_for_nothing();
        }
        self.call_idle(ctx, &msg::MemoryFree { address }, |_| ())
    }

    fn memory_alloc_async(&self, ctx: ContextId, bytes: u64, stream: Stream) -> Result<u64> {
        self.expect_copies(bytes)?;
        let pool = self.session()?.reuse().default_of(ctx).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        let message = msg::MemoryAllocAsync { bytes, stream: wire(stream) };
        self.allocate_from(pool, ctx, bytes, stream, || self.call_to(ctx, stream, &message, |reply| reply.address))
    }

    fn memory_free_async(&self, ctx: ContextId, address: u64, stream: Stream) -> Result<()> {
        let session = self.session()?;
        if session.reuse().keep(ctx, wire(stream), address) {
            return Ok(());
        }
        session.free_in_order(ctx, address, wire(stream))
    }

    fn host_alloc(&self, ctx: ContextId, bytes: usize, _flags: u32) -> Result<*mut u8> {
        self.alloc_host(ctx, bytes)
    }

    unsafe fn host_free(&self, _ctx: ContextId, memory: *mut u8, bytes: usize) -> Result<()> {
        self.session()?.memory_goes(memory, bytes);
        self.unmap_host(memory as u64, false);
        // SAFETY: by the contract of this method.
        unsafe { self.free_host(memory) }
    }

    fn host_register(&self, _ctx: ContextId, memory: *mut u8, bytes: usize, _flags: u32) -> Result<()> {
        // Nothing is done to it until a kernel is given its address.
        self.host.register(memory, bytes);
        Ok(())
    }

    fn host_unregister(&self, _ctx: ContextId, memory: *mut u8, bytes: usize) -> Result<()> {
        self.session()?.memory_goes(memory, bytes);
        self.unmap_host(memory as u64, true);
        self.host.unregister(memory);
        Ok(())
    }

    fn host_device_address(&self, ctx: ContextId, memory: *mut u8) -> Result<u64> {
        // The device has it under the same address from now on.
        let known = self.map_host(ctx, memory as u64)?;
        if known { Ok(memory as u64) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
    }

    unsafe fn copy_to_device(
        &self,
        ctx: ContextId,
        dst: u64,
        src: *const u8,
        bytes: u64,
        stream: Stream,
        mode: CopyMode,
    ) -> Result<()> {
        // SAFETY: as this method's.
        unsafe { self.copy_in(ctx, dst, src, bytes, stream, mode) }
    }

    unsafe fn copy_to_host(
        &self,
        ctx: ContextId,
        dst: *mut u8,
        src: u64,
        bytes: u64,
        stream: Stream,
        mode: CopyMode,
    ) -> Result<()> {
        // SAFETY: as this method's.
        unsafe { self.copy_out(ctx, dst, src, bytes, stream, mode) }
    }

    fn copy_on_device(&self, ctx: ContextId, dst: u64, src: u64, rect: Rect, stream: Stream) -> Result<()> {
        self.copy_here(ctx, dst, src, rect, stream)
    }

    fn fill(&self, ctx: ContextId, fill: Fill, stream: Stream) -> Result<()> {
        self.fill_here(ctx, fill, stream)
    }

    fn stream_create(&self, ctx: ContextId, id: ObjectId, flags: u32, priority: i32) -> Result<()> {
        if flags & NON_BLOCKING != 0 {
            self.session()?.progress().made_apart(id.0);
        }
        self.post(ctx, &msg::StreamCreate { stream: id.0, flags, priority })
    }

    fn stream_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        if self.pager.is_active() {
            self.pager.forget(id.0);
        }
        let session = self.session()?;
        session.reuse().give_stream(ctx, id.0, |block| session.give_back(block));
        session.progress().ended(ctx, id.0);
        self.post(ctx, &msg::StreamDestroy { stream: id.0 })
    }

    fn stream_synchronize(&self, ctx: ContextId, stream: Stream) -> Result<()> {
        let name = wire(stream);
        self.waited(Done::Stream((ctx.0, name)), || {
            let idle = |progress: &Progress| progress.is_stream_idle(ctx, name);
            if !idle(self.session()?.progress()) && self.seen(ctx, stream, |_| Ok(()))?.is_some() {
                return Ok(());
            }
            let message = msg::StreamSynchronize { stream: name };
            self.unseen(|| self.wait(ctx, &message, idle, |progress, seq| progress.stream_done(ctx, name, seq)))
        })
    }

    fn stream_query(&self, ctx: ContextId, stream: Stream) -> Result<()> {
        let stream = wire(stream);
        self.waited(Done::Stream((ctx.0, stream)), || {
            let idle = |progress: &Progress| progress.is_stream_idle(ctx, stream);
            if let Some(seq) = self.learn(ctx, &msg::StreamQuery { stream }, idle)? {
                self.session()?.progress().stream_seen(ctx, stream, seq);
            }
            Ok(())
        })
    }

    fn stream_wait_event(&self, ctx: ContextId, stream: Stream, event: ObjectId, flags: u32) -> Result<()> {
        let message = msg::StreamWaitEvent { stream: wire(stream), event: event.0, flags };
        let seq = self.post_counted(ctx, stream, &message)?;
        self.session()?.progress().joined(ctx, wire(stream), event.0, seq);
        Ok(())
    }

    fn stream_wait_value(
        &self,
        ctx: ContextId,
        stream: Stream,
        address: u64,
        value: u64,
        wide: bool,
        flags: u32,
    ) -> Result<()> {
        let message = msg::StreamWaitValue { stream: wire(stream), address, value, wide, flags };
        self.post_using(ctx, stream, (address, 8), &message)
    }

    fn stream_write_value(
        &self,
        ctx: ContextId,
        stream: Stream,
        address: u64,
        value: u64,
        wide: bool,
        flags: u32,
    ) -> Result<()> {
        let message = msg::StreamWriteValue { stream: wire(stream), address, value, wide, flags };
        self.post_using(ctx, stream, (address, 8), &message)
    }

    fn event_create(&self, ctx: ContextId, id: ObjectId, flags: u32) -> Result<()> {
        if flags & INTERPROCESS != 0 {
            self.session()?.progress().share_event(id.0);
        }
        if flags & DISABLE_TIMING == 0 {
            self.session()?.times().made(id.0);
        }
        self.post(ctx, &msg::EventCreate { event: id.0, flags })
    }

    fn event_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        if self.pager.is_active() {
            self.pager.forget(id.0);
        }
        let session = self.session()?;
        session.progress().forget_event(id.0);
        session.times().forget(id.0);
        self.post(ctx, &msg::EventDestroy { event: id.0 })
    }

    fn event_record(&self, ctx: ContextId, id: ObjectId, stream: Stream, flags: u32) -> Result<()> {
        let (session, stream_name) = (self.session()?, wire(stream));
        let message = msg::EventRecord { event: id.0, stream: stream_name, flags };
        let post = |idle| match idle {
            true => session.post_numbered(ctx, &message),
            false => self.post_counted(ctx, stream, &message),
        };
        session.progress().record(id.0, ctx, stream_name, post)?;
        if self.pager.is_active() {
            self.pager.recorded(id.0, ctx, wire(stream));
        }
        Ok(())
    }

    fn event_synchronize(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.waited(Done::Event(id.0), || {
            let happened = |progress: &Progress| progress.has_happened(id.0);
            let message = msg::EventSynchronize { event: id.0 };
            self.wait(ctx, &message, happened, |progress, seq| progress.event_done(id.0, seq))
        })
    }

    fn event_query(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.waited(Done::Event(id.0), || {
            let happened = |progress: &Progress| progress.has_happened(id.0);
            if let Some(seq) = self.learn(ctx, &msg::EventQuery { event: id.0 }, happened)? {
                self.session()?.progress().event_seen(id.0, seq);
            }
            Ok(())
        })
    }

    fn event_elapsed(&self, ctx: ContextId, start: ObjectId, end: ObjectId) -> Result<f32> {
        self.time_between(ctx, start, end)
    }

    fn module_load(&self, ctx: ContextId, id: ObjectId, image: Image<'_>, log: &mut JitLog) -> Result<()> {
        self.load_image(ctx, id, &image, log)
    }

    fn module_unload(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.unload(ctx, id)
    }

    fn module_functions(&self, ctx: ContextId, id: ObjectId) -> Result<Vec<String>> {
        self.kernel_names(ctx, id)
    }

    fn module_function(&self, ctx: ContextId, module: ObjectId, name: &str, function: ObjectId) -> Result<KernelInfo> {
        self.kernel(ctx, module, name, function)
    }

    fn module_global(&self, ctx: ContextId, module: ObjectId, name: &str) -> Result<(u64, u64, bool)> {
        self.variable(ctx, module, name)
    }

    fn function_set_attribute(&self, ctx: ContextId, function: ObjectId, attribute: u32, value: i32) -> Result<()> {
        self.post(ctx, &msg::FunctionSetAttribute { function: function.0, attribute, value })
    }

    fn function_set_cache_config(&self, ctx: ContextId, function: ObjectId, config: u32) -> Result<()> {
        self.post(ctx, &msg::FunctionSetCacheConfig { function: function.0, config })
    }

    fn occupancy(&self, ctx: ContextId, function: ObjectId, block: u32, shared: u64, flags: u32) -> Result<i32> {
        self.call_idle(ctx, &msg::Occupancy { function: function.0, block, shared, flags }, |reply| reply.blocks)
    }

    fn occupancy_dynamic_shared(&self, ctx: ContextId, function: ObjectId, blocks: i32, block: i32) -> Result<u64> {
        self.call_idle(ctx, &msg::OccupancyDynamicShared { function: function.0, blocks, block }, |reply| reply.bytes)
    }

    fn occupancy_clusters(&self, ctx: ContextId, launch: &Launch<'_>, largest: bool) -> Result<i32> {
        self.count_clusters(ctx, launch, largest)
    }

    fn tensor_map_tiled(&self, ctx: ContextId, map: &TiledMap<'_>) -> Result<[u8; 128]> {
        let message = msg::TensorMapTiled {
            data_type: map.data_type,
            address: map.address,
            dims: map.dims.to_vec(),
            strides: map.strides.to_vec(),
            box_dims: map.box_dims.to_vec(),
            element_strides: map.element_strides.to_vec(),
            interleave: map.interleave,
            swizzle: map.swizzle,
            promotion: map.promotion,
            fill: map.fill,
        };
        self.call(ctx, &message, |reply| reply.map)
    }

    fn launch(&self, ctx: ContextId, launch: &Launch<'_>, stream: Stream) -> Result<()> {
        self.queue_launch(ctx, launch, stream)
    }

    fn statistics(&self) -> Vec<(&'static str, String)> {
        let Some(session) = self.opened() else { return Vec::new() };
        let mut all = session.statistics();
        let moved = self.pager.moved();
        all.extend([
            ("page_faults", moved.faults.to_string()),
            ("page_bytes_to_device", moved.pushed.to_string()),
            ("page_bytes_from_device", moved.fetched.to_string()),
        ]);
        all
    }
}
