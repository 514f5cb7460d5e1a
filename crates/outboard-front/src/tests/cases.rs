//! Entry points that ask the back end for something, each with what it needs before.

use core::ffi::c_void;
use core::ptr::{null, null_mut};

use outboard_abi::*;

use super::program::{IMAGE, Program, nothing};
use super::*;
use crate::backend::{DevicePtr, Result};

/// A call of an entry point.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The back end's method that the call asks.
    pub(super) method: &'static str,
    /// Makes what the call needs, in the context that is current, and gives the call.
    pub(super) prepare: fn(Program) -> Call,
}

type Call = Box<dyn Fn() -> Result<()>>;

macro_rules! cases {
    ($($method:ident $name:ident: |$program:ident| $call:expr;)*) => {
        &[$(Case {
            name: stringify!($name),
            method: stringify!($method),
            prepare: |$program| Box::new($call),
        }),*]
    };
}

pub(super) const GRANULE: usize = 2 << 20;
const BYTES: usize = 4096;

/// Host memory of the test's, which stays.
fn host() -> *mut c_void {
    Box::leak(vec![0_u8; BYTES].into_boxed_slice()).as_mut_ptr().cast()
}

fn descriptor() -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: 16,
        Height: 16,
        Format: CUarray_format::CU_AD_FORMAT_FLOAT,
        NumChannels: 1,
        ..nothing()
    }
}

fn new_array(program: Program) -> Result<CUarray> {
    let wanted = descriptor();
    ask!(program, cuArray3DCreate_v2, &raw const wanted)
}

fn array(program: Program) -> CUarray {
    new_array(program).expect("the recorder makes arrays")
}

fn new_mipmap(program: Program) -> Result<CUmipmappedArray> {
    let wanted = descriptor();
    ask!(program, cuMipmappedArrayCreate, &raw const wanted, 2)
}

fn mipmap(program: Program) -> CUmipmappedArray {
    new_mipmap(program).expect("the recorder makes arrays")
}

fn resource(program: Program) -> CUDA_RESOURCE_DESC {
    let mut resource: CUDA_RESOURCE_DESC = nothing();
    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array(program);
    resource
}

fn texture(program: Program, resource: &CUDA_RESOURCE_DESC) -> Result<CUtexObject> {
    let sampler: CUDA_TEXTURE_DESC = nothing();
    ask!(program, cuTexObjectCreate, &raw const *resource, &raw const sampler, null())
}

fn surface(program: Program, resource: &CUDA_RESOURCE_DESC) -> Result<CUsurfObject> {
    ask!(program, cuSurfObjectCreate, &raw const *resource)
}

fn link(program: Program) -> Result<CUlinkState> {
    let mut link = null_mut();
    call!(program, cuLinkCreate_v2, 0, null_mut(), null_mut(), &raw mut link).map(|()| link)
}

pub(super) fn on_device() -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 }
}

fn pool(program: Program) -> Result<CUmemoryPool> {
    let mut props: CUmemPoolProps = nothing();
    props.allocType = CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = on_device();
    ask!(program, cuMemPoolCreate, &raw const props)
}

pub(super) fn physical(program: Program) -> Result<CUmemGenericAllocationHandle> {
    let mut prop: CUmemAllocationProp = nothing();
    prop.type_ = CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = on_device();
    ask!(program, cuMemCreate, GRANULE, &raw const prop, 0)
}

/// Address space, which is a multiple of the granule.
pub(super) fn reserved(program: Program) -> CUdeviceptr {
    program.recorder.answer_with("vmm_reserve", DevicePtr(1 << 40));
    ask!(program, cuMemAddressReserve, GRANULE, 0, 0, 0).expect("the recorder has addresses")
}

fn library(program: Program) -> Result<CUlibrary> {
    let (options, values) = (null_mut(), null_mut());
    ask!(program, cuLibraryLoadData, IMAGE, null_mut(), null_mut(), 0, options, values, 0)
}

/// The primary context of the other device, active.
fn other_context(program: Program) -> CUcontext {
    ask!(program, cuDevicePrimaryCtxRetain, 1).expect("the recorder opens contexts")
}

