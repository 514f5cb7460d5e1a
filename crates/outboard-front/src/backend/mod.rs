//! What the front needs of the device behind it. The software device does the work itself; the client sends it to a server.
//!
//! The front has checked what can be checked before it calls: handles are alive and of the context at hand, launch configurations fit
//! the device, pointers are not null. A backend gets plain numbers: ids that the front minted, device addresses, host addresses.
//!
//! Each method belongs to a class: *posted* ones may return before anything happened and report failure later (see [`crate::fault`]),
//! *call* ones return when the outcome is known.

mod array;
mod copy;
mod device;
mod graph;
mod green;
mod host_call;
mod ipc;
mod link;
mod managed;
mod peer;
mod pool;
mod reference;
mod stream;
mod tensormap;
mod vmm;

use outboard_abi::CUresult;
use outboard_wire::platform::{KernelInfo, Platform};
pub use outboard_wire::types::{JitLog, JitOptions};

pub use array::{ArrayDescriptor, Arrays, Resource, Sampler, SparseProperties, View};
pub use copy::{BoxCopies, BoxCopy, Extent, Layout, Memory, Side};
pub use device::Devices;
pub use graph::{Graphs, Instantiated, Updated};
pub use green::{GreenContexts, Share, Split, SplitRequest};
pub use host_call::{HostCall, HostCalls};
pub use ipc::{Sharing, Token};
pub use link::{LinkInput, Linking};
pub use managed::Managed;
pub use peer::Peers;
pub use pool::{PoolKind, Pools};
pub use reference::{ReferenceSetting, References};
pub use stream::{MemoryOperation, Streams};
pub use tensormap::{Im2colMap, TensorMaps};
pub use vmm::{MemoryKind, VirtualMemory};

/// The outcome of a call: `Err` holds what the entry point returns, never `CUDA_SUCCESS`.
pub type Result<T> = std::result::Result<T, CUresult>;

/// A context, as named by the front. Never 0, and not used again while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ContextId(pub u32);

/// A stream, event, module or function, as named by the front: unique in the process, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

/// Where work is queued.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stream {
    /// The legacy default stream of the context: waits for all blocking streams and they for it.
    Legacy,
    /// A stream made with [`Backend::stream_create`].
    Created(ObjectId),
}

/// What a copy between host and device promises when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyMode {
    /// `cuMemcpyHtoD`, `cuMemcpyDtoH`: in the stream's order. To the device, the bytes are there on return if there are more than 64 KiB, and the
    /// source may be reused in any case; to the host, the bytes are there on return.
    Synchronous,
    /// An asynchronous copy from or to pageable memory: as [`CopyMode::Synchronous`], but a copy to the device need not have reached it.
    Pageable,
    /// An asynchronous copy from or to pinned memory: returns at once; the memory is read or written when the stream comes to it.
    Pinned,
}

/// A launch whose configuration has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel, as named in [`Backend::module_function`].
    pub function: ObjectId,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub shared: u32,
    /// The parameter buffer, laid out as [`KernelInfo::params`] tells.
    pub params: &'a [u8],
    /// Whether all blocks must be resident at once (`cuLaunchCooperativeKernel`).
    pub cooperative: bool,
    /// Other launch attributes: `CUlaunchAttributeID` and its value's bytes.
    pub attributes: &'a [(u32, [u8; 64])],
}

/// What a tiled tensor map describes; the names and values are those of `cuTensorMapEncodeTiled`.
#[derive(Clone, Copy, Debug)]
pub struct TiledMap<'a> {
    /// `CUtensorMapDataType`.
    pub data_type: u32,
    /// Device address of the tensor.
    pub address: u64,
    /// Elements along each dimension, fastest first.
    pub dims: &'a [u64],
    /// Bytes from one index to the next of each dimension but the first.
    pub strides: &'a [u64],
    /// Elements of the box along each dimension.
    pub box_dims: &'a [u32],
    /// Step between elements along each dimension.
    pub element_strides: &'a [u32],
    /// `CUtensorMapInterleave`.
    pub interleave: u32,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u32,
    /// `CUtensorMapL2promotion`.
    pub promotion: u32,
    /// `CUtensorMapFloatOOBfill`.
    pub fill: u32,
}

/// A fill of `height` rows of `width` elements.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Address of the first row.
    pub dst: u64,
    /// Bytes from one row to the next; not used when `height` is 1.
    pub pitch: u64,
    /// The element's value, in its low `element` bytes.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u8,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

/// A rectangle of bytes on the device.
#[derive(Clone, Copy, Debug)]
pub struct Rect {
    /// Bytes of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Bytes from one row of the destination to the next.
    pub dst_pitch: u64,
    /// Bytes from one row of the source to the next.
    pub src_pitch: u64,
}

