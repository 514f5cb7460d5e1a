//! The devices of a server: what the front asks, sent over the link.

mod array;
mod copy;
mod device;
mod graph;
mod green;
mod host_call;
mod image;
mod ipc;
mod link;
mod managed;
mod peer;
mod pinned;
mod pool;
mod reference;
mod seen;
mod stream;
mod tensormap;
mod vmm;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use outboard_abi::CUresult;
use outboard_front::backend::{
    Backend, ContextId, CopyMode, Fill, Image, JitLog, Launch, ObjectId, Rect, Result, Stream, TiledMap,
};
use outboard_wire::Reader;
use outboard_wire::messages as msg;
use outboard_wire::platform::{KernelInfo, Platform};

use crate::host::HostMemory;
use crate::pager::{Done, Pager};
use crate::progress::Progress;
use crate::session::Session;
use crate::slabs::Slabs;
use managed::HostCopy;
pub(crate) use managed::with_shared_memory;
use seen::{SMALL, Seen};

/// The remote devices. One server serves the process, from its first `cuInit` on.
pub struct Remote {
    /// From the first connection on; a forked child that had not begun to use it makes another.
    session: AtomicPtr<Arc<Session>>,
    host: HostMemory,
    pager: Pager,
    /// Held while page-locked memory becomes mapped.
    mapping: Mutex<()>,
    slabs: Mutex<Slabs>,
    /// Managed variables, by module.
    variables: Mutex<BTreeMap<u64, Vec<Range<u64>>>>,
    seen: Seen,
}

