//! The devices of a server: what the front asks, sent over the link.

mod array;
mod copy;
mod device;
mod graph;
mod green;
mod host_call;
mod ipc;
mod link;
mod managed;
mod pool;
mod stream;
mod tensormap;
mod vmm;

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use outboard_abi::CUresult;
use outboard_front::backend::{
    Backend, ContextId, CopyMode, Fill, Image, JitLog, Launch, ObjectId, Rect, Result, Stream, TiledMap,
};
use outboard_wire::Reader;
use outboard_wire::messages as msg;
use outboard_wire::platform::{KernelInfo, Platform};

use crate::host::HostMemory;
use crate::session::Session;

/// The remote devices. One server serves the process, from its first `cuInit` on.
#[derive(Debug)]
pub struct Remote {
    /// From the first connection on; a forked child that had not begun to use it makes another.
    session: AtomicPtr<Arc<Session>>,
    host: HostMemory,
}

static REMOTE: Remote = Remote { session: AtomicPtr::new(core::ptr::null_mut()), host: HostMemory };

/// The name of a stream on the wire.
fn wire(stream: Stream) -> u64 {
    match stream {
        Stream::Legacy => 0,
        Stream::Created(id) => id.0,
    }
}

fn dims([x, y, z]: [u32; 3]) -> (u32, u32, u32) {
    (x, y, z)
}

impl Remote {
    fn opened(&self) -> Option<&Arc<Session>> {
        // SAFETY: null, or a box that is never freed.
        unsafe { self.session.load(Ordering::Acquire).as_ref() }
    }

    fn session(&self) -> Result<&Arc<Session>> {
        self.opened().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }

    fn post<M: msg::Message>(&self, ctx: ContextId, message: &M) -> Result<()> {
        self.session()?.post(ctx, message)
    }

    /// Calls and decodes the answer.
    fn call<M, T>(&self, ctx: ContextId, message: &M, read: impl for<'a> FnOnce(M::Reply<'a>) -> T) -> Result<T>
    where
        M: msg::Call,
    {
        let payload = self.session()?.call(ctx, message)?;
        let mut reader = Reader::new(&payload);
        let reply = reader.get().map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
        Ok(read(reply))
    }
}

/// The outcome that stands in a reply.
fn succeed(status: u32) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(CUresult(status)) }
}

