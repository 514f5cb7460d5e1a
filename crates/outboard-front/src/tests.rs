//! The front alone: tests are programs, over a back end that records.

// Entry points are imported here and nowhere else in the tests.
use crate::calls::array::{
    cuArray3DCreate_v2, cuArrayDestroy, cuArrayGetPlane, cuMemcpyDtoA_v2, cuMipmappedArrayCreate,
    cuMipmappedArrayDestroy, cuMipmappedArrayGetLevel,
};
use crate::calls::capture::{
    cuStreamBeginCapture_v2, cuStreamEndCapture, cuStreamIsCapturing,
    cuThreadExchangeStreamCaptureMode,
};
use crate::calls::context::{
    cuCtxCreate_v2, cuCtxDestroy_v2, cuCtxGetCurrent, cuCtxGetDevice, cuCtxGetLimit,
    cuCtxGetStreamPriorityRange, cuCtxSetCurrent, cuCtxSetLimit, cuCtxSynchronize,
    cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset_v2,
    cuDevicePrimaryCtxRetain,
};
use crate::calls::copy::{
    cuMemcpy2D_v2, cuMemcpy2DAsync_v2, cuMemcpy3D_v2, cuMemcpy3DAsync_v2, cuMemcpyDtoD_v2,
    cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, cuMemcpyHtoD_v2,
    cuMemcpyHtoDAsync_v2,
};
use crate::calls::device::{
    cuDeviceGet, cuDeviceGetAttribute, cuDeviceGetCount, cuDeviceTotalMem_v2,
};
use crate::calls::event::{
    cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime_v2, cuEventQuery, cuEventRecord,
    cuEventSynchronize,
};
use crate::calls::function::{cuFuncGetAttribute, cuFuncSetAttribute};
use crate::calls::graph::{
    cuGraphAddEmptyNode, cuGraphConditionalHandleCreate, cuGraphCreate, cuGraphDestroy,
    cuGraphExecDestroy, cuGraphGetEdges, cuGraphGetNodes, cuGraphInstantiateWithFlags,
    cuGraphLaunch, cuGraphNodeGetType, cuGraphUpload,
};
use crate::calls::green::cuDevResourceGenerateDesc;
use crate::calls::host::{
    cuMemFreeHost, cuMemHostAlloc, cuMemHostGetDevicePointer_v2, cuMemHostRegister_v2,
    cuMemHostUnregister,
};
use crate::calls::init::{cuDriverGetVersion, cuInit};
use crate::calls::ipc::{cuIpcGetMemHandle, cuIpcOpenEventHandle, cuIpcOpenMemHandle_v2};
use crate::calls::launch::cuLaunchKernel;
use crate::calls::library::{cuLibraryGetKernel, cuLibraryLoadData, cuLibraryUnload};
use crate::calls::link::{cuLinkComplete, cuLinkCreate_v2, cuLinkDestroy};
use crate::calls::managed::cuMemAllocManaged;
use crate::calls::memory::{
    cuMemAlloc_v2, cuMemAllocAsync, cuMemAllocPitch_v2, cuMemFree_v2, cuMemFreeAsync,
    cuMemGetInfo_v2,
};
use crate::calls::memset::{cuMemsetD8Async, cuMemsetD32_v2};
use crate::calls::module::{
    cuModuleGetFunction, cuModuleGetFunctionCount, cuModuleGetGlobal_v2, cuModuleLoadData,
    cuModuleUnload,
};
use crate::calls::occupancy::{
    cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyMaxActiveBlocksPerMultiprocessor,
};
use crate::calls::peer::{
    cuCtxDisablePeerAccess, cuCtxEnablePeerAccess, cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute,
};
use crate::calls::pointer::cuPointerGetAttribute;
use crate::calls::pool::{
    cuDeviceGetDefaultMemPool, cuMemAllocFromPoolAsync, cuMemPoolCreate, cuMemPoolDestroy,
    cuMemPoolTrimTo,
};
use crate::calls::reference::{cuTexRefCreate, cuTexRefDestroy};
use crate::calls::stream::{
    cuLaunchHostFunc, cuStreamCreate, cuStreamDestroy_v2, cuStreamGetFlags, cuStreamGetPriority,
    cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent, cuStreamWaitValue32_v2,
    cuStreamWriteValue64_v2,
};
use crate::calls::texture::{
    cuSurfObjectCreate, cuSurfObjectDestroy, cuTexObjectCreate, cuTexObjectDestroy,
};
use crate::calls::vmm::{
    cuMemAddressFree, cuMemAddressReserve, cuMemCreate, cuMemMap, cuMemRelease, cuMemSetAccess,
    cuMemUnmap,
};
use crate::stream::DefaultStream;

/// Calls an entry point of a [`Program`]'s process.
macro_rules! call {
    ($program:expr, $entry:ident $(, $argument:expr)* $(,)?) => {
        // SAFETY: what a test gives an entry point is its own memory, valid during the call, or
        // numbers.
        unsafe { $entry($program.process $(, $argument)*) }
    };
}

/// As `call`, for an entry point whose first argument is where the answer goes: gives that.
macro_rules! ask {
    ($program:expr, $entry:ident $(, $argument:expr)* $(,)?) => {{
        let mut answer = $crate::tests::program::nothing();
        call!($program, $entry, &raw mut answer $(, $argument)*).map(|()| answer)
    }};
}

mod program;

mod capture;
mod cases;
mod copies;
mod failures;
mod forked;
mod order;
mod parts;
mod processes;
mod servers;
mod sticky;
mod variables;
