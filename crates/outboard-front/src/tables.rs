//! The private tables that `cuGetExportTable` hands to runtimes and libraries.
//!
//! The tables, their functions' parameters and their use were found by observing public runtimes;
//! the names are those of other open implementations. A function that no known runtime calls
//! returns `CUDA_ERROR_NOT_SUPPORTED`; an unknown table is an error, which every known caller
//! handles.
//!
//! A library may keep memory of the device by what a slot answered, for as long as the answer stays
//! the same. So an answer that depends on a context changes when the context begins anew, and what
//! is constant here depends on nothing that ends. What each slot answers, as seen on a driver of
//! NVIDIA's (580.159), and what the caller does with it:
//!
//! | table, slot | answer | after a reset, with two contexts, after a fork |
//! |---|---|---|
//! | `CUDART_INTERFACE` 1, 6, 8 | loads a module into the current context | in the one that is current; refused in a forked child |
//! | 2 | the primary context of a device, by which the runtime asks for its own state | the same handle for good, one for each device |
//! | 7, 12 | nothing to do | depend on nothing |
//! | `TOOLS_RUNTIME_HOOKS` 2, 6 | a flag for each call of the runtime: does a tool want to know of it | none ever does |
//! | `TOOLS_TLS` 2 | the current context, 0 without one | the thread's own, by its handle |
//! | `CONTEXT_STORAGE` 0 to 2 | what a runtime keeps with a context | ends with the context, which is how the runtime knows of a reset |
//! | `INTEGRITY` 1 | a digest of process, thread, tables and devices | made anew at each call |
//! | `CONTEXT_CHECKS` 2 | 0: nothing is wrong with the context; without one, an error | asked anew at each call |
//! | 3 | 0 | depends on nothing |
//! | `TABLE_2131` 4 | the number of a context, by which cuFFT keeps its tables of factors | another number each time that a context begins; 0 while it has ended |
//! | 51, 39 | stands for a stream; its number, by which cuBLAS keeps its workspaces | streams have numbers of their own; the legacy stream gets another one each time that its context begins |
//! | `MODULE_KERNELS` 7 | calls back for each kernel of a module | of this module, wherever it is loaded |
//! | `TABLE_1734`, `CUPTI` | refused | |

mod files;

use core::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use outboard_abi::own_tables::{COLLECTIVES, FILES, MESSAGES, Parts};
use outboard_abi::{CUcontext, CUdevice, CUfunction, CUmodule, CUresult, CUstream};

use crate::backend::{Backend, DevicePtr, PartChange, VirtualMemory as _};
use crate::border::{put, put_if};
use crate::calls::message;
use crate::integrity;
use crate::process::{Hooks, Library, Process};
use crate::storage::Destructor;
use crate::{context, module, refusals, state};

impl<B: Backend> Process<B> {
    /// The process that has loaded `L`.
    pub const fn of_library<L: Library<Backend = B>>(backend: &'static B) -> Process<B> {
        Process::new(backend, Some(Hooks { table: find::<L>, at_exit: leave_profile::<L> }))
    }
}

/// Leaves the profile of the process that has loaded `L` behind.
extern "C" fn leave_profile<L: Library>() {
    if state::is_forked() {
        return;
    }
    let _ = std::panic::catch_unwind(|| {
        crate::profile::write(|| {
            let process = L::process();
            (process.backend.statistics(), process.files.bytes(), refusals::refused())
        })
    });
}

type Id = [u8; 16];

const CUDART_INTERFACE: Id = [
    0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9,
];
const TOOLS_RUNTIME_HOOKS: Id = [
    0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66,
];
const TOOLS_TLS: Id = [
    0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc,
];
const CONTEXT_STORAGE: Id = [
    0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93,
];
const INTEGRITY: Id = [
    0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2,
];
const CONTEXT_CHECKS: Id = [
    0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e,
];
/// Asked for by runtimes from 13.5 on, cuBLAS and cuFFT.
const TABLE_2131: Id = [
    0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2,
];
/// Asked for by cuFFT: walks a module's kernels.
const MODULE_KERNELS: Id = [
    0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e,
];

/// Asked for by cuBLASLt when it chooses an algorithm on Hopper. It calls slot 4 with two out
/// parameters, without looking whether it got the table; if it is refused, the library works
/// without it.
const TABLE_1734: Id = [
    0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca,
];

