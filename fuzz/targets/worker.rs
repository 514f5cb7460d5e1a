//! Commands that no client of ours would send, to a worker whose driver does next to nothing: it
//! makes handles, reads and writes the host's memory as it is told to, calls functions at once, and
//! fails now and then, as the first bytes say.
#![no_main]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use libfuzzer_sys::fuzz_target;
use outboard_driver::Table;
use outboard_wire::device_id::DeviceId;
use outboard_wire::jit::JitOptions;
use outboard_wire::messages as msg;
use outboard_wire::{ObjectId, StreamId, Writer};
use outboard_worker::Fuzzed;

/// The first handle or address that a driver makes, and how far the next ones are apart.
const FIRST: u64 = 0x10_0000;
/// What the driver made last in this session.
static MADE: AtomicU64 = AtomicU64::new(FIRST);
/// Which of its calls fail: each looks at the next bit.
static FAILING: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU32 = AtomicU32::new(0);
/// Page-locked memory: allocations of the driver's own, with their sizes, and what was registered.
static ALLOCATED: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());
static REGISTERED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
/// The most that an allocation may have.
const MOST: usize = 32 << 20;

const OUT_OF_MEMORY: i32 = 2;
const INVALID: i32 = 1;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn nothing() -> i32 {
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    if FAILING.load(Ordering::Relaxed) >> (call % 64) & 1 == 0 { 0 } else { OUT_OF_MEMORY }
}

extern "C" fn invalid() -> i32 {
    INVALID
}

fn next() -> u64 {
    MADE.fetch_add(FIRST, Ordering::Relaxed)
}

/// Writes what a function makes, unless it fails.
fn place(at: *mut u64) -> i32 {
    let status = nothing();
    if status == 0 {
        // SAFETY: the worker's own variable, of eight bytes.
        unsafe { at.write(next()) };
    }
    status
}

extern "C" fn makes_first(at: *mut u64) -> i32 {
    place(at)
}

extern "C" fn makes_second(_: u64, at: *mut u64) -> i32 {
    place(at)
}

extern "C" fn makes_fourth(_: u64, _: u64, _: u64, at: *mut u64) -> i32 {
    place(at)
}

extern "C" fn global(at: *mut u64, bytes: *mut usize) -> i32 {
    let status = place(at);
    // SAFETY: the worker's own variable.
    unsafe { bytes.write(4096) };
    status
}

extern "C" fn memory(free: *mut usize, total: *mut usize) -> i32 {
    // SAFETY: the worker's own variables.
    unsafe {
        free.write(1 << 39);
        total.write(1 << 40);
    }
    nothing()
}

extern "C" fn granularity(bytes: *mut usize) -> i32 {
    // SAFETY: the worker's own variable.
    unsafe { bytes.write(2 << 20) };
    nothing()
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, 4096).ok().filter(|layout| layout.size() <= MOST)
}

extern "C" fn host_alloc(at: *mut *mut c_void, bytes: usize) -> i32 {
    let Some(layout) = layout(bytes).filter(|layout| layout.size() > 0) else {
        return OUT_OF_MEMORY;
    };
    let status = nothing();
    if status == 0 {
        // SAFETY: the layout is not empty; the worker's own variable.
        unsafe {
            let memory = alloc_zeroed(layout);
            lock(&ALLOCATED).insert(memory as u64, bytes);
            lock(&REGISTERED).insert(memory as u64, bytes as u64);
            at.write(memory.cast());
        }
    }
    status
}

extern "C" fn host_free(at: *mut c_void) -> i32 {
    lock(&REGISTERED).remove(&(at as u64));
    let bytes = lock(&ALLOCATED).remove(&(at as u64)).expect("memory is freed once");
    // SAFETY: as it was allocated.
    unsafe { dealloc(at.cast(), layout(bytes).expect("it was allocated")) };
    nothing()
}

extern "C" fn register(at: *mut c_void, bytes: usize) -> i32 {
    let status = nothing();
    if status == 0 {
        lock(&REGISTERED).insert(at as u64, bytes as u64);
    }
    status
}

extern "C" fn unregister(at: *mut c_void) -> i32 {
    lock(&REGISTERED).remove(&(at as u64));
    nothing()
}

extern "C" fn device_pointer(to: *mut u64, at: *mut c_void) -> i32 {
    // SAFETY: the worker's own variable.
    unsafe { to.write(at as u64) };
    nothing()
}

extern "C" fn copy_in(_: u64, from: *const u8, bytes: usize) -> i32 {
    // SAFETY: the worker's memory, which it says has so many bytes.
    black_box(unsafe { std::slice::from_raw_parts(from, bytes) }.iter().copied().max());
    nothing()
}