/// Bytes of an image that travel in one message.
const IMAGE_PIECE: usize = 1 << 20;

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
        Ok(platform)
    }

    fn context_open(&self, ctx: ContextId, device: u32, flags: u32, primary: bool) -> Result<()> {
        self.call(ctx, &msg::ContextOpen { device, flags, primary }, |_| ())
    }

    fn context_close(&self, ctx: ContextId) -> Result<()> {
        let outcome = self.call(ctx, &msg::ContextClose {}, |_| ());
        self.session()?.context_ended(ctx);
        outcome
    }

    fn context_synchronize(&self, ctx: ContextId) -> Result<()> {
        self.call(ctx, &msg::ContextSynchronize {}, |_| ())
    }

    fn context_limit(&self, ctx: ContextId, limit: u32) -> Result<u64> {
        self.call(ctx, &msg::ContextLimit { limit }, |reply| reply.value)
    }

    fn context_set_limit(&self, ctx: ContextId, limit: u32, value: u64) -> Result<()> {
        self.call(ctx, &msg::ContextSetLimit { limit, value }, |_| ())
    }

    fn memory_info(&self, ctx: ContextId) -> Result<(u64, u64)> {
        self.call(ctx, &msg::MemoryInfo {}, |reply| (reply.free, reply.total))
    }

    fn memory_alloc(&self, ctx: ContextId, bytes: u64) -> Result<u64> {
        self.call(ctx, &msg::MemoryAlloc { bytes }, |reply| reply.address)
    }

    fn memory_free(&self, ctx: ContextId, address: u64) -> Result<()> {
        self.call(ctx, &msg::MemoryFree { address }, |_| ())
    }

    fn memory_alloc_async(&self, ctx: ContextId, bytes: u64, stream: Stream) -> Result<u64> {
        self.call(ctx, &msg::MemoryAllocAsync { bytes, stream: wire(stream) }, |reply| reply.address)
    }

    fn memory_free_async(&self, ctx: ContextId, address: u64, stream: Stream) -> Result<()> {
        self.post(ctx, &msg::MemoryFreeAsync { address, stream: wire(stream) })
    }

    fn host_alloc(&self, _ctx: ContextId, bytes: usize, _flags: u32) -> Result<*mut u8> {
        self.host.alloc(bytes)
    }

    unsafe fn host_free(&self, _ctx: ContextId, memory: *mut u8, bytes: usize) -> Result<()> {
        self.session()?.finish_copies(memory, bytes);
        // SAFETY: by the contract of this method.
        unsafe { self.host.free(memory, bytes) }
    }

    fn host_register(&self, _ctx: ContextId, _memory: *mut u8, _bytes: usize, _flags: u32) -> Result<()> {
        // Nothing here reads it directly; the front remembers that it is page-locked.
        Ok(())
    }

    fn host_unregister(&self, _ctx: ContextId, memory: *mut u8, bytes: usize) -> Result<()> {
        self.session()?.finish_copies(memory, bytes);
        Ok(())
    }

    fn host_device_address(&self, _ctx: ContextId, _memory: *mut u8) -> Result<u64> {
        // The device would have to reach into this machine's memory.
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
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
        // SAFETY: by the contract of this method.
        unsafe { self.session()?.copy_to_device(ctx, dst, src, bytes, wire(stream), mode) }
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
        // SAFETY: by the contract of this method.
        unsafe { self.session()?.copy_to_host(ctx, dst, src, bytes, wire(stream), mode) }
    }

    fn copy_on_device(&self, ctx: ContextId, dst: u64, src: u64, rect: Rect, stream: Stream) -> Result<()> {
        let Rect { width, height, dst_pitch, src_pitch } = rect;
        self.post(ctx, &msg::CopyOnDevice { dst, src, width, height, dst_pitch, src_pitch, stream: wire(stream) })
    }

    fn fill(&self, ctx: ContextId, fill: Fill, stream: Stream) -> Result<()> {
        let Fill { dst, pitch, value, element, width, height } = fill;
        self.post(ctx, &msg::Fill { dst, pitch, value, element, width, height, stream: wire(stream) })
    }

    fn stream_create(&self, ctx: ContextId, id: ObjectId, flags: u32, priority: i32) -> Result<()> {
        self.post(ctx, &msg::StreamCreate { stream: id.0, flags, priority })
    }

    fn stream_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.post(ctx, &msg::StreamDestroy { stream: id.0 })
    }

    fn stream_synchronize(&self, ctx: ContextId, stream: Stream) -> Result<()> {
        self.call(ctx, &msg::StreamSynchronize { stream: wire(stream) }, |_| ())
    }

    fn stream_query(&self, ctx: ContextId, stream: Stream) -> Result<()> {
        self.call(ctx, &msg::StreamQuery { stream: wire(stream) }, |_| ())
    }

    fn stream_wait_event(&self, ctx: ContextId, stream: Stream, event: ObjectId, flags: u32) -> Result<()> {
        self.post(ctx, &msg::StreamWaitEvent { stream: wire(stream), event: event.0, flags })
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
        self.post(ctx, &msg::StreamWaitValue { stream: wire(stream), address, value, wide, flags })
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
        self.post(ctx, &msg::StreamWriteValue { stream: wire(stream), address, value, wide, flags })
    }

    fn event_create(&self, ctx: ContextId, id: ObjectId, flags: u32) -> Result<()> {
        self.post(ctx, &msg::EventCreate { event: id.0, flags })
    }

    fn event_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.post(ctx, &msg::EventDestroy { event: id.0 })
    }

    fn event_record(&self, ctx: ContextId, id: ObjectId, stream: Stream, flags: u32) -> Result<()> {
        self.post(ctx, &msg::EventRecord { event: id.0, stream: wire(stream), flags })
    }

    fn event_synchronize(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.call(ctx, &msg::EventSynchronize { event: id.0 }, |_| ())
    }

    fn event_query(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.call(ctx, &msg::EventQuery { event: id.0 }, |_| ())
    }

    fn event_elapsed(&self, ctx: ContextId, start: ObjectId, end: ObjectId) -> Result<f32> {
        self.call(ctx, &msg::EventElapsed { start: start.0, end: end.0 }, |reply| reply.milliseconds)
    }

    fn module_load(&self, ctx: ContextId, id: ObjectId, image: Image<'_>, log: &mut JitLog) -> Result<()> {
        let session = self.session()?;
        let status = {
            // The pieces of two images must not mix.
            let _one_at_a_time = session.upload();
            for part in image.parts {
                for data in part.chunks(IMAGE_PIECE) {
                    self.post(ctx, &msg::ImageData { data })?;
                }
            }
            let parts = image.parts.iter().map(|part| part.len() as u64).collect();
            let message = msg::ModuleLoad { module: id.0, parts, options: image.options.clone() };
            let (status, said) = self.call(ctx, &message, |reply| (reply.status, reply.log))?;
            *log = said;
            status
        };
        succeed(status)
    }

    fn module_unload(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.call(ctx, &msg::ModuleUnload { module: id.0 }, |_| ())
    }

    fn module_functions(&self, ctx: ContextId, id: ObjectId) -> Result<Vec<String>> {
        self.call(ctx, &msg::ModuleFunctions { module: id.0 }, |reply| reply.names)
    }

    fn module_function(&self, ctx: ContextId, module: ObjectId, name: &str, function: ObjectId) -> Result<KernelInfo> {
        let message = msg::ModuleFunction { module: module.0, name, function: function.0 };
        self.call(ctx, &message, |reply| reply.info)
    }

    fn module_global(&self, ctx: ContextId, module: ObjectId, name: &str) -> Result<(u64, u64)> {
        self.call(ctx, &msg::ModuleGlobal { module: module.0, name }, |reply| (reply.address, reply.bytes))
    }

    fn function_set_attribute(&self, ctx: ContextId, function: ObjectId, attribute: u32, value: i32) -> Result<()> {
        self.post(ctx, &msg::FunctionSetAttribute { function: function.0, attribute, value })
    }

    fn function_set_cache_config(&self, ctx: ContextId, function: ObjectId, config: u32) -> Result<()> {
        self.post(ctx, &msg::FunctionSetCacheConfig { function: function.0, config })
    }

    fn occupancy(&self, ctx: ContextId, function: ObjectId, block: u32, shared: u64, flags: u32) -> Result<i32> {
        self.call(ctx, &msg::Occupancy { function: function.0, block, shared, flags }, |reply| reply.blocks)
    }

    fn occupancy_dynamic_shared(&self, ctx: ContextId, function: ObjectId, blocks: i32, block: i32) -> Result<u64> {
        self.call(ctx, &msg::OccupancyDynamicShared { function: function.0, blocks, block }, |reply| reply.bytes)
    }

    fn occupancy_clusters(&self, ctx: ContextId, launch: &Launch<'_>, largest: bool) -> Result<i32> {
        let message = msg::OccupancyClusters {
            function: launch.function.0,
            grid: dims(launch.grid),
            block: dims(launch.block),
            shared: launch.shared,
            attributes: launch.attributes.to_vec(),
            largest,
        };
        self.call(ctx, &message, |reply| reply.count)
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
        self.post(
            ctx,
            &msg::Launch {
                function: launch.function.0,
                stream: wire(stream),
                grid: dims(launch.grid),
                block: dims(launch.block),
                shared: launch.shared,
                cooperative: launch.cooperative,
                params: launch.params,
                attributes: launch.attributes.to_vec(),
            },
        )
    }

    fn statistics(&self) -> Vec<(&'static str, String)> {
        self.opened().map(|session| session.statistics()).unwrap_or_default()
    }
}