/// Asked for by CUPTI before anything else; from 13.3 on, the library needs one of them even to
/// return its version. All that they would do is refused, and so is what a profiler asks of CUPTI.
const CUPTI: [(Id, usize); 3] = [
    (
        [
            0x7c, 0xb6, 0x3f, 0x9b, 0x9c, 0xa4, 0x8e, 0x42, 0xa4, 0x84, 0xbe, 0xb6, 0x6e, 0x6a,
            0xed, 0x7f,
        ],
        67,
    ),
    (
        [
            0xd7, 0xbd, 0x8a, 0xf8, 0xe7, 0xac, 0xca, 0x4a, 0xbd, 0xbc, 0xfb, 0x1f, 0x1b, 0x3f,
            0xcf, 0x33,
        ],
        10,
    ),
    (
        [
            0x2c, 0x8e, 0x0a, 0xd8, 0x07, 0x10, 0xab, 0x4e, 0x90, 0xdd, 0x54, 0x71, 0x9f, 0xe5,
            0xf7, 0x4b,
        ],
        12,
    ),
];

/// Counts that the tools table reports, and the sizes of its buffers: at least those of the newest
/// known runtime, one word each.
const RUNTIME_CALLBACKS: usize = 2048;
const SYNC_CALLBACKS: usize = 64;

static RUNTIME_CALLBACK_FLAGS: [u32; RUNTIME_CALLBACKS] = [0; RUNTIME_CALLBACKS];
static SYNC_CALLBACK_FLAGS: [u32; SYNC_CALLBACKS] = [0; SYNC_CALLBACKS];

/// The tables, made once: their addresses are part of the integrity answer.
struct Tables(Vec<(Id, Box<[usize]>)>);

/// The address of the table with this id.
pub(crate) fn find<L: Library>(id: &Id) -> Option<*const c_void> {
    if *id == Parts::NAME {
        if !L::process().backend.vmm_divides() {
            return None;
        }
        L::process().vmm.is_cut.store(true, Ordering::Relaxed);
    }
    let table = tables::<L>().0.iter().find(|(known, _)| known == id);
    table.map(|(_, table)| table.as_ptr().cast()).or_else(|| L::own_table(id))
}

fn tables<L: Library>() -> &'static Tables {
    // One program has one library, so that one static serves.
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| {
        let cudart: [(usize, *const ()); 6] = [
            (1, load_module::<L> as *const ()),
            (2, primary_context::<L> as *const ()),
            (6, load_module_11::<L> as *const ()),
            (7, ignore as *const ()),
            (8, load_module_8::<L> as *const ()),
            (12, succeed as *const ()),
        ];
        Tables(vec![
            (CUDART_INTERFACE, sized::<{ start(&CUDART_INTERFACE) }>(13, &cudart)),
            (
                TOOLS_RUNTIME_HOOKS,
                sized::<{ start(&TOOLS_RUNTIME_HOOKS) }>(
                    7,
                    &[(2, runtime_callbacks as *const ()), (6, sync_callbacks as *const ())],
                ),
            ),
            (
                TOOLS_TLS,
                sized::<{ start(&TOOLS_TLS) }>(4, &[(2, current_context::<L> as *const ())]),
            ),
            (
                CONTEXT_STORAGE,
                [
                    storage_put::<L> as *const () as usize,
                    storage_delete::<L> as *const () as usize,
                    storage_get::<L> as *const () as usize,
                    0,
                ]
                .into(),
            ),
            (
                INTEGRITY,
                sized::<{ start(&INTEGRITY) }>(3, &[(1, integrity_check::<L> as *const ())]),
            ),
            (
                CONTEXT_CHECKS,
                sized::<{ start(&CONTEXT_CHECKS) }>(
                    17,
                    &[(2, context_check::<L> as *const ()), (3, zero as *const ())],
                ),
            ),
            (
                TABLE_2131,
                sized::<{ start(&TABLE_2131) }>(
                    93,
                    &[
                        (4, context_number::<L> as *const ()),
                        (39, stream_number::<L> as *const ()),
                        (51, stream_object::<L> as *const ()),
                    ],
                ),
            ),
            (TABLE_1734, sized::<{ start(&TABLE_1734) }>(17, &[])),
            (
                MODULE_KERNELS,
                sized::<{ start(&MODULE_KERNELS) }>(99, &[(7, each_kernel::<L> as *const ())]),
            ),
            (
                Parts::NAME,
                sized::<{ start(&Parts::NAME) }>(2, &[(1, change_part::<L> as *const ())]),
            ),
            (COLLECTIVES, collectives::<L>()),
            (MESSAGES, messages::<L>()),
            (FILES, files::table::<L>()),
            (CUPTI[0].0, sized::<{ start(&CUPTI[0].0) }>(CUPTI[0].1, &[])),
            (CUPTI[1].0, sized::<{ start(&CUPTI[1].0) }>(CUPTI[1].1, &[])),
            (CUPTI[2].0, sized::<{ start(&CUPTI[2].0) }>(CUPTI[2].1, &[])),
        ])
    })
}

