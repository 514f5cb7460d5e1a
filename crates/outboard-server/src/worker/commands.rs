//! What the worker does for each message.

use std::time::{Duration, Instant};

use outboard_abi::{CUcontext, CUevent_flags, CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_session::chunks::Cut;
use outboard_wire::messages::*;

use super::answer::{Answer, Outcome};
use super::launch::{self, Config, Shape};
use super::memory::Slots;
use super::objects::{Context, Handle, current};
use super::{Worker, modules, staging};
use crate::generated::dispatch::Commands;

/// How long the dispatcher itself looks at work that is nearly done before it hands the wait to a helper, which costs more than this.
const GLANCE: Duration = Duration::from_micros(15);

/// What a wait is for.
#[derive(Clone, Copy)]
enum Wait {
    Context,
    Stream(Handle<outboard_abi::CUstream_st>),
    Event(Handle<outboard_abi::CUevent_st>),
}

impl Wait {
    /// `CUDA_ERROR_NOT_READY` if it would block.
    fn query(self, table: &Table) -> Outcome {
        match self {
            // The driver has no such question; the legacy stream alone does not answer for the others.
            Wait::Context => Err(CUresult::CUDA_ERROR_NOT_READY),
            Wait::Stream(stream) => call!(table, cuStreamQuery(stream.get())),
            Wait::Event(event) => call!(table, cuEventQuery(event.get())),
        }
    }

    fn block(self, table: &Table) -> Outcome {
        match self {
            Wait::Context => call!(table, cuCtxSynchronize()),
            Wait::Stream(stream) => call!(table, cuStreamSynchronize(stream.get())),
            Wait::Event(event) => call!(table, cuEventSynchronize(event.get())),
        }
    }
}

impl Worker {
    /// Waits for the device and then answers: here if that is soon, else on a helper thread.
    fn wait<M>(&mut self, wait: Wait, answer: Answer<M>, finish: impl FnOnce(Answer<M>, Outcome) + Send + 'static)
    where
        M: Call + 'static,
    {
        let context = match self.enter() {
            Ok(context) => context,
            Err(error) => return answer.error(error),
        };
        let until = Instant::now() + GLANCE;
        loop {
            match wait.query(self.table) {
                Err(CUresult::CUDA_ERROR_NOT_READY) if Instant::now() < until && !matches!(wait, Wait::Context) => {}
                Err(CUresult::CUDA_ERROR_NOT_READY) => break,
                outcome => {
                    self.tell();
                    return finish(answer, outcome);
                }
            }
        }
        self.on_helper(context, answer, move |table| wait.block(table), finish);
    }

    /// Makes a driver call that may block on a helper thread, and answers there.
    fn on_helper<M, T>(
        &self,
        context: Context,
        answer: Answer<M>,
        work: impl FnOnce(&'static Table) -> Result<T, CUresult> + Send + 'static,
        finish: impl FnOnce(Answer<M>, Result<T, CUresult>) + Send + 'static,
    ) where
        M: Call + 'static,
    {
        let (table, output, copies, replier) =
            (self.table, self.output.clone(), self.copies.clone(), self.replier.clone());
        self.helpers.run(move || {
            let outcome = call!(table, cuCtxSetCurrent(current(&context))).and_then(|()| work(table));
            if let Some(replier) = &replier {
                output.forward(replier);
                copies.tell(replier);
            }
            finish(answer, outcome);
        });
    }

    fn stream(&mut self, name: u64) -> Result<CUstream, CUresult> {
        self.enter()?;
        self.objects.stream(name)
    }

    /// Where a large copy of the command's context runs, in `stream`.
    fn place(&mut self, stream: CUstream) -> Result<staging::Place<'_>, CUresult> {
        let context = self.objects.context(self.ctx)?;
        let pool = self.pools.entry(self.ctx).or_insert_with(staging::Pool::new);
        let bulk = self.replier.as_ref().ok_or(CUresult::CUDA_ERROR_UNKNOWN)?.bulk();
        Ok(staging::Place { table: self.table, context: current(&context), stream, pool, bulk })
    }

    /// Throws away the bytes of a copy to the device that cannot be done.
    fn discard(&self, transfer: u64, cut: Cut) {
        if let Some(replier) = &self.replier
            && let Err(error) = replier.bulk().discard(transfer, cut)
        {
            self.violated(&error);
        }
    }

    /// Tells the client that a copy to the host brings nothing.
    fn cancel(&self, transfer: u64) {
        if let Some(replier) = &self.replier {
            replier.bulk().cancel(transfer, 0);
        }
    }

    fn open(&mut self, message: &ContextOpen) -> Result<(), CUresult> {
        if self.ctx == 0 || self.objects.contexts.contains_key(&self.ctx) {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        let device = message.device as i32;
        if !self.platform.devices.iter().any(|offered| offered.ordinal == message.device) {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        let mut real: CUcontext = core::ptr::null_mut();
        if message.primary {
            // Flags can be set while it is inactive; a failure leaves the default ones, which do.
            let _ = call!(self.table, cuDevicePrimaryCtxSetFlags_v2(device, message.flags));
            call!(self.table, cuDevicePrimaryCtxRetain(&raw mut real, device))?;
        } else {
            call!(self.table, cuCtxCreate_v2(&raw mut real, message.flags, device))?;
            let mut popped = core::ptr::null_mut();
            call!(self.table, cuCtxPopCurrent_v2(&raw mut popped))?;
        }
        self.current = 0;
        self.objects.contexts.insert(self.ctx, Context { real: Handle::new(real), device, primary: message.primary });
        Ok(())
    }

    fn close(&mut self) -> Result<Context, CUresult> {
        let context = self.objects.context(self.ctx)?;
        self.objects.contexts.remove(&self.ctx);
        self.objects.forget(self.ctx);
        self.allocations.forget(self.ctx);
        self.slots.forget(self.ctx);
        if let Some(pool) = self.pools.remove(&self.ctx) {
            pool.close();
        }
        if self.current == self.ctx {
            self.current = 0;
            call!(self.table, cuCtxSetCurrent(core::ptr::null_mut()))?;
        }
        Ok(context)
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, CUresult> {
        self.enter()?;
        let mut address = 0;
        call!(self.table, cuMemAlloc_v2(&raw mut address, bytes as usize))?;
        self.allocations.insert(address, bytes, self.ctx);
        Ok(address)
    }

    fn alloc_async(&mut self, message: &MemoryAllocAsync) -> Result<u64, CUresult> {
        let stream = self.stream(message.stream)?;
        let mut address = 0;
        call!(self.table, cuMemAllocAsync(&raw mut address, message.bytes as usize, stream))?;
        self.allocations.insert(address, message.bytes, self.ctx);
        Ok(address)
    }

    /// Starts a small copy to the host, into a buffer that the answer is made from.
    fn start_copy_out(
        &mut self,
        message: &CopyOut,
    ) -> Result<(super::memory::Slot, Handle<outboard_abi::CUevent_st>), CUresult> {
        let stream = self.stream(message.stream)?;
        if message.bytes as usize > Slots::BYTES {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.allocations.check(message.src, u64::from(message.bytes))?;
        let slot = self.slots.take(self.table, self.ctx)?;
        call!(self.table, cuMemcpyDtoHAsync_v2(slot.pointer().cast(), message.src, message.bytes as usize, stream))?;
        let mut event = core::ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
        call!(self.table, cuEventCreate(&raw mut event, flags))?;
        call!(self.table, cuEventRecord(event, stream))?;
        Ok((slot, Handle::new(event)))
    }

    fn load(&mut self, message: &ModuleLoad) -> Result<modules::Loaded, CUresult> {
        let parts = self.upload.take(&message.parts)?;
        self.enter()?;
        self.objects.modules.check_new(message.module)?;
        let loaded = modules::load(self.table, &parts, &message.options);
        if let Ok(module) = loaded.outcome {
            self.objects.modules.insert(message.module, self.ctx, module);
        }
        Ok(loaded)
    }
}

impl Commands for Worker {
    fn context_open(&mut self, message: ContextOpen, answer: Answer<ContextOpen>) {
        let outcome = self.open(&message);
        answer.result(outcome.map(|()| ContextOpenReply {}));
    }

    fn context_close(&mut self, _: ContextClose, answer: Answer<ContextClose>) {
        match self.close() {
            Ok(context) => self.on_helper(
                context,
                answer,
                move |table| {
                    call!(table, cuCtxSetCurrent(core::ptr::null_mut()))?;
                    if context.primary {
                        // A reset ends it whatever its state and whoever holds it: this process serves one client.
                        call!(table, cuDevicePrimaryCtxReset_v2(context.device))?;
                        call!(table, cuDevicePrimaryCtxRelease_v2(context.device))
                    } else {
                        call!(table, cuCtxDestroy_v2(current(&context)))
                    }
                },
                |answer, outcome| answer.result(outcome.map(|()| ContextCloseReply {})),
            ),
            Err(error) => answer.error(error),
        }
    }

    fn context_synchronize(&mut self, _: ContextSynchronize, answer: Answer<ContextSynchronize>) {
        self.wait(Wait::Context, answer, |answer, outcome| {
            answer.result(outcome.map(|()| ContextSynchronizeReply {}));
        });
    }

    fn context_limit(&mut self, message: ContextLimit, answer: Answer<ContextLimit>) {
        let mut value = 0usize;
        let limit = outboard_abi::CUlimit_enum(message.limit);
        let outcome = self.enter().and_then(|_| call!(self.table, cuCtxGetLimit(&raw mut value, limit)));
        answer.result(outcome.map(|()| ContextLimitReply { value: value as u64 }));
    }

    fn context_set_limit(&mut self, message: ContextSetLimit, answer: Answer<ContextSetLimit>) {
        let limit = outboard_abi::CUlimit_enum(message.limit);
        let outcome = self.enter().and_then(|_| call!(self.table, cuCtxSetLimit(limit, message.value as usize)));
        answer.result(outcome.map(|()| ContextSetLimitReply {}));
    }

    fn memory_info(&mut self, _: MemoryInfo, answer: Answer<MemoryInfo>) {
        let (mut free, mut total) = (0usize, 0usize);
        let outcome = self.enter().and_then(|_| call!(self.table, cuMemGetInfo_v2(&raw mut free, &raw mut total)));
        answer.result(outcome.map(|()| MemoryInfoReply { free: free as u64, total: total as u64 }));
    }

    fn memory_alloc(&mut self, message: MemoryAlloc, answer: Answer<MemoryAlloc>) {
        let outcome = self.alloc(message.bytes);
        answer.result(outcome.map(|address| MemoryAllocReply { address }));
    }

    fn memory_free(&mut self, message: MemoryFree, answer: Answer<MemoryFree>) {
        match self.enter().and_then(|context| self.allocations.remove(message.address).map(|()| context)) {
            // The driver waits for all work that may use it.
            Ok(context) => self.on_helper(
                context,
                answer,
                move |table| call!(table, cuMemFree_v2(message.address)),
                |answer, outcome| answer.result(outcome.map(|()| MemoryFreeReply {})),
            ),
            Err(error) => answer.error(error),
        }
    }

    fn memory_alloc_async(&mut self, message: MemoryAllocAsync, answer: Answer<MemoryAllocAsync>) {
        let outcome = self.alloc_async(&message);
        answer.result(outcome.map(|address| MemoryAllocAsyncReply { address }));
    }

    fn memory_free_async(&mut self, message: MemoryFreeAsync) -> Outcome {
        let stream = self.stream(message.stream)?;
        self.allocations.remove(message.address)?;
        call!(self.table, cuMemFreeAsync(message.address, stream))
    }

    fn copy_in(&mut self, message: CopyIn<'_>) -> Outcome {
        let stream = self.stream(message.stream)?;
        self.allocations.check(message.dst, message.data.len() as u64)?;
        // Pageable and small: the driver takes the bytes along before it returns.
        call!(self.table, cuMemcpyHtoDAsync_v2(message.dst, message.data.as_ptr().cast(), message.data.len(), stream))
    }

    fn copy_in_bulk(&mut self, m: CopyInBulk) -> Outcome {
        let cut = Cut::new(m.bytes, m.chunk).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let started = self.allocations.check(m.dst, m.bytes).and_then(|()| {
            let stream = self.stream(m.stream)?;
            let watcher = staging::copy_in(&self.place(stream)?, m.transfer, cut, m.dst)?;
            self.helpers.run(watcher);
            Ok(())
        });
        if started.is_err() {
            // The bytes are on their way all the same.
            self.discard(m.transfer, cut);
        }
        started
    }

    fn copy_out(&mut self, message: CopyOut, answer: Answer<CopyOut>) {
        let bytes = message.bytes as usize;
        match self.start_copy_out(&message) {
            Ok((slot, event)) => {
                let table = self.table;
                self.wait(Wait::Event(event), answer, move |answer, outcome| {
                    let _ = call!(table, cuEventDestroy_v2(event.get()));
                    // SAFETY: the event was recorded behind the copy.
                    answer.result(outcome.map(|()| CopyOutReply { data: unsafe { slot.bytes(bytes) } }));
                });
            }
            Err(error) => answer.error(error),
        }
    }

    fn copy_out_bulk(&mut self, m: CopyOutBulk) -> Outcome {
        let cut = Cut::new(m.bytes, m.chunk).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let started = self.allocations.check(m.src, m.bytes).and_then(|()| {
            let stream = self.stream(m.stream)?;
            let (out, watcher) = staging::copy_out(&self.place(stream)?, m.transfer, cut, m.src)?;
            self.copies.add(out);
            self.helpers.run(watcher);
            Ok(())
        });
        if started.is_err() {
            self.cancel(m.transfer);
        }
        started
    }

    fn copy_on_device(&mut self, m: CopyOnDevice) -> Outcome {
        let stream = self.stream(m.stream)?;
        self.allocations.check_rows(m.dst, m.width, m.height, m.dst_pitch)?;
        self.allocations.check_rows(m.src, m.width, m.height, m.src_pitch)?;
        if m.height == 1 {
            return call!(self.table, cuMemcpyDtoDAsync_v2(m.dst, m.src, m.width as usize, stream));
        }
        let copy = outboard_abi::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: outboard_abi::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: core::ptr::null(),
            srcDevice: m.src,
            srcArray: core::ptr::null_mut(),
            srcPitch: m.src_pitch as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: outboard_abi::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: core::ptr::null_mut(),
            dstDevice: m.dst,
            dstArray: core::ptr::null_mut(),
            dstPitch: m.dst_pitch as usize,
            WidthInBytes: m.width as usize,
            Height: m.height as usize,
        };
        call!(self.table, cuMemcpy2DAsync_v2(&raw const copy, stream))
    }

    fn fill(&mut self, m: Fill) -> Outcome {
        let stream = self.stream(m.stream)?;
        let row = m.width.checked_mul(u64::from(m.element)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.allocations.check_rows(m.dst, row, m.height, m.pitch)?;
        let (pitch, width, height) = (m.pitch as usize, m.width as usize, m.height as usize);
        match (m.element, m.height) {
            (1, 1) => call!(self.table, cuMemsetD8Async(m.dst, m.value as u8, width, stream)),
            (2, 1) => call!(self.table, cuMemsetD16Async(m.dst, m.value as u16, width, stream)),
            (4, 1) => call!(self.table, cuMemsetD32Async(m.dst, m.value, width, stream)),
            (1, _) => call!(self.table, cuMemsetD2D8Async(m.dst, pitch, m.value as u8, width, height, stream)),
            (2, _) => call!(self.table, cuMemsetD2D16Async(m.dst, pitch, m.value as u16, width, height, stream)),
            (4, _) => call!(self.table, cuMemsetD2D32Async(m.dst, pitch, m.value, width, height, stream)),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn stream_create(&mut self, m: StreamCreate) -> Outcome {
        self.enter()?;
        self.objects.streams.check_new(m.stream)?;
        let mut stream = core::ptr::null_mut();
        call!(self.table, cuStreamCreateWithPriority(&raw mut stream, m.flags, m.priority))?;
        self.objects.streams.insert(m.stream, self.ctx, Handle::new(stream));
        Ok(())
    }

    fn stream_destroy(&mut self, m: StreamDestroy) -> Outcome {
        self.enter()?;
        let stream = self.objects.streams.remove(m.stream)?;
        call!(self.table, cuStreamDestroy_v2(stream.get()))
    }

    fn stream_synchronize(&mut self, m: StreamSynchronize, answer: Answer<StreamSynchronize>) {
        match self.objects.stream(m.stream) {
            Ok(stream) => self.wait(Wait::Stream(Handle::new(stream)), answer, |answer, outcome| {
                answer.result(outcome.map(|()| StreamSynchronizeReply {}));
            }),
            Err(error) => answer.error(error),
        }
    }

    fn stream_query(&mut self, m: StreamQuery, answer: Answer<StreamQuery>) {
        let outcome = self.stream(m.stream).and_then(|stream| call!(self.table, cuStreamQuery(stream)));
        self.copies_told();
        answer.result(outcome.map(|()| StreamQueryReply {}));
    }

    fn stream_wait_event(&mut self, m: StreamWaitEvent) -> Outcome {
        let stream = self.stream(m.stream)?;
        let event = self.objects.event(m.event)?;
        call!(self.table, cuStreamWaitEvent(stream, event, m.flags))
    }

    fn stream_wait_value(&mut self, m: StreamWaitValue) -> Outcome {
        let stream = self.stream(m.stream)?;
        self.allocations.check(m.address, if m.wide { 8 } else { 4 })?;
        if m.wide {
            call!(self.table, cuStreamWaitValue64_v2(stream, m.address, m.value, m.flags))
        } else {
            call!(self.table, cuStreamWaitValue32_v2(stream, m.address, m.value as u32, m.flags))
        }
    }

    fn stream_write_value(&mut self, m: StreamWriteValue) -> Outcome {
        let stream = self.stream(m.stream)?;
        self.allocations.check(m.address, if m.wide { 8 } else { 4 })?;
        if m.wide {
            call!(self.table, cuStreamWriteValue64_v2(stream, m.address, m.value, m.flags))
        } else {
            call!(self.table, cuStreamWriteValue32_v2(stream, m.address, m.value as u32, m.flags))
        }
    }

    fn event_create(&mut self, m: EventCreate) -> Outcome {
        self.enter()?;
        self.objects.events.check_new(m.event)?;
        let mut event = core::ptr::null_mut();
        call!(self.table, cuEventCreate(&raw mut event, m.flags))?;
        self.objects.events.insert(m.event, self.ctx, Handle::new(event));
        Ok(())
    }

    fn event_destroy(&mut self, m: EventDestroy) -> Outcome {
        self.enter()?;
        let event = self.objects.events.remove(m.event)?;
        call!(self.table, cuEventDestroy_v2(event.get()))
    }

    fn event_record(&mut self, m: EventRecord) -> Outcome {
        let stream = self.stream(m.stream)?;
        let event = self.objects.event(m.event)?;
        if m.flags == 0 {
            call!(self.table, cuEventRecord(event, stream))
        } else {
            call!(self.table, cuEventRecordWithFlags(event, stream, m.flags))
        }
    }

    fn event_synchronize(&mut self, m: EventSynchronize, answer: Answer<EventSynchronize>) {
        match self.objects.event(m.event) {
            Ok(event) => self.wait(Wait::Event(Handle::new(event)), answer, |answer, outcome| {
                answer.result(outcome.map(|()| EventSynchronizeReply {}));
            }),
            Err(error) => answer.error(error),
        }
    }

    fn event_query(&mut self, m: EventQuery, answer: Answer<EventQuery>) {
        let event = self.enter().and_then(|_| self.objects.event(m.event));
        let outcome = event.and_then(|event| call!(self.table, cuEventQuery(event)));
        self.copies_told();
        answer.result(outcome.map(|()| EventQueryReply {}));
    }

    fn event_elapsed(&mut self, m: EventElapsed, answer: Answer<EventElapsed>) {
        let mut milliseconds = 0.0;
        let events = self.enter().and_then(|_| Ok((self.objects.event(m.start)?, self.objects.event(m.end)?)));
        let outcome =
            events.and_then(|(start, end)| call!(self.table, cuEventElapsedTime(&raw mut milliseconds, start, end)));
        answer.result(outcome.map(|()| EventElapsedReply { milliseconds }));
    }

    fn image_data(&mut self, m: ImageData<'_>) -> Outcome {
        self.upload.extend(m.data)
    }

    fn module_load(&mut self, m: ModuleLoad, answer: Answer<ModuleLoad>) {
        match self.load(&m) {
            Ok(loaded) => {
                let status = loaded.outcome.map_or_else(|error| error.0, |_| 0);
                answer.ok(&ModuleLoadReply { status, info: &loaded.info, error: &loaded.error });
            }
            Err(error) => answer.error(error),
        }
    }

    fn module_unload(&mut self, m: ModuleUnload, answer: Answer<ModuleUnload>) {
        let context = self.enter();
        match context.and_then(|context| self.objects.modules.remove(m.module).map(|module| (context, module))) {
            Ok((context, module)) => {
                self.objects.functions.retain(|(_, of)| *of != m.module);
                self.on_helper(
                    context,
                    answer,
                    move |table| module.unload(table),
                    |answer, outcome| answer.result(outcome.map(|()| ModuleUnloadReply {})),
                );
            }
            Err(error) => answer.error(error),
        }
    }

    fn module_functions(&mut self, m: ModuleFunctions, answer: Answer<ModuleFunctions>) {
        let module = self.enter().and_then(|_| self.objects.module(m.module));
        let outcome = module.and_then(|module| modules::names(self.table, module));
        answer.result(outcome.map(|names| ModuleFunctionsReply { names }));
    }

    fn module_function(&mut self, m: ModuleFunction<'_>, answer: Answer<ModuleFunction<'static>>) {
        let find = || {
            self.enter()?;
            self.objects.functions.check_new(m.function)?;
            let module = self.objects.module(m.module)?;
            let (function, info) = modules::function(self.table, module, m.name)?;
            self.objects.functions.insert(m.function, self.ctx, (Handle::new(function), m.module));
            Ok(ModuleFunctionReply { info })
        };
        let mut find = find;
        answer.result(find());
    }

    fn module_global(&mut self, m: ModuleGlobal<'_>, answer: Answer<ModuleGlobal<'static>>) {
        let module = self.enter().and_then(|_| self.objects.module(m.module));
        let outcome = module.and_then(|module| modules::global(self.table, module, m.name));
        if let Ok((address, bytes)) = outcome
            && self.allocations.check(address, bytes).is_err()
        {
            self.allocations.insert(address, bytes, self.ctx);
        }
        answer.result(outcome.map(|(address, bytes)| ModuleGlobalReply { address, bytes }));
    }

    fn function_set_attribute(&mut self, m: FunctionSetAttribute) -> Outcome {
        self.enter()?;
        let function = self.objects.function(m.function)?;
        let attribute = outboard_abi::CUfunction_attribute_enum(m.attribute);
        call!(self.table, cuFuncSetAttribute(function, attribute, m.value))
    }

    fn function_set_cache_config(&mut self, m: FunctionSetCacheConfig) -> Outcome {
        self.enter()?;
        let function = self.objects.function(m.function)?;
        call!(self.table, cuFuncSetCacheConfig(function, outboard_abi::CUfunc_cache_enum(m.config)))
    }

    fn occupancy(&mut self, m: Occupancy, answer: Answer<Occupancy>) {
        let mut blocks = 0;
        let function = self.enter().and_then(|_| self.objects.function(m.function));
        let outcome = function.and_then(|function| {
            let (block, shared) = (m.block as i32, m.shared as usize);
            call!(
                self.table,
                cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&raw mut blocks, function, block, shared, m.flags)
            )
        });
        answer.result(outcome.map(|()| OccupancyReply { blocks }));
    }

    fn occupancy_clusters(&mut self, m: OccupancyClusters, answer: Answer<OccupancyClusters>) {
        let function = self.enter().and_then(|_| self.objects.function(m.function));
        let outcome = function.and_then(|function| {
            let shape = Shape { grid: m.grid, block: m.block, shared: m.shared };
            let config = Config::new(&shape, core::ptr::null_mut(), &m.attributes, false)?;
            let mut count = 0;
            if m.largest {
                call!(self.table, cuOccupancyMaxPotentialClusterSize(&raw mut count, function, config.pointer()))?;
            } else {
                call!(self.table, cuOccupancyMaxActiveClusters(&raw mut count, function, config.pointer()))?;
            }
            Ok(OccupancyClustersReply { count })
        });
        answer.result(outcome);
    }

    fn tensor_map_tiled(&mut self, m: TensorMapTiled, answer: Answer<TensorMapTiled>) {
        let outcome = self.enter().and_then(|_| launch::tensor_map(self.table, &m));
        answer.result(outcome.map(|map| TensorMapTiledReply { map }));
    }

    fn launch(&mut self, m: Launch<'_>) -> Outcome {
        let stream = self.stream(m.stream)?;
        let function = self.objects.function(m.function)?;
        let shape = Shape { grid: m.grid, block: m.block, shared: m.shared };
        launch::launch(self.table, function, &shape, stream, m.params, &m.attributes, m.cooperative)
    }
}