/// A program image as the application handed it over.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Fat binary containers, one cubin, or PTX text without its final zero; more than one for the pre-link containers of `-rdc`.
    pub parts: &'a [&'a [u8]],
    /// What the compiler and the linker are told.
    pub options: &'a JitOptions,
    /// The architecture of the device that it is for, such as 90.
    pub sm: u32,
}

/// A driver library's device side. One value serves the process; calls come from any thread.
pub trait Backend:
    Arrays
    + Devices
    + BoxCopies
    + Graphs
    + GreenContexts
    + HostCalls
    + Linking
    + Managed
    + Peers
    + Pools
    + References
    + Sharing
    + TensorMaps
    + Streams
    + VirtualMemory
    + Send
    + Sync
    + Sized
    + 'static
{
    /// The one instance.
    fn get() -> &'static Self;

    /// Finds the devices; the first `cuInit` calls it, and again if that failed.
    fn platform(&self) -> Result<Platform>;
    /// Says to who wants to know that the program's environment hides all of so many devices.
    fn all_hidden(&self, _devices: usize) {}

    /// Makes a context on `device` (an index into [`Platform::devices`]); the primary one for `primary`. Call.
    fn context_open(&self, ctx: ContextId, device: u32, flags: u32, primary: bool) -> Result<()>;
    /// Ends a context and frees all that is in it, faulted or not. Call.
    fn context_close(&self, ctx: ContextId) -> Result<()>;
    /// Waits for all work of the context. Call.
    fn context_synchronize(&self, ctx: ContextId) -> Result<()>;
    /// `cuCtxGetLimit`. Call.
    fn context_limit(&self, ctx: ContextId, limit: u32) -> Result<u64>;
    /// `cuCtxSetLimit`. Call.
    fn context_set_limit(&self, ctx: ContextId, limit: u32, value: u64) -> Result<()>;

    /// Free and total bytes of the context's device. Call.
    fn memory_info(&self, ctx: ContextId) -> Result<(u64, u64)>;
    /// Allocates at least `bytes` (not 0), aligned to 256 or more. Call.
    fn memory_alloc(&self, ctx: ContextId, bytes: u64) -> Result<u64>;
    /// Frees an allocation once the work of the context that is queued before is done. Call.
    fn memory_free(&self, ctx: ContextId, address: u64) -> Result<()>;
    /// Allocates in the stream's order from the device's default pool. Call.
    fn memory_alloc_async(&self, ctx: ContextId, bytes: u64, stream: Stream) -> Result<u64>;
    /// Frees in the stream's order. Posted.
    fn memory_free_async(&self, ctx: ContextId, address: u64, stream: Stream) -> Result<()>;

    /// Allocates page-locked host memory, page-aligned; `flags` as of `cuMemHostAlloc`.
    fn host_alloc(&self, ctx: ContextId, bytes: usize, flags: u32) -> Result<*mut u8>;
    /// Frees what [`Backend::host_alloc`] gave, once nothing queued uses it.
    ///
    /// # Safety
    /// `memory` and `bytes` are of one such allocation, which the program uses no more.
    unsafe fn host_free(&self, ctx: ContextId, memory: *mut u8, bytes: usize) -> Result<()>;
    /// Page-locks memory of the application; `flags` as of `cuMemHostRegister`.
    fn host_register(&self, ctx: ContextId, memory: *mut u8, bytes: usize, flags: u32) -> Result<()>;
    /// Undoes [`Backend::host_register`].
    fn host_unregister(&self, ctx: ContextId, memory: *mut u8, bytes: usize) -> Result<()>;
    /// The address by which kernels see page-locked memory, or `CUDA_ERROR_NOT_SUPPORTED`.
    fn host_device_address(&self, ctx: ContextId, memory: *mut u8) -> Result<u64>;

    /// Copies host to device.
    ///
    /// # Safety
    /// `src` is readable for `bytes`, for as long as `mode` says.
    unsafe fn copy_to_device(
        &self,
        ctx: ContextId,
        dst: u64,
        src: *const u8,
        bytes: u64,
        stream: Stream,
        mode: CopyMode,
    ) -> Result<()>;
    /// Copies device to host.
    ///
    /// # Safety
    /// `dst` is writable for `bytes`, for as long as `mode` says.
    unsafe fn copy_to_host(
        &self,
        ctx: ContextId,
        dst: *mut u8,
        src: u64,
        bytes: u64,
        stream: Stream,
        mode: CopyMode,
    ) -> Result<()>;
    /// Copies within the device (or between devices of the process), rows of a rectangle. Posted.
    fn copy_on_device(&self, ctx: ContextId, dst: u64, src: u64, rect: Rect, stream: Stream) -> Result<()>;
    /// Fills memory. Posted.
    fn fill(&self, ctx: ContextId, fill: Fill, stream: Stream) -> Result<()>;

    /// Makes a stream; `flags` as of `cuStreamCreate`. Posted.
    fn stream_create(&self, ctx: ContextId, id: ObjectId, flags: u32, priority: i32) -> Result<()>;
    /// Ends a stream; its work still runs. Posted.
    fn stream_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()>;
    /// Waits for the stream. Call.
    fn stream_synchronize(&self, ctx: ContextId, stream: Stream) -> Result<()>;
    /// `Ok` if the stream's work is done, else `CUDA_ERROR_NOT_READY`. Call.
    fn stream_query(&self, ctx: ContextId, stream: Stream) -> Result<()>;
    /// Later work of `stream` waits for the event's latest record. Posted.
    fn stream_wait_event(&self, ctx: ContextId, stream: Stream, event: ObjectId, flags: u32) -> Result<()>;
    /// `cuStreamWaitValue32` (`wide` false) or `64`; `flags` as of `CUstreamWaitValue_flags`. Posted.
    fn stream_wait_value(
        &self,
        ctx: ContextId,
        stream: Stream,
        address: u64,
        value: u64,
        wide: bool,
        flags: u32,
    ) -> Result<()>;
    /// `cuStreamWriteValue32` (`wide` false) or `64`. Posted.
    fn stream_write_value(
        &self,
        ctx: ContextId,
        stream: Stream,
        address: u64,
        value: u64,
        wide: bool,
        flags: u32,
    ) -> Result<()>;

    /// Makes an event; `flags` as of `cuEventCreate`. Posted.
    fn event_create(&self, ctx: ContextId, id: ObjectId, flags: u32) -> Result<()>;
    /// Ends an event. Posted.
    fn event_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()>;
    /// Records the event in the stream. Posted.
    fn event_record(&self, ctx: ContextId, id: ObjectId, stream: Stream, flags: u32) -> Result<()>;
    /// Waits for the event's latest record. Call.
    fn event_synchronize(&self, ctx: ContextId, id: ObjectId) -> Result<()>;
    /// `Ok` if the latest record is done or there is none, else `CUDA_ERROR_NOT_READY`. Call.
    fn event_query(&self, ctx: ContextId, id: ObjectId) -> Result<()>;
    /// Milliseconds between two recorded events. Call.
    fn event_elapsed(&self, ctx: ContextId, start: ObjectId, end: ObjectId) -> Result<f32>;

    /// Loads an image. `log` is filled whether it works or not. Call.
    fn module_load(&self, ctx: ContextId, id: ObjectId, image: Image<'_>, log: &mut JitLog) -> Result<()>;
    /// Unloads an image. Call.
    fn module_unload(&self, ctx: ContextId, id: ObjectId) -> Result<()>;
    /// Names of the image's kernels, in its order. Call.
    fn module_functions(&self, ctx: ContextId, id: ObjectId) -> Result<Vec<String>>;
    /// Finds a kernel, which is `function` from now on; `CUDA_ERROR_NOT_FOUND` if there is none. Call.
    fn module_function(&self, ctx: ContextId, module: ObjectId, name: &str, function: ObjectId) -> Result<KernelInfo>;
    /// Address and bytes of a global variable, and whether it is a managed one; `CUDA_ERROR_NOT_FOUND` if there is none. Call.
    fn module_global(&self, ctx: ContextId, module: ObjectId, name: &str) -> Result<(u64, u64, bool)>;
    /// `cuFuncSetAttribute`. Posted.
    fn function_set_attribute(&self, ctx: ContextId, function: ObjectId, attribute: u32, value: i32) -> Result<()>;
    /// `cuFuncSetCacheConfig`. Posted.
    fn function_set_cache_config(&self, ctx: ContextId, function: ObjectId, config: u32) -> Result<()>;
    /// Blocks of the kernel that fit on a multiprocessor; `flags` as of `CUoccupancy_flags`. Call.
    fn occupancy(&self, ctx: ContextId, function: ObjectId, block: u32, shared: u64, flags: u32) -> Result<i32>;
    /// Bytes of dynamic shared memory that `blocks` blocks of `block` threads can have each, on one multiprocessor. Call.
    fn occupancy_dynamic_shared(&self, ctx: ContextId, function: ObjectId, blocks: i32, block: i32) -> Result<u64>;
    /// How many clusters of a launch fit on the device, or, for `largest`, the blocks of the largest cluster it could have. Call.
    fn occupancy_clusters(&self, _ctx: ContextId, _launch: &Launch<'_>, _largest: bool) -> Result<i32> {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }
    /// `cuTensorMapEncodeTiled`. Call.
    fn tensor_map_tiled(&self, _ctx: ContextId, _map: &TiledMap<'_>) -> Result<[u8; 128]> {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }
    /// Launches a kernel. Posted.
    fn launch(&self, ctx: ContextId, launch: &Launch<'_>, stream: Stream) -> Result<()>;

    /// What the profile says of the connection, as pairs of a name and a value of JSON.
    fn statistics(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