/// How an id begins: enough to name its table.
const fn start(id: &Id) -> u16 {
    u16::from_be_bytes([id[0], id[1]])
}

/// A table whose first word is its size in bytes, and whose other slots refuse. `TABLE` is how its
/// id begins.
fn sized<const TABLE: u16>(slots: usize, functions: &[(usize, *const ())]) -> Box<[usize]> {
    let mut table = refusals::slots::<TABLE>()[..slots].to_vec();
    table[0] = slots * size_of::<usize>();
    for (slot, function) in functions {
        table[*slot] = *function as usize;
    }
    table.into()
}

/// The functions behind `libnccl.so.2`. The second word says of which description they are.
fn collectives<L: Library>() -> Box<[usize]> {
    use crate::generated::collectives::{MARK, functions};
    let functions = functions::<L>().map(|function| function as usize);
    let refuse = refuse_collective::<L> as *const () as usize;
    let beginning = [0, MARK, refuse, offers_collectives::<L> as *const () as usize];
    let mut table: Box<[usize]> = beginning.into_iter().chain(functions).collect();
    table[0] = size_of_val(&*table);
    table
}

unsafe extern "C" fn offers_collectives<L: Library>() -> u32 {
    crate::calls::collectives::are_offered(L::process()).into()
}

unsafe extern "C" fn refuse_collective<L: Library>(
    name: *const core::ffi::c_char,
    why: *const core::ffi::c_char,
) -> u32 {
    // SAFETY: strings of libnccl.so.2.
    let [name, why] = [name, why].map(|text| unsafe { crate::border::text(text) });
    let (name, why) = (name.unwrap_or_default(), why.unwrap_or_default());
    crate::calls::collectives::refused(L::process(), name, why)
}

/// The functions behind `liboutboard-mpi.so`, in the order in which it has them.
fn messages<L: Library>() -> Box<[usize]> {
    let mut table: Box<[usize]> = [
        std::ptr::null::<()>(),
        message_whereabouts::<L> as *const (),
        message_ticket::<L> as *const (),
        message_link::<L> as *const (),
        message_offer::<L> as *const (),
        message_take::<L> as *const (),
        message_refuse::<L> as *const (),
    ]
    .into_iter()
    .map(|function| function as usize)
    .collect();
    table[0] = size_of_val(&*table);
    table
}

unsafe extern "C" fn message_whereabouts<L: Library>(out: *mut u8, room: usize) -> usize {
    // SAFETY: the library has room for so many bytes.
    let find = || unsafe { message::whereabouts(L::process(), out, room) };
    std::panic::catch_unwind(find).unwrap_or(0)
}

unsafe extern "C" fn message_ticket<L: Library>(link: u32, out: *mut [u8; 16]) -> CUresult {
    // SAFETY: the library's out parameter.
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || unsafe {
        message::ticket(L::process(), link, out)
    })
}

unsafe extern "C" fn message_link<L: Library>(
    link: u32,
    whereabouts: *const u8,
    len: usize,
    ticket: *const [u8; 16],
    why: *mut core::ffi::c_char,
    room: usize,
) -> CUresult {
    // SAFETY: the library's parameters.
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || unsafe {
        message::link(L::process(), link, (whereabouts, len), ticket, (why, room))
    })
}

unsafe extern "C" fn message_offer<L: Library>(
    link: u32,
    number: u64,
    address: u64,
    bytes: u64,
    taken: *mut u32,
) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        let offered = message::offer(L::process(), (link, number), DevicePtr(address), bytes)?;
        // SAFETY: the library's out parameter.
        unsafe { put(taken, offered.into()) }
    })
}

unsafe extern "C" fn message_take<L: Library>(
    link: u32,
    number: u64,
    address: u64,
    bytes: u64,
    combine: u32,
    came: *mut u32,
) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        let at = DevicePtr(address);
        let taken = message::take(L::process(), (link, number), at, bytes, combine)?;
        // SAFETY: the library's out parameter.
        unsafe { put(came, taken.into()) }
    })
}

