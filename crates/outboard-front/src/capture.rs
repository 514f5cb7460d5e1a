//! Stream capture: nothing captures yet, and programs ask all the time whether anything does.

use outboard_abi::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus, cuuint64_t,
};

use crate::Driver;
use crate::backend::Result;
use crate::border::{put, require};
use crate::stream;

pub(crate) unsafe fn cuStreamIsCapturing<D: Driver>(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
) -> Result<()> {
    stream::resolve::<D>(stream)?;
    // SAFETY: the program's out parameter.
    unsafe { put(status, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE) }
}

pub(crate) unsafe fn cuStreamGetCaptureInfo<D: Driver>(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    _id: *mut cuuint64_t,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuStreamIsCapturing::<D>(stream, status) }
}

pub(crate) unsafe fn cuStreamGetCaptureInfo_v2<D: Driver>(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    _id: *mut cuuint64_t,
    _graph: *mut CUgraph,
    _dependencies: *mut *const CUgraphNode,
    _count: *mut usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuStreamIsCapturing::<D>(stream, status) }
}

pub(crate) unsafe fn cuStreamGetCaptureInfo_v3<D: Driver>(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    _id: *mut cuuint64_t,
    _graph: *mut CUgraph,
    _dependencies: *mut *const CUgraphNode,
    _edges: *mut *const CUgraphEdgeData,
    _count: *mut usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuStreamIsCapturing::<D>(stream, status) }
}

thread_local! {
    static MODE: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

pub(crate) unsafe fn cuThreadExchangeStreamCaptureMode<D: Driver>(mode: *mut CUstreamCaptureMode) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: null or the program's in and out parameter.
    let wanted = unsafe { mode.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.0;
    require(wanted <= 2)?;
    let before = MODE.try_with(|mode| mode.replace(wanted)).unwrap_or(0);
    // SAFETY: not null.
    unsafe { put(mode, outboard_abi::CUstreamCaptureMode_enum(before)) }
}
