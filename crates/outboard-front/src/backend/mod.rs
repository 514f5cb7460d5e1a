//! The interface between the front and its devices. The software device executes operations itself;
//! the client sends them to a server. The traits are generated from `api/wire/` and
//! `api/backend.toml`; this module has the plain types of their arguments and results.
//!
//! Before a call, the front has checked all that it can: handles are alive and belong to the
//! current context, launch configurations fit the device, pointers are not null. A back end gets
//! names that the front has assigned, and addresses, each a type of its own around a number.
//!
//! Each method belongs to a class: *posted* ones may return before anything happened and report
//! failure later (see [`crate::fault`]), *call* ones return when the outcome is known.

mod collectives;
mod copy;
mod graph;
mod green;
mod link;
mod pool;
#[cfg(test)]
mod recorder;
mod stream;
mod tensormap;
mod vmm;

use outboard_abi::CUresult;
pub use outboard_wire::arrays::{ArrayDescriptor, Resource, Sampler, SparseProperties, View};
pub use outboard_wire::device_id::{DeviceId, MAX_SERVERS, ServerId};
pub use outboard_wire::names::{ContextId, DevicePtr, HostPtr, ObjectId, StreamId, UnifiedPtr};
pub use outboard_wire::references::ReferenceSetting;
pub use outboard_wire::types::{JitLog, JitOptions};

pub use crate::checkpoint::CheckpointStep;
pub use crate::generated::backend::*;
pub use crate::host_call::HostCall;
pub use crate::profile::Statistics;
pub use collectives::{CollectivesDone, GroupOutcome};
pub use copy::{BoxCopy, CrossingCopy, Extent, Layout, Memory, OwnedSide, Side};
pub use graph::{Instantiated, Updated};
pub use green::{Share, Split, SplitRequest};
pub use link::LinkInput;
pub use pool::PoolKind;
#[cfg(test)]
pub(crate) use recorder::Recorder;
pub use stream::MemoryOperation;
pub use tensormap::Im2colMap;
pub use vmm::{MemoryKind, PartChange};

/// The outcome of a call: `Err` holds what the entry point returns, never `CUDA_SUCCESS`.
pub type Result<T> = std::result::Result<T, CUresult>;

/// What a program passes to another process in place of memory, an event or a pointer: the 64 bytes
/// of `CUipcMemHandle` and its like.
pub type Token = [u8; 64];

/// What a copy between host and device promises when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyMode {
    /// `cuMemcpyHtoD`, `cuMemcpyDtoH`: in the stream's order. To the device, the bytes are there on
    /// return if there are more than [`CopyMode::EARLY`], and the source may be reused in any case;
    /// to the host, the bytes are there on return.
    Synchronous,
    /// An asynchronous copy from or to pageable memory: as [`CopyMode::Synchronous`], but a copy to
    /// the device need not have reached it.
    Pageable,
    /// An asynchronous copy from or to pinned memory: returns at once; the memory is read or
    /// written when the stream comes to it.
    Pinned,
}

impl CopyMode {
    /// A synchronous copy to the device that is not larger may return before its bytes are there,
    /// as CUDA documents of pageable memory.
    pub const EARLY: u64 = 64 << 10;
}

// What a command can carry is another number, which may be smaller: the client does not wait for
// copies that travel so.
const _: () = assert!(outboard_wire::limits::MAX_INLINE as u64 <= CopyMode::EARLY);

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
    /// The parameter buffer, laid out as
    /// [`KernelInfo::params`](outboard_wire::platform::KernelInfo::params) tells.
    pub params: &'a [u8],
    /// Whether all blocks must be resident at once (`cuLaunchCooperativeKernel`).
    pub cooperative: bool,
    /// Other launch attributes: `CUlaunchAttributeID` and its value's bytes.
    pub attributes: &'a [(u32, [u8; 64])],
}

/// The process whose devices a back end has, as the back end sees it: the receiver of faults.
pub trait Faults: std::fmt::Debug + Send + Sync {
    /// Marks a context as faulted: every later call that needs it returns `error`.
    fn fault(&self, ctx: ContextId, error: CUresult);

    /// A communicator's asynchronous error is this from now on, an `ncclResult_t`.
    fn communicator_failed(&self, _comm: ObjectId, _result: u32, _sentence: &str) {}
}

/// What a tiled tensor map describes; the names and values are those of `cuTensorMapEncodeTiled`.
#[derive(Clone, Copy, Debug)]
pub struct TiledMap<'a> {
    /// `CUtensorMapDataType`.
    pub data_type: u32,
    /// Device address of the tensor.
    pub address: DevicePtr,
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
    pub dst: DevicePtr,
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
    /// Fat binary containers, one cubin, or PTX text without its final zero; more than one for the
    /// pre-link containers of `-rdc`.
    pub parts: &'a [&'a [u8]],
    /// The options for compiler and linker.
    pub options: &'a JitOptions,
    /// The architecture of the device that it is for, such as 90.
    pub sm: u32,
}