unsafe extern "C" fn message_refuse<L: Library>(link: u32, number: u64) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        message::refuse(L::process(), (link, number))
    })
}

extern "C" fn succeed() -> CUresult {
    CUresult::CUDA_SUCCESS
}

extern "C" fn zero() -> u32 {
    0
}

extern "C" fn ignore() {}

unsafe extern "C" fn load_module<L: Library>(
    out: *mut CUmodule,
    wrapper: *const c_void,
) -> CUresult {
    // SAFETY: the runtime's wrapper.
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || unsafe {
        crate::calls::module::cuModuleLoadData(L::process(), out, wrapper)
    })
}

unsafe extern "C" fn load_module_11<L: Library>(
    out: *mut CUmodule,
    wrapper: *const c_void,
    _a: *mut c_void,
    _b: *mut c_void,
    _c: c_uint,
) -> CUresult {
    // SAFETY: the runtime's wrapper.
    unsafe { load_module::<L>(out, wrapper) }
}

unsafe extern "C" fn load_module_8<L: Library>(
    container: *const c_void,
    out: *mut CUmodule,
    _a: *mut c_void,
    _b: *mut c_void,
    _c: c_uint,
) -> CUresult {
    // SAFETY: the runtime's container.
    unsafe { load_module::<L>(out, container) }
}

/// The primary context of a device, which this does not activate.
unsafe extern "C" fn primary_context<L: Library>(out: *mut CUcontext, dev: CUdevice) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        let found = state::device(L::process(), dev)
            .and_then(|(device, _)| context::primary(L::process(), device));
        // SAFETY: the runtime's out parameter.
        found.and_then(|context| unsafe { put(out, context.handle as CUcontext) })
    })
}

/// Changes a part of a mapping: 2 divides the mapping, 1 opens the part, 0 closes it.
extern "C" fn change_part<L: Library>(address: u64, bytes: u64, open: u32) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        let change = match open {
            Parts::CLOSED => PartChange::Close,
            Parts::OPEN => PartChange::Open,
            Parts::DIVIDED => PartChange::Divide,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        crate::calls::vmm::change_part(L::process(), DevicePtr(address), bytes, change)
    })
}

unsafe extern "C" fn runtime_callbacks(flags: *mut *const u32, count: *mut usize) {
    // SAFETY: the runtime's out parameters.
    unsafe {
        put_if(flags, RUNTIME_CALLBACK_FLAGS.as_ptr());
        put_if(count, RUNTIME_CALLBACKS);
    }
}

unsafe extern "C" fn sync_callbacks(flags: *mut *const u32, count: *mut usize) {
    // SAFETY: the runtime's out parameters.
    unsafe {
        put_if(flags, SYNC_CALLBACK_FLAGS.as_ptr());
        put_if(count, SYNC_CALLBACKS);
    }
}

/// The context that storage calls mean: null and -1 are the current one, which must be active. One
/// that is named may have ended, and then has nothing.
fn storage_of<L: Library>(context: CUcontext) -> Result<&'static context::Context, CUresult> {
    if !context.is_null() && context as usize != usize::MAX {
        return context::named(L::process(), context);
    }
    let current = context::named(L::process(), core::ptr::null_mut())?;
    current.open().map(|_| current).map_err(|_| CUresult::CUDA_ERROR_INVALID_CONTEXT)
}

unsafe extern "C" fn storage_put<L: Library>(
    context: CUcontext,
    key: *mut c_void,
    value: *mut c_void,
    destructor: Option<Destructor>,
) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        storage_of::<L>(context)
            .map(|context| context.storage.put(key as usize, value as usize, destructor))
    })
}

unsafe extern "C" fn storage_delete<L: Library>(context: CUcontext, key: *mut c_void) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        storage_of::<L>(context).map(|context| context.storage.delete(key as usize))
    })
}

unsafe extern "C" fn storage_get<L: Library>(
    value: *mut *mut c_void,
    context: CUcontext,
    key: *mut c_void,
) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        let found = storage_of::<L>(context).and_then(|context| {
            context.storage.get(key as usize).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
        });
        // SAFETY: the runtime's out parameter.
        found.and_then(|found| unsafe { put(value, found as *mut c_void) })
    })
}