extern "C" fn copy_out(to: *mut u8, _: u64, bytes: usize) -> i32 {
    // SAFETY: as above.
    unsafe { to.write_bytes(0x5a, bytes) };
    nothing()
}

/// Flags in page-locked memory are set at once.
extern "C" fn write_value(_: u64, address: u64, value: u32) -> i32 {
    let registered = lock(&REGISTERED);
    let found = registered.range(..=address).next_back();
    if found.is_some_and(|(base, bytes)| address - base + 4 <= *bytes) {
        // SAFETY: in memory that the worker has registered; it looks at flags as atomics.
        unsafe { AtomicU32::from_ptr(address as *mut u32) }.store(value, Ordering::Release);
    }
    nothing()
}

type Function = extern "C" fn(*mut c_void);
type Callback = extern "C" fn(u64, i32, *mut c_void);

extern "C" fn host_function(_: u64, function: Function, data: *mut c_void) -> i32 {
    let status = nothing();
    if status == 0 {
        function(data);
    }
    status
}

extern "C" fn callback(stream: u64, function: Callback, data: *mut c_void) -> i32 {
    let status = nothing();
    if status == 0 {
        function(stream, 0, data);
    }
    status
}

extern "C" fn linked(_: u64, image: *mut *const u8, bytes: *mut usize) -> i32 {
    // SAFETY: the worker's own variables.
    unsafe {
        image.write(IMAGE.as_ptr());
        bytes.write(IMAGE.len());
    }
    nothing()
}

extern "C" fn function_name(name: *mut *const c_char) -> i32 {
    // SAFETY: the worker's own variable.
    unsafe { name.write(c"kernel".as_ptr()) };
    nothing()
}

extern "C" fn function_count(count: *mut u32) -> i32 {
    // SAFETY: the worker's own variable.
    unsafe { count.write(1) };
    nothing()
}

/// A kernel has four parameters of eight bytes.
extern "C" fn parameter(_: u64, index: usize, offset: *mut usize, size: *mut usize) -> i32 {
    if index >= 4 {
        return INVALID;
    }
    // SAFETY: the worker's own variables, if it wants to know.
    unsafe {
        offset.write(8 * index);
        if !size.is_null() {
            size.write(8);
        }
    }
    nothing()
}

/// Those whose first argument is where a handle or an address goes.
const MAKING: &[&str] = &[
    "cuArray3DCreate_v2",
    "cuArrayGetPlane",
    "cuCtxCreate_v2",
    "cuCtxFromGreenCtx",
    "cuDevResourceGenerateDesc",
    "cuDeviceGetDefaultMemPool",
    "cuDevicePrimaryCtxRetain",
    "cuEventCreate",
    "cuGraphAddBatchMemOpNode",
    "cuGraphAddChildGraphNode",
    "cuGraphAddEmptyNode",
    "cuGraphAddEventRecordNode",
    "cuGraphAddEventWaitNode",
    "cuGraphAddHostNode",
    "cuGraphAddKernelNode_v2",
    "cuGraphAddMemAllocNode",
    "cuGraphAddMemFreeNode",
    "cuGraphAddMemcpyNode",
    "cuGraphAddMemsetNode",
    "cuGraphAddNode",
    "cuGraphAddNode_v2",
    "cuGraphConditionalHandleCreate",
    "cuGraphCreate",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiateWithParams",
    "cuGraphNodeFindInClone",
    "cuGreenCtxCreate",
    "cuIpcOpenEventHandle",
    "cuIpcOpenMemHandle_v2",
    "cuLibraryGetModule",
    "cuLibraryLoadData",
    "cuMemAddressReserve",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemImportFromShareableHandle",
    "cuMemPoolCreate",
    "cuMemPoolImportFromShareableHandle",
    "cuMemPoolImportPointer",
    "cuMemRetainAllocationHandle",
    "cuMipmappedArrayCreate",
    "cuMipmappedArrayGetLevel",
    "cuModuleEnumerateFunctions",
    "cuModuleGetFunction",
    "cuModuleGetSurfRef",
    "cuModuleGetTexRef",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuSurfObjectCreate",
    "cuTexObjectCreate",
    "cuTexRefCreate",
];

/// What cannot be pretended: memory under one address on both sides, and tables of functions.
const LACKING: &[&str] = &["cuGetExportTable", "cuMemAllocManaged"];