static REMOTE: Remote = Remote {
    session: AtomicPtr::new(core::ptr::null_mut()),
    host: HostMemory::new(),
    pager: Pager::new(),
    mapping: Mutex::new(()),
    slabs: Mutex::new(Slabs::new()),
    variables: Mutex::new(BTreeMap::new()),
    seen: Seen::new(),
};

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

    /// Queues what puts work into one stream.
    #[inline]
    fn post_to<M: msg::Message>(&self, ctx: ContextId, stream: Stream, message: &M) -> Result<()> {
        self.session()?.post_to(ctx, wire(stream), message)
    }

    /// As [`Remote::post_to`]; returns the command's number.
    fn post_counted<M: msg::Message>(&self, ctx: ContextId, stream: Stream, message: &M) -> Result<u64> {
        let session = self.session()?;
        let seq = session.post_numbered(ctx, message)?;
        session.progress().posted_to(wire(stream), seq);
        Ok(seq)
    }

    /// As [`Remote::call`], for what leaves no work in any stream.
    fn call_idle<M, T>(&self, ctx: ContextId, message: &M, read: impl for<'a> FnOnce(M::Reply<'a>) -> T) -> Result<T>
    where
        M: msg::Call,
    {
        let (_, payload) = self.session()?.call_idle(ctx, message)?;
        let mut reader = Reader::new(&payload);
        let reply = reader.get().map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
        Ok(read(reply))
    }

    /// As [`Remote::call`], for what puts work into one stream.
    fn call_to<M, T>(
        &self,
        ctx: ContextId,
        stream: Stream,
        message: &M,
        read: impl for<'a> FnOnce(M::Reply<'a>) -> T,
    ) -> Result<T>
    where
        M: msg::Call,
    {
        let session = self.session()?;
        let (seq, payload) = session.call_idle(ctx, message)?;
        session.progress().posted_to(wire(stream), seq);
        Reader::new(&payload).get().map(read).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)
    }

    /// Waits or asks for the end of what has been queued, unless that is known, as `is_done` says. Returns the number of a command that succeeded.
    fn learn<M: msg::Call>(
        &self,
        ctx: ContextId,
        message: &M,
        is_done: impl FnOnce(&Progress) -> bool,
    ) -> Result<Option<u64>> {
        let session = self.session()?;
        if is_done(session.progress()) {
            return session.wait_for_nothing().map(|()| None);
        }
        session.wait(ctx, message).map(|(seq, _)| Some(seq))
    }

    /// As [`Remote::learn`], for a wait, which is noted by its number when it has succeeded. A question that succeeded is not: only a wait makes the
    /// driver print what kernels have printed and give back what pools have freed.
    fn wait<M: msg::Call>(
        &self,
        ctx: ContextId,
        message: &M,
        is_done: impl FnOnce(&Progress) -> bool,
        note: impl FnOnce(&Progress, u64),
    ) -> Result<()> {
        self.session()?.before_wait();
        if let Some(seq) = self.learn(ctx, message, is_done)? {
            let session = self.session()?;
            let progress = session.progress();
            note(progress, seq);
            session.reuse().waited(|ctx, stream| progress.is_stream_idle(ctx, stream));
        }
        Ok(())
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

impl Remote {
    fn post_copy(&self, ctx: ContextId, dst: u64, src: u64, rect: Rect, stream: Stream) -> Result<()> {
        let Rect { width, height, dst_pitch, src_pitch } = rect;
        self.post_to(
            ctx,
            stream,
            &msg::CopyOnDevice { dst, src, width, height, dst_pitch, src_pitch, stream: wire(stream) },
        )
    }
}

/// The outcome that stands in a reply.
fn succeed(status: u32) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(CUresult(status)) }
}

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;

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
        self.pager.connect(Box::new(&managed::MOVER));
        Ok(platform)
    }

    fn context_open(&self, ctx: ContextId, device: u32, flags: u32, primary: bool) -> Result<()> {
        self.call(ctx, &msg::ContextOpen { device, flags, primary }, |_| ())?;
        self.session()?.reuse().context_opened(ctx, device);
        Ok(())
    }

    fn context_close(&self, ctx: ContextId) -> Result<()> {
        self.seen.context_ends(ctx);
        self.end_shared_memory(ctx);
        let session = self.session()?;
        session.reuse().end_context(ctx, |block| session.give_back(block));
        let outcome = self.call(ctx, &msg::ContextClose {}, |_| ());
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
        if session.progress().is_context_idle(ctx) {
            // There is nothing that the driver would wait for, and nothing to report.
            session.post_numbered(ctx, &msg::MemoryFreeIdle { address })?;
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
        self.session()?.finish_copies(memory, bytes);
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
        self.session()?.finish_copies(memory, bytes);
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
        if self.host.is_shared(src as u64, bytes) {
            return self.copy_pinned(ctx, (dst, src as u64), bytes, stream, mode);
        }
        // SAFETY: by the contract of this method.
        let plain = || unsafe { self.session()?.copy_to_device(ctx, dst, src, bytes, wire(stream), mode) };
        if !self.pager.is_active() {
            return plain();
        }
        let (device, host) = (dst, src as u64);
        let copy = HostCopy { ctx, stream, to_device: true, device, host, bytes, mode };
        // SAFETY: as above.
        unsafe { self.copy_shared(&copy, plain) }
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
        if self.host.is_shared(dst as u64, bytes) {
            return self.copy_pinned(ctx, (dst as u64, src), bytes, stream, mode);
        }
        // SAFETY: by the contract of this method.
        let plain = || unsafe { self.session()?.copy_to_host(ctx, dst, src, bytes, wire(stream), mode) };
        if !self.pager.is_active() {
            if bytes <= SMALL && mode != CopyMode::Pinned {
                let rect = Rect { width: bytes, height: 1, dst_pitch: bytes, src_pitch: bytes };
                let queue = |slot: seen::Slot| self.post_copy(ctx, slot.bytes(), src, rect, stream);
                if let Some(slot) = self.seen(ctx, stream, queue)? {
                    // SAFETY: the slot is this thread's, and the device is done with it; the other by the contract of this method.
                    unsafe { core::ptr::copy_nonoverlapping(slot.bytes() as *const u8, dst, bytes as usize) };
                    return Ok(());
                }
                return self.unseen(plain);
            }
            return plain();
        }
        let (device, host) = (src, dst as u64);
        let copy = HostCopy { ctx, stream, to_device: false, device, host, bytes, mode };
        // SAFETY: as above.
        unsafe { self.copy_shared(&copy, plain) }
    }

    fn copy_on_device(&self, ctx: ContextId, dst: u64, src: u64, rect: Rect, stream: Stream) -> Result<()> {
        let post = || self.post_copy(ctx, dst, src, rect, stream);
        let span = |pitch: u64| pitch * (rect.height - 1) + rect.width;
        if self.is_tracked(dst, span(rect.dst_pitch)) || self.is_tracked(src, span(rect.src_pitch)) {
            return self.work(ctx, stream, post);
        }
        post()
    }

    fn fill(&self, ctx: ContextId, fill: Fill, stream: Stream) -> Result<()> {
        let Fill { dst, pitch, value, element, width, height } = fill;
        if self.host.may_contain(dst) {
            self.map_host(ctx, dst)?;
        }
        let message = msg::Fill { dst, pitch, value, element, width, height, stream: wire(stream) };
        if self.is_tracked(dst, pitch * (height - 1) + width * u64::from(element)) {
            return self.work(ctx, stream, || self.post_to(ctx, stream, &message));
        }
        self.post_to(ctx, stream, &message)
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
            self.learn(ctx, &msg::StreamQuery { stream }, idle).map(drop)
        })
    }

    fn stream_wait_event(&self, ctx: ContextId, stream: Stream, event: ObjectId, flags: u32) -> Result<()> {
        self.post_to(ctx, stream, &msg::StreamWaitEvent { stream: wire(stream), event: event.0, flags })
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
        if self.is_tracked(address, 8) {
            return self.work(ctx, stream, || self.post_to(ctx, stream, &message));
        }
        self.post_to(ctx, stream, &message)
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
        if self.is_tracked(address, 8) {
            return self.work(ctx, stream, || self.post_to(ctx, stream, &message));
        }
        self.post_to(ctx, stream, &message)
    }

    fn event_create(&self, ctx: ContextId, id: ObjectId, flags: u32) -> Result<()> {
        if flags & INTERPROCESS != 0 {
            self.session()?.progress().share_event(id.0);
        }
        self.post(ctx, &msg::EventCreate { event: id.0, flags })
    }

    fn event_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        if self.pager.is_active() {
            self.pager.forget(id.0);
        }
        self.session()?.progress().forget_event(id.0);
        self.post(ctx, &msg::EventDestroy { event: id.0 })
    }

    fn event_record(&self, ctx: ContextId, id: ObjectId, stream: Stream, flags: u32) -> Result<()> {
        let (session, stream_name) = (self.session()?, wire(stream));
        let message = msg::EventRecord { event: id.0, stream: stream_name, flags };
        session.progress().record(id.0, ctx, stream_name, || self.post_counted(ctx, stream, &message))?;
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
            self.learn(ctx, &msg::EventQuery { event: id.0 }, happened).map(drop)
        })
    }

    fn event_elapsed(&self, ctx: ContextId, start: ObjectId, end: ObjectId) -> Result<f32> {
        self.call_idle(ctx, &msg::EventElapsed { start: start.0, end: end.0 }, |reply| reply.milliseconds)
    }

    fn module_load(&self, ctx: ContextId, id: ObjectId, image: Image<'_>, log: &mut JitLog) -> Result<()> {
        self.load_image(ctx, id, &image, log)
    }

    fn module_unload(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.end_variables(id.0);
        self.session()?.kernels().forget(id.0);
        self.call(ctx, &msg::ModuleUnload { module: id.0 }, |_| ())
    }

    fn module_functions(&self, ctx: ContextId, id: ObjectId) -> Result<Vec<String>> {
        if let Some(names) = self.session()?.kernels().names(id.0) {
            return Ok(names);
        }
        self.call_idle(ctx, &msg::ModuleFunctions { module: id.0 }, |reply| reply.names)
    }

    fn module_function(&self, ctx: ContextId, module: ObjectId, name: &str, function: ObjectId) -> Result<KernelInfo> {
        let session = self.session()?;
        match session.kernels().find(module.0, name) {
            Some(Some(info)) => {
                let message = msg::ModuleFunctionKnown { module: module.0, name, function: function.0 };
                session.post_numbered(ctx, &message)?;
                return Ok(info);
            }
            Some(None) => return Err(CUresult::CUDA_ERROR_NOT_FOUND),
            None => {}
        }
        let message = msg::ModuleFunction { module: module.0, name, function: function.0 };
        self.call(ctx, &message, |reply| reply.info)
    }

    fn module_global(&self, ctx: ContextId, module: ObjectId, name: &str) -> Result<(u64, u64, bool)> {
        let message = msg::ModuleGlobal { module: module.0, name };
        let found = self.call(ctx, &message, |reply| (reply.address, reply.bytes, reply.managed))?;
        let (address, bytes, managed) = found;
        if managed {
            self.add_variable(ctx, module.0, address..address + bytes)?;
        }
        Ok(found)
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
        self.map_parameters(ctx, launch.params)?;
        let message = msg::Launch {
            function: launch.function.0,
            stream: wire(stream),
            grid: dims(launch.grid),
            block: dims(launch.block),
            shared: launch.shared,
            cooperative: launch.cooperative,
            params: launch.params,
            attributes: launch.attributes.to_vec(),
        };
        if !message.attributes.is_empty() {
            // An event may be among them.
            let session = self.session()?;
            let post = || session.progress().record_unnamed(|| self.post_counted(ctx, stream, &message));
            return self.work(ctx, stream, post);
        }
        self.work(ctx, stream, || self.post_to(ctx, stream, &message))
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