/// A graph of two nodes.
fn graph(program: Program) -> CUgraph {
    let graph = ask!(program, cuGraphCreate, 0).expect("it needs no device");
    for _ in 0..2 {
        ask!(program, cuGraphAddEmptyNode, graph, null(), 0).expect("it needs no device");
    }
    graph
}

fn executable(program: Program) -> CUgraphExec {
    ask!(program, cuGraphInstantiateWithFlags, graph(program), 0)
        .expect("the recorder makes executables")
}

unsafe extern "C" fn host_function(_: *mut c_void) {}

const LEGACY: DefaultStream = DefaultStream::Legacy;

/// Those that make something, use it or ask about it, or end it only if the back end has.
pub(super) const OTHERS: &[Case] = cases! {
    context_open cuCtxCreate_v2: |p| move || ask!(p, cuCtxCreate_v2, 0, 1).map(drop);
    context_open cuDevicePrimaryCtxRetain: |p| move || ask!(p, cuDevicePrimaryCtxRetain, 1).map(drop);
    context_synchronize cuCtxSynchronize: |p| move || call!(p, cuCtxSynchronize);
    context_limit cuCtxGetLimit: |p| move || ask!(p, cuCtxGetLimit, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE).map(drop);
    context_set_limit cuCtxSetLimit: |p| move || call!(p, cuCtxSetLimit, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 1);
    peer_enable cuCtxEnablePeerAccess: |p| { let other = other_context(p); move || call!(p, cuCtxEnablePeerAccess, other, 0) };
    memory_info cuMemGetInfo_v2: |p| move || { let mut total = 0; ask!(p, cuMemGetInfo_v2, &raw mut total).map(drop) };
    memory_alloc cuMemAlloc_v2: |p| move || ask!(p, cuMemAlloc_v2, 64).map(drop);
    memory_alloc cuMemAllocPitch_v2: |p| move || { let mut pitch = 0; ask!(p, cuMemAllocPitch_v2, &raw mut pitch, 3, 3, 4).map(drop) };
    memory_alloc_async cuMemAllocAsync: |p| { let stream = p.stream(); move || ask!(p, cuMemAllocAsync, 64, stream).map(drop) };
    managed_alloc cuMemAllocManaged: |p| move || ask!(p, cuMemAllocManaged, 64, 1).map(drop);
    host_alloc cuMemHostAlloc: |p| move || ask!(p, cuMemHostAlloc, 64, 0).map(drop);
    host_register cuMemHostRegister_v2: |p| { let host = host(); move || call!(p, cuMemHostRegister_v2, host, BYTES, 0) };
    host_device_address cuMemHostGetDevicePointer_v2: |p| {
        let host = ask!(p, cuMemHostAlloc, 64, 0).expect("the recorder allocates");
        move || ask!(p, cuMemHostGetDevicePointer_v2, host, 0).map(drop)
    };
    copy_to_device cuMemcpyHtoD_v2: |p| {
        let (memory, host) = (p.memory(BYTES), host());
        move || call!(p, cuMemcpyHtoD_v2, memory, host, BYTES, LEGACY)
    };
    copy_to_host cuMemcpyDtoHAsync_v2: |p| {
        let (memory, host, stream) = (p.memory(BYTES), host(), p.stream());
        move || call!(p, cuMemcpyDtoHAsync_v2, host, memory, BYTES, stream)
    };
    copy_on_device cuMemcpyDtoDAsync_v2: |p| {
        let (to, from, stream) = (p.memory(BYTES), p.memory(BYTES), p.stream());
        move || call!(p, cuMemcpyDtoDAsync_v2, to, from, BYTES, stream)
    };
    fill cuMemsetD32_v2: |p| { let memory = p.memory(BYTES); move || call!(p, cuMemsetD32_v2, memory, 7, 16, LEGACY) };
    stream_create cuStreamCreate: |p| move || ask!(p, cuStreamCreate, 0).map(drop);
    stream_synchronize cuStreamSynchronize: |p| { let stream = p.stream(); move || call!(p, cuStreamSynchronize, stream) };
    stream_query cuStreamQuery: |p| { let stream = p.stream(); move || call!(p, cuStreamQuery, stream) };
    stream_wait_event cuStreamWaitEvent: |p| {
        let (stream, event) = (p.stream(), p.event());
        move || call!(p, cuStreamWaitEvent, stream, event, 0)
    };
    stream_wait_value cuStreamWaitValue32_v2: |p| {
        let (stream, memory) = (p.stream(), p.memory(BYTES));
        move || call!(p, cuStreamWaitValue32_v2, stream, memory, 1, 0)
    };
    stream_write_value cuStreamWriteValue64_v2: |p| {
        let (stream, memory) = (p.stream(), p.memory(BYTES));
        move || call!(p, cuStreamWriteValue64_v2, stream, memory, 1, 0)
    };
    host_call cuLaunchHostFunc: |p| {
        let stream = p.stream();
        move || call!(p, cuLaunchHostFunc, stream, Some(host_function), null_mut())
    };
    event_create cuEventCreate: |p| move || ask!(p, cuEventCreate, 0).map(drop);
    event_record cuEventRecord: |p| { let (event, stream) = (p.event(), p.stream()); move || call!(p, cuEventRecord, event, stream) };
    event_query cuEventQuery: |p| { let event = p.event(); move || call!(p, cuEventQuery, event) };
    event_synchronize cuEventSynchronize: |p| { let event = p.event(); move || call!(p, cuEventSynchronize, event) };
    event_elapsed cuEventElapsedTime_v2: |p| { let event = p.event(); move || ask!(p, cuEventElapsedTime_v2, event, event).map(drop) };
    module_load cuModuleLoadData: |p| move || ask!(p, cuModuleLoadData, IMAGE).map(drop);
    module_load cuLibraryLoadData: |p| move || library(p).map(drop);
    module_functions cuModuleGetFunctionCount: |p| { let module = p.module(); move || ask!(p, cuModuleGetFunctionCount, module).map(drop) };
    module_function cuModuleGetFunction: |p| {
        let module = p.module();
        move || ask!(p, cuModuleGetFunction, module, c"kernel".as_ptr()).map(drop)
    };
    module_function cuLibraryGetKernel: |p| {
        let library = library(p).expect("the recorder loads images");
        move || ask!(p, cuLibraryGetKernel, library, c"kernel".as_ptr()).map(drop)
    };
    module_global cuModuleGetGlobal_v2: |p| {
        let module = p.module();
        move || ask!(p, cuModuleGetGlobal_v2, null_mut(), module, c"variable".as_ptr()).map(drop)
    };
    launch cuLaunchKernel: |p| { let (function, stream) = (p.function(), p.stream()); move || p.launch(function, stream) };
    occupancy cuOccupancyMaxActiveBlocksPerMultiprocessor: |p| {
        let function = p.function();
        move || ask!(p, cuOccupancyMaxActiveBlocksPerMultiprocessor, function, 32, 0).map(drop)
    };
    occupancy_dynamic_shared cuOccupancyAvailableDynamicSMemPerBlock: |p| {
        let function = p.function();
        move || ask!(p, cuOccupancyAvailableDynamicSMemPerBlock, function, 1, 32).map(drop)
    };
    function_set_attribute cuFuncSetAttribute: |p| {
        let (function, shared) = (p.function(), CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        move || call!(p, cuFuncSetAttribute, function, shared, 1024)
    };
    array_create cuArray3DCreate_v2: |p| move || new_array(p).map(drop);
    array_plane cuArrayGetPlane: |p| { let array = array(p); move || ask!(p, cuArrayGetPlane, array, 0).map(drop) };
    mipmap_create cuMipmappedArrayCreate: |p| move || new_mipmap(p).map(drop);
    mipmap_level cuMipmappedArrayGetLevel: |p| { let mipmap = mipmap(p); move || ask!(p, cuMipmappedArrayGetLevel, mipmap, 0).map(drop) };
    texture_create cuTexObjectCreate: |p| { let resource = resource(p); move || texture(p, &resource).map(drop) };
    surface_create cuSurfObjectCreate: |p| { let resource = resource(p); move || surface(p, &resource).map(drop) };
    reference_create cuTexRefCreate: |p| move || ask!(p, cuTexRefCreate).map(drop);
    link_create cuLinkCreate_v2: |p| move || link(p).map(drop);
    link_complete cuLinkComplete: |p| {
        let link = link(p).expect("the recorder links");
        move || { let (mut image, mut bytes) = (null_mut(), 0); call!(p, cuLinkComplete, link, &raw mut image, &raw mut bytes) }
    };
    pool_create cuMemPoolCreate: |p| move || pool(p).map(drop);
    pool_default cuDeviceGetDefaultMemPool: |p| move || ask!(p, cuDeviceGetDefaultMemPool, 0).map(drop);
    pool_trim cuMemPoolTrimTo: |p| { let pool = pool(p).expect("the recorder makes pools"); move || call!(p, cuMemPoolTrimTo, pool, 0) };
    pool_alloc cuMemAllocFromPoolAsync: |p| {
        let (pool, stream) = (pool(p).expect("the recorder makes pools"), p.stream());
        move || ask!(p, cuMemAllocFromPoolAsync, 64, pool, stream).map(drop)
    };
    vmm_reserve cuMemAddressReserve: |p| move || ask!(p, cuMemAddressReserve, GRANULE, 0, 0, 0).map(drop);
    vmm_create cuMemCreate: |p| move || physical(p).map(drop);
    vmm_map cuMemMap: |p| {
        let (at, memory) = (reserved(p), physical(p).expect("the recorder has memory"));
        move || call!(p, cuMemMap, at, GRANULE, 0, memory, 0)
    };
    share_memory cuIpcGetMemHandle: |p| { let memory = p.memory(BYTES); move || ask!(p, cuIpcGetMemHandle, memory).map(drop) };
    open_memory cuIpcOpenMemHandle_v2: |p| move || ask!(p, cuIpcOpenMemHandle_v2, nothing(), 1).map(drop);
    open_event cuIpcOpenEventHandle: |p| move || ask!(p, cuIpcOpenEventHandle, nothing()).map(drop);
    graph_create cuGraphInstantiateWithFlags: |p| { let graph = graph(p); move || ask!(p, cuGraphInstantiateWithFlags, graph, 0).map(drop) };
    graph_edit cuGraphInstantiateWithFlags: |p| { let graph = graph(p); move || ask!(p, cuGraphInstantiateWithFlags, graph, 0).map(drop) };
    graph_instantiate cuGraphInstantiateWithFlags: |p| { let graph = graph(p); move || ask!(p, cuGraphInstantiateWithFlags, graph, 0).map(drop) };
    graph_condition cuGraphConditionalHandleCreate: |p| {
        let graph = graph(p);
        move || ask!(p, cuGraphConditionalHandleCreate, graph, null_mut(), 0, 0).map(drop)
    };
    graph_launch cuGraphLaunch: |p| { let (exec, stream) = (executable(p), p.stream()); move || call!(p, cuGraphLaunch, exec, stream) };
    graph_upload cuGraphUpload: |p| { let (exec, stream) = (executable(p), p.stream()); move || call!(p, cuGraphUpload, exec, stream) };
    resource_describe cuDevResourceGenerateDesc: |p| move || { let mut resource = nothing(); ask!(p, cuDevResourceGenerateDesc, &raw mut resource, 1).map(drop) };
    peer_disable cuCtxDisablePeerAccess: |p| {
        let other = other_context(p);
        call!(p, cuCtxEnablePeerAccess, other, 0).expect("the recorder lets it");
        move || call!(p, cuCtxDisablePeerAccess, other)
    };
    vmm_free cuMemAddressFree: |p| { let at = reserved(p); move || call!(p, cuMemAddressFree, at, GRANULE) };
    vmm_unmap cuMemUnmap: |p| {
        let (at, memory) = (reserved(p), physical(p).expect("the recorder has memory"));
        call!(p, cuMemMap, at, GRANULE, 0, memory, 0).expect("both are there");
        move || call!(p, cuMemUnmap, at, GRANULE)
    };
};

/// Those that end something, for the program in any case.
pub(super) const ENDINGS: &[Case] = cases! {
    context_close cuCtxDestroy_v2: |p| {
        let context = ask!(p, cuCtxCreate_v2, 0, 1).expect("the recorder opens contexts");
        move || call!(p, cuCtxDestroy_v2, context)
    };
    context_close cuDevicePrimaryCtxRelease_v2: |p| { other_context(p); move || call!(p, cuDevicePrimaryCtxRelease_v2, 1) };
    memory_free cuMemFree_v2: |p| { let memory = p.memory(64); move || call!(p, cuMemFree_v2, memory) };
    memory_free_async cuMemFreeAsync: |p| { let (memory, stream) = (p.memory(64), p.stream()); move || call!(p, cuMemFreeAsync, memory, stream) };
    managed_free cuMemFree_v2: |p| {
        let memory = ask!(p, cuMemAllocManaged, 64, 1).expect("the recorder allocates");
        move || call!(p, cuMemFree_v2, memory)
    };
    host_free cuMemFreeHost: |p| {
        let host = ask!(p, cuMemHostAlloc, 64, 0).expect("the recorder allocates");
        move || call!(p, cuMemFreeHost, host)
    };
    host_unregister cuMemHostUnregister: |p| {
        let host = host();
        call!(p, cuMemHostRegister_v2, host, BYTES, 0).expect("the recorder lets it");
        move || call!(p, cuMemHostUnregister, host)
    };
    stream_destroy cuStreamDestroy_v2: |p| { let stream = p.stream(); move || call!(p, cuStreamDestroy_v2, stream) };
    event_destroy cuEventDestroy_v2: |p| { let event = p.event(); move || call!(p, cuEventDestroy_v2, event) };
    module_unload cuModuleUnload: |p| {
        let module = p.module();
        ask!(p, cuModuleGetFunction, module, c"kernel".as_ptr()).expect("the recorder has any");
        ask!(p, cuModuleGetGlobal_v2, null_mut(), module, c"variable".as_ptr()).expect("the recorder has any");
        move || call!(p, cuModuleUnload, module)
    };
    module_unload cuLibraryUnload: |p| {
        let library = library(p).expect("the recorder loads images");
        ask!(p, cuLibraryGetKernel, library, c"kernel".as_ptr()).expect("the recorder has any");
        move || call!(p, cuLibraryUnload, library)
    };
    array_destroy cuArrayDestroy: |p| { let array = array(p); move || call!(p, cuArrayDestroy, array) };
    mipmap_destroy cuMipmappedArrayDestroy: |p| { let mipmap = mipmap(p); move || call!(p, cuMipmappedArrayDestroy, mipmap) };
    texture_destroy cuTexObjectDestroy: |p| {
        let texture = texture(p, &resource(p)).expect("the recorder makes textures");
        move || call!(p, cuTexObjectDestroy, texture)
    };
    surface_destroy cuSurfObjectDestroy: |p| {
        let surface = surface(p, &resource(p)).expect("the recorder makes surfaces");
        move || call!(p, cuSurfObjectDestroy, surface)
    };
    reference_destroy cuTexRefDestroy: |p| {
        let reference = ask!(p, cuTexRefCreate).expect("the recorder makes references");
        move || call!(p, cuTexRefDestroy, reference)
    };
    link_destroy cuLinkDestroy: |p| { let link = link(p).expect("the recorder links"); move || call!(p, cuLinkDestroy, link) };
    pool_destroy cuMemPoolDestroy: |p| { let pool = pool(p).expect("the recorder makes pools"); move || call!(p, cuMemPoolDestroy, pool) };
    vmm_release cuMemRelease: |p| { let memory = physical(p).expect("the recorder has memory"); move || call!(p, cuMemRelease, memory) };
};