fn function(name: &CStr) -> *const c_void {
    match name.to_str().unwrap_or_default() {
        name if MAKING.contains(&name) => makes_first as *const c_void,
        name if LACKING.contains(&name) => invalid as *const c_void,
        "cuGraphChildGraphNodeGetGraph" => makes_second as *const c_void,
        "cuLinkCreate_v2" => makes_fourth as *const c_void,
        "cuModuleGetGlobal_v2" => global as *const c_void,
        "cuMemGetInfo_v2" => memory as *const c_void,
        "cuMemGetAllocationGranularity" => granularity as *const c_void,
        "cuMemHostAlloc" => host_alloc as *const c_void,
        "cuMemFreeHost" => host_free as *const c_void,
        "cuMemHostRegister_v2" => register as *const c_void,
        "cuMemHostUnregister" => unregister as *const c_void,
        "cuMemHostGetDevicePointer_v2" => device_pointer as *const c_void,
        "cuMemcpyHtoDAsync_v2" => copy_in as *const c_void,
        "cuMemcpyDtoHAsync_v2" => copy_out as *const c_void,
        "cuStreamWriteValue32_v2" => write_value as *const c_void,
        "cuLaunchHostFunc" => host_function as *const c_void,
        "cuStreamAddCallback" => callback as *const c_void,
        "cuLinkComplete" => linked as *const c_void,
        "cuFuncGetName" => function_name as *const c_void,
        "cuModuleGetFunctionCount" => function_count as *const c_void,
        "cuFuncGetParamInfo" => parameter as *const c_void,
        _ => nothing as *const c_void,
    }
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    // SAFETY: functions of C that look at no arguments but their own.
    unsafe { Table::load(function) }
});

const CONTEXT: u32 = 1;
const STREAM: u64 = 1;
const EVENT: u64 = 2;
const MODULE: u64 = 3;
const FUNCTION: u64 = 4;
const GRAPH: u64 = 5;
const IMAGE: &[u8] = b".version 7.0\n.target sm_70\n";

fn send<M: msg::Message>(session: &mut Fuzzed, message: &M) {
    let mut writer = Writer::new();
    message.encode(&mut writer);
    assert!(session.take(M::OP, CONTEXT, &writer.into_vec(), false), "a message as ours are");
}

/// What most sessions begin with.
fn begin(session: &mut Fuzzed) {
    send(session, &msg::ContextOpen { device: DeviceId::new(0), flags: 0, primary: true });
    send(session, &msg::StreamCreate { stream: ObjectId(STREAM), flags: 1, priority: 0 });
    send(session, &msg::EventCreate { event: ObjectId(EVENT), flags: 2 });
    send(session, &msg::ImageData { data: IMAGE });
    let (parts, options) = (vec![IMAGE.len() as u64], JitOptions::default());
    send(session, &msg::ModuleLoad { module: ObjectId(MODULE), parts, options });
    let function = ObjectId(FUNCTION);
    send(session, &msg::ModuleFunction { module: ObjectId(MODULE), name: "kernel", function });
    send(session, &msg::GraphCreate { graph: ObjectId(GRAPH) });
    send(session, &msg::MemoryAlloc { bytes: 4096 });
    send(session, &msg::EventRecord { event: ObjectId(EVENT), stream: StreamId(STREAM), flags: 0 });
}

/// A command: its number, the context with one bit for whether more is at hand, the length of its
/// arguments.
fn commands(mut data: &[u8], mut each: impl FnMut(u16, u32, &[u8], bool) -> bool) {
    while let Some((&[op, place, length], rest)) = data.split_first_chunk() {
        // The longest takes all that is there.
        let length = if length == u8::MAX { rest.len() } else { usize::from(length) };
        let (payload, next) = rest.split_at(length.min(rest.len()));
        if !each(op.into(), u32::from(place & 7), payload, place & 0x80 != 0) {
            return;
        }
        data = next;
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[failing, rotation], data)) = data.split_first_chunk() else { return };
    MADE.store(FIRST, Ordering::Relaxed);
    CALLS.store(0, Ordering::Relaxed);
    FAILING.store(0, Ordering::Relaxed);
    let mut session = Fuzzed::new(&TABLE).unwrap_or_else(|refusal| panic!("{}", refusal.sentence));
    begin(&mut session);
    FAILING.store(u64::from(failing).rotate_left(rotation.into()), Ordering::Relaxed);
    commands(data, |op, ctx, payload, more| session.take(op, ctx, payload, more));
    FAILING.store(0, Ordering::Relaxed);
    drop(session);
    for (memory, bytes) in std::mem::take(&mut *lock(&ALLOCATED)) {
        // SAFETY: as it was allocated, and the session that had it is over.
        unsafe { dealloc(memory as *mut u8, layout(bytes).expect("it was allocated")) };
    }
    lock(&REGISTERED).clear();
});