unsafe extern "C" fn integrity_check<L: Library>(
    version: u32,
    seconds: u64,
    out: *mut [u64; 2],
) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        let address = |id| find::<L>(id).map_or(0, |table| table as u64);
        let answer = state::ready(L::process()).map(|state| {
            integrity::answer(&integrity::Inputs {
                driver_version: state.driver_version,
                runtime_version: version,
                process: std::process::id(),
                // SAFETY: has no preconditions.
                thread: unsafe { libc::pthread_self() } as u32,
                table_a: address(&CUDART_INTERFACE),
                table_e: address(&INTEGRITY),
                function: integrity_check::<L> as *const () as u64,
                seconds,
                devices: &state.devices,
            })
        });
        // SAFETY: the runtime's out parameter.
        answer.and_then(|answer| unsafe { put(out, answer) })
    })
}

/// The current context.
unsafe extern "C" fn current_context<L: Library>(out: *mut u64, _: *mut c_void) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        let current = context::top().map_or(0, |context| context.handle);
        // SAFETY: the library's out parameter.
        unsafe { put_if(out, current) };
        Ok(())
    })
}

unsafe extern "C" fn context_check<L: Library>(
    context: CUcontext,
    flags: *mut u32,
    _out: *mut *const c_void,
) -> CUresult {
    if context.is_null() && context::top().is_none() {
        return CUresult::CUDA_ERROR_INVALID_CONTEXT;
    }
    // SAFETY: the runtime's out parameter.
    unsafe { put_if(flags, 0) };
    CUresult::CUDA_SUCCESS
}

/// The number of a context; 0 for none, and for one that has ended or not begun yet.
unsafe extern "C" fn context_number<L: Library>(context: CUcontext, out: *mut u64) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        let number = match context.is_null() {
            true => 0,
            false => context::named(L::process(), context)
                .and_then(context::Context::open)
                .map_or(0, |here| here.number()),
        };
        // SAFETY: the library's out parameter.
        unsafe { put_if(out, number) };
        Ok(())
    })
}

/// Stands for the legacy default stream of the context that is current; only its address counts.
static LEGACY_OBJECT: [u64; 64] = [0; 64];

/// The value that represents a stream in calls of this table, and that cuBLAS passes back: natively
/// an object of the driver's, here the stream's handle. Seen on a native driver; its callers always
/// have a context current.
unsafe extern "C" fn stream_object<L: Library>(
    _context: CUcontext,
    stream: CUstream,
    out: *mut u64,
) -> CUresult {
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || {
        let known = crate::stream::find(L::process(), stream)
            .map_err(|_| CUresult::CUDA_ERROR_INVALID_HANDLE);
        let object = known.map(|(_, name)| match name.object() {
            None => LEGACY_OBJECT.as_ptr() as u64,
            Some(id) => id.0,
        });
        // SAFETY: the library's out parameter.
        object.and_then(|object| unsafe { put(out, object) })
    })
}

/// The number of a stream that [`stream_object`] gave.
unsafe extern "C" fn stream_number<L: Library>(
    _context: CUcontext,
    object: u64,
    out: *mut u64,
) -> CUresult {
    let legacy = object == LEGACY_OBJECT.as_ptr() as u64;
    let stream = if legacy { core::ptr::null_mut() } else { object as CUstream };
    // SAFETY: the library's out parameter.
    crate::entry::enter(L::process(), crate::profile::PRIVATE, || unsafe {
        crate::calls::stream::cuStreamGetId(L::process(), stream, out)
    })
}

type KernelVisitor = unsafe extern "C" fn(*mut c_void, CUfunction, u64);

/// Calls `visit` for each kernel of a module; the number of kernels, 0 on failure.
unsafe extern "C" fn each_kernel<L: Library>(
    _context: CUcontext,
    module: CUmodule,
    visit: Option<KernelVisitor>,
    opaque: *mut c_void,
) -> c_int {
    let walk = || {
        let (here, module) = module::resolve(L::process(), module)?;
        let names = module.names(L::process(), &here)?;
        for name in names.iter() {
            let function = module.function(L::process(), &here, name)?;
            if let Some(visit) = visit {
                // SAFETY: the library's function, for just this.
                unsafe { visit(opaque, function.handle as CUfunction, module.handle) };
            }
        }
        Ok::<_, CUresult>(names.len() as c_int)
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk))
        .ok()
        .and_then(Result::ok)
        .unwrap_or(0)
}
