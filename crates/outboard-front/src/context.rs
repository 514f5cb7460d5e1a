//! Contexts: the stack of current ones, primary contexts, limits and flags.

use core::cell::RefCell;
use core::ffi::{c_int, c_uint};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use outboard_abi::{
    CUcontext, CUctxCreateParams, CUdevice, CUexecAffinityParam, CUexecAffinityType, CUfunc_cache, CUlimit, CUresult,
    CUsharedconfig,
};
use outboard_wire::platform::Device;
use parking_lot::Mutex;

use crate::Driver;
use crate::backend::{Backend, ContextId, Result};
use crate::border::{put, put_if, require};
use crate::fault::Fault;
use crate::green::Green;
use crate::handles::{Kind, Table, not_found};
use crate::launch::Limits;
use crate::state::{self, ready};
use crate::storage::Storage;

/// A context, alive or not: a thread may hold a destroyed one on its stack. It is never freed.
pub(crate) struct Context {
    pub(crate) handle: u64,
    /// Index among the visible devices.
    pub(crate) device: usize,
    pub(crate) storage: Storage,
    primary: bool,
    /// For a context that stands for a green one: its work is the primary context's, in a share of the device.
    pub(crate) green: Option<Green>,
    /// The backend's name for it; 0 while a primary context is not active, and once a context is destroyed.
    id: AtomicU32,
    pub(crate) fault: Fault,
    flags: AtomicU32,
    cache_config: AtomicU32,
    destroyed: AtomicBool,
    /// Retain count of a primary context, usage count of another one. Held while the backend opens and closes it.
    users: Mutex<u32>,
}

/// A context that can be worked in, and the backend's name for it.
#[derive(Clone)]
pub(crate) struct Here {
    pub(crate) context: &'static Context,
    pub(crate) id: ContextId,
    /// The green context through which it was named.
    green: Option<&'static Context>,
}

static CONTEXTS: Table<&'static Context> = Table::new(Kind::Context);
static PRIMARY: OnceLock<Vec<&'static Context>> = OnceLock::new();
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static STACK: RefCell<Vec<&'static Context>> = const { RefCell::new(Vec::new()) };
}

/// `CU_CTX_SCHED_*` and the others that `cuCtxCreate` takes.
const FLAGS: u32 = 0xff;
/// The version that `cuCtxGetApiVersion` gives for contexts of today's interface.
const CONTEXT_API: c_uint = 3020;

/// Gives every visible device its primary context, not active yet.
pub(crate) fn init() {
    let Ok(state) = ready() else { return };
    PRIMARY.get_or_init(|| (0..state.devices.len()).filter_map(|device| new(device, true, 0, 0)).collect());
}

fn new(device: usize, primary: bool, flags: u32, users: u32) -> Option<&'static Context> {
    insert(device, primary, None, flags, users)
}

/// The context that stands for a green one of the device.
pub(crate) fn of_green(device: usize, green: Green) -> Option<&'static Context> {
    insert(device, false, Some(green), 0, 1)
}

/// Ends the handle of a green context's context.
pub(crate) fn drop_green(context: &'static Context) {
    context.storage.end(context.handle);
    CONTEXTS.remove(context.handle);
    context.destroyed.store(true, Ordering::Release);
    if top().is_some_and(|top| std::ptr::eq(top, context)) {
        pop();
    }
}

fn insert(device: usize, primary: bool, green: Option<Green>, flags: u32, users: u32) -> Option<&'static Context> {
    let make = |handle| Context {
        handle,
        device,
        primary,
        green,
        storage: Storage::default(),
        id: AtomicU32::new(0),
        fault: Fault::default(),
        flags: AtomicU32::new(flags),
        cache_config: AtomicU32::new(0),
        destroyed: AtomicBool::new(false),
        users: Mutex::new(users),
    };
    // Every call names a context, so nobody counts who does: a few hundred bytes stay behind when one ends.
    CONTEXTS.insert(|handle| &*Box::leak(Box::new(make(handle)))).map(|context| *context)
}

impl Context {
    /// The context to work in: alive, active, without a fault.
    pub(crate) fn live(&'static self) -> Result<Here> {
        crate::host_call::outside()?;
        let here = self.open()?;
        here.context.fault.check()?;
        Ok(here)
    }

    /// As [`Context::live`], faulted or not.
    fn open(&'static self) -> Result<Here> {
        if let Some(green) = &self.green {
            let here = primary(self.device)?.open()?;
            if here.id != green.ctx || green.closed.load(Ordering::Acquire) {
                return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
            }
            return Ok(Here { green: Some(self), ..here });
        }
        match self.id.load(Ordering::Acquire) {
            0 => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
            id => Ok(Here { context: self, id: ContextId(id), green: None }),
        }
    }

    /// Adds a user of a primary context, which the first one starts.
    pub(crate) fn retain<B: Backend>(&self) -> Result<()> {
        let mut users = self.users.lock();
        if *users == 0 && self.id.load(Ordering::Acquire) == 0 {
            self.start::<B>()?;
        }
        *users += 1;
        Ok(())
    }

    /// Takes a user away from a primary context, which ends with the last one.
    pub(crate) fn release<B: Backend>(&self) -> Result<()> {
        let mut users = self.users.lock();
        match *users {
            0 => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
            1 => {
                *users = 0;
                self.stop::<B>()
            }
            _ => {
                *users -= 1;
                Ok(())
            }
        }
    }

    fn start<B: Backend>(&self) -> Result<()> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let device = ready()?.devices[self.device].ordinal;
        B::get().context_open(ContextId(id), device, self.flags.load(Ordering::Relaxed), self.primary)?;
        self.fault.clear();
        self.id.store(id, Ordering::Release);
        Ok(())
    }

    /// Ends what the backend has, and all objects in it.
    fn stop<B: Backend>(&self) -> Result<()> {
        let id = ContextId(self.id.load(Ordering::Acquire));
        if id.0 == 0 {
            return Ok(());
        }
        self.storage.end(self.handle);
        self.id.store(0, Ordering::Release);
        crate::capture::forget_context(id);
        crate::stream::forget(id);
        crate::event::forget(id);
        crate::module::forget(id);
        crate::library::forget(id);
        crate::array::forget(id);
        crate::texture::forget(id);
        crate::reference::forget(id);
        crate::memory::forget(id);
        crate::ipc::forget();
        crate::peer::forget(id);
        let outcome = B::get().context_close(id);
        self.fault.clear();
        outcome
    }
}

impl Here {
    /// The context as the program named it: the green one, if it did by that.
    pub(crate) fn named(&self) -> &'static Context {
        self.green.unwrap_or(self.context)
    }

    /// The green context whose share of the device is meant.
    pub(crate) fn green(&self) -> Option<&Green> {
        self.green.as_ref()?.green.as_ref()
    }

    /// The device as its snapshot describes it.
    pub(crate) fn device(&self) -> Result<&'static Device> {
        Ok(&ready()?.devices[self.context.device])
    }

    /// What the device says of launches.
    pub(crate) fn limits(&self) -> Result<&'static Limits> {
        Ok(&ready()?.limits[self.context.device])
    }

    /// Keeps a sticky error that a call came back with.
    pub(crate) fn note<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome
            && crate::fault::is_sticky(*error)
        {
            self.context.fault.set(*error);
        }
        outcome
    }
}

/// The calling thread's current context, alive and without a fault.
pub(crate) fn current() -> Result<Here> {
    ready()?;
    top().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?.live()
}

/// The context on top of the calling thread's stack.
pub(crate) fn top() -> Option<&'static Context> {
    STACK.try_with(|stack| stack.borrow().last().copied()).ok().flatten()
}

/// The context of a handle; null is the current one.
pub(crate) fn named(context: CUcontext) -> Result<&'static Context> {
    ready()?;
    if context.is_null() {
        return top().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    CONTEXTS.look(context as u64).map(|context| **context).ok_or_else(|| {
        match not_found(Kind::Context, context as u64) {
            CUresult::CUDA_ERROR_INVALID_HANDLE => CUresult::CUDA_ERROR_INVALID_CONTEXT,
            destroyed => destroyed,
        }
    })
}

/// The context with the backend's name `id`, if it is open.
pub(crate) fn by_id(id: ContextId) -> Option<&'static Context> {
    CONTEXTS.find(|context| context.id.load(Ordering::Acquire) == id.0).map(|context| *context)
}

/// Some context that is open: for what belongs to none and needs one to be said in.
pub(crate) fn any() -> Option<ContextId> {
    let open = |context: &'static Context| match context.id.load(Ordering::Acquire) {
        0 => None,
        id => Some(ContextId(id)),
    };
    top().and_then(open).or_else(|| CONTEXTS.find(|c| c.id.load(Ordering::Acquire) != 0).and_then(|c| open(*c)))
}

/// The primary context of a visible device.
pub(crate) fn primary(device: usize) -> Result<&'static Context> {
    PRIMARY.get().and_then(|all| all.get(device)).copied().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
}

/// Marks a context, by the backend's name, as faulted.
pub(crate) fn fault(id: ContextId, error: CUresult) {
    if let Some(context) = by_id(id) {
        context.fault.set(error);
    }
}

fn push(context: &'static Context) {
    let _ = STACK.try_with(|stack| stack.borrow_mut().push(context));
}

fn pop() -> Option<&'static Context> {
    STACK.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
}

fn primary_of(dev: CUdevice) -> Result<&'static Context> {
    primary(state::device(dev)?.0)
}

/// The current context or, without one, the first device's primary one, which becomes active for it.
pub(crate) fn current_or_first<D: Driver>() -> Result<Here> {
    if let Some(context) = top() {
        return context.live();
    }
    let context = primary(0)?;
    let _users = context.users.lock();
    if context.id.load(Ordering::Acquire) == 0 {
        context.start::<D>()?;
    }
    context.live()
}

pub(crate) unsafe fn cuDevicePrimaryCtxRetain<D: Driver>(out: *mut CUcontext, dev: CUdevice) -> Result<()> {
    let context = primary_of(dev)?;
    require(!out.is_null())?;
    context.retain::<D>()?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.handle as CUcontext) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease<D: Driver>(dev: CUdevice) -> Result<()> {
    primary_of(dev)?.release::<D>()
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease_v2<D: Driver>(dev: CUdevice) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuDevicePrimaryCtxRelease::<D>(dev) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset<D: Driver>(dev: CUdevice) -> Result<()> {
    let context = primary_of(dev)?;
    let users = context.users.lock();
    context.stop::<D>()?;
    // Who still holds it finds a fresh one under the same handle.
    if *users > 0 { context.start::<D>() } else { Ok(()) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset_v2<D: Driver>(dev: CUdevice) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuDevicePrimaryCtxReset::<D>(dev) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxGetState<D: Driver>(
    dev: CUdevice,
    flags: *mut c_uint,
    active: *mut c_int,
) -> Result<()> {
    let context = primary_of(dev)?;
    require(!flags.is_null() && !active.is_null())?;
    // SAFETY: the program's out parameters.
    unsafe {
        put(flags, context.flags.load(Ordering::Relaxed))?;
        put(active, c_int::from(context.id.load(Ordering::Acquire) != 0))
    }
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags<D: Driver>(dev: CUdevice, flags: c_uint) -> Result<()> {
    let context = primary_of(dev)?;
    require(flags & !FLAGS == 0)?;
    context.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags_v2<D: Driver>(dev: CUdevice, flags: c_uint) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuDevicePrimaryCtxSetFlags::<D>(dev, flags) }
}

pub(crate) unsafe fn cuCtxCreate<D: Driver>(out: *mut CUcontext, flags: c_uint, dev: CUdevice) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxCreate_v2::<D>(out, flags, dev) }
}

pub(crate) unsafe fn cuCtxCreate_v2<D: Driver>(out: *mut CUcontext, flags: c_uint, dev: CUdevice) -> Result<()> {
    let (device, _) = state::device(dev)?;
    require(!out.is_null() && flags & !FLAGS == 0)?;
    let context = new(device, false, flags, 1).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Err(error) = context.start::<D>() {
        CONTEXTS.remove(context.handle);
        return Err(error);
    }
    let handle = context.handle;
    push(context);
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUcontext) }
}

pub(crate) unsafe fn cuCtxCreate_v3<D: Driver>(
    out: *mut CUcontext,
    _params: *mut CUexecAffinityParam,
    num_params: c_int,
    flags: c_uint,
    dev: CUdevice,
) -> Result<()> {
    // A share of the multiprocessors needs MPS, which no device here reports.
    if num_params != 0 {
        return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    // SAFETY: as this function's.
    unsafe { cuCtxCreate_v2::<D>(out, flags, dev) }
}

pub(crate) unsafe fn cuCtxCreate_v4<D: Driver>(
    out: *mut CUcontext,
    params: *mut CUctxCreateParams,
    flags: c_uint,
    dev: CUdevice,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    if let Some(params) = unsafe { params.as_ref() } {
        if params.numExecAffinityParams != 0 {
            return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
        if !params.cigParams.is_null() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
    }
    // SAFETY: as this function's.
    unsafe { cuCtxCreate_v2::<D>(out, flags, dev) }
}

pub(crate) unsafe fn cuCtxDestroy_v2<D: Driver>(ctx: CUcontext) -> Result<()> {
    require(!ctx.is_null())?;
    let context = named(ctx)?;
    if context.primary || context.green.is_some() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    CONTEXTS.remove(context.handle).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    context.destroyed.store(true, Ordering::Release);
    // Current to this thread: popped. Current to others: stays there, and its use is an error.
    if top().is_some_and(|top| std::ptr::eq(top, context)) {
        pop();
    }
    let _users = context.users.lock();
    context.stop::<D>()
}

pub(crate) unsafe fn cuCtxDestroy<D: Driver>(ctx: CUcontext) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxDestroy_v2::<D>(ctx) }
}

pub(crate) unsafe fn cuCtxAttach<D: Driver>(out: *mut CUcontext, flags: c_uint) -> Result<()> {
    require(flags == 0 && !out.is_null())?;
    let context = current()?.context;
    *context.users.lock() += 1;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.handle as CUcontext) }
}

pub(crate) unsafe fn cuCtxDetach<D: Driver>(ctx: CUcontext) -> Result<()> {
    let context = named(ctx)?;
    {
        let mut users = context.users.lock();
        if *users > 1 {
            *users -= 1;
            return Ok(());
        }
    }
    // SAFETY: as this function's.
    unsafe { cuCtxDestroy_v2::<D>(context.handle as CUcontext) }
}

pub(crate) unsafe fn cuCtxPushCurrent_v2<D: Driver>(ctx: CUcontext) -> Result<()> {
    ready()?;
    if ctx.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    push(named(ctx)?);
    Ok(())
}

pub(crate) unsafe fn cuCtxPushCurrent<D: Driver>(ctx: CUcontext) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxPushCurrent_v2::<D>(ctx) }
}

pub(crate) unsafe fn cuCtxPopCurrent_v2<D: Driver>(out: *mut CUcontext) -> Result<()> {
    ready()?;
    let context = pop().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    // SAFETY: the program's out parameter, which may be left out.
    unsafe { put_if(out, context.handle as CUcontext) };
    Ok(())
}

pub(crate) unsafe fn cuCtxPopCurrent<D: Driver>(out: *mut CUcontext) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxPopCurrent_v2::<D>(out) }
}

pub(crate) unsafe fn cuCtxSetCurrent<D: Driver>(ctx: CUcontext) -> Result<()> {
    ready()?;
    // A primary context may be made current before anybody has retained it: the runtime does.
    let context = if ctx.is_null() { None } else { Some(named(ctx)?) };
    pop();
    if let Some(context) = context {
        push(context);
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxGetCurrent<D: Driver>(out: *mut CUcontext) -> Result<()> {
    ready()?;
    let handle = top().map_or(0, |context| context.handle);
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUcontext) }
}

pub(crate) unsafe fn cuCtxGetDevice<D: Driver>(out: *mut CUdevice) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxGetDevice_v2::<D>(out, core::ptr::null_mut()) }
}

pub(crate) unsafe fn cuCtxGetDevice_v2<D: Driver>(out: *mut CUdevice, ctx: CUcontext) -> Result<()> {
    let context = named(ctx)?;
    if context.destroyed.load(Ordering::Acquire) {
        return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.device as CUdevice) }
}

pub(crate) unsafe fn cuCtxGetFlags<D: Driver>(flags: *mut c_uint) -> Result<()> {
    let context = named(core::ptr::null_mut())?;
    // SAFETY: the program's out parameter.
    unsafe { put(flags, context.flags.load(Ordering::Relaxed)) }
}

pub(crate) unsafe fn cuCtxSetFlags<D: Driver>(flags: c_uint) -> Result<()> {
    require(flags & !FLAGS == 0 && flags & 7 != 3)?;
    current()?.context.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetId<D: Driver>(ctx: CUcontext, out: *mut u64) -> Result<()> {
    let here = named(ctx)?.open()?;
    let id = here.green().map_or(u64::from(here.id.0), |green| green.handle);
    // SAFETY: the program's out parameter.
    unsafe { put(out, id) }
}

pub(crate) unsafe fn cuCtxGetApiVersion<D: Driver>(ctx: CUcontext, version: *mut c_uint) -> Result<()> {
    named(ctx)?;
    // SAFETY: the program's out parameter.
    unsafe { put(version, CONTEXT_API) }
}

pub(crate) unsafe fn cuCtxGetExecAffinity<D: Driver>(
    _out: *mut CUexecAffinityParam,
    _kind: CUexecAffinityType,
) -> Result<()> {
    current()?;
    Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)
}

pub(crate) unsafe fn cuCtxGetStreamPriorityRange<D: Driver>(least: *mut c_int, greatest: *mut c_int) -> Result<()> {
    let (low, high) = current()?.device()?.stream_priorities;
    // SAFETY: the program's out parameters, each of which may be left out.
    unsafe {
        put_if(least, low);
        put_if(greatest, high);
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxGetCacheConfig<D: Driver>(out: *mut CUfunc_cache) -> Result<()> {
    let config = current()?.context.cache_config.load(Ordering::Relaxed);
    // SAFETY: the program's out parameter.
    unsafe { put(out, outboard_abi::CUfunc_cache_enum(config)) }
}

pub(crate) unsafe fn cuCtxSetCacheConfig<D: Driver>(config: CUfunc_cache) -> Result<()> {
    require(config.0 <= 3)?;
    // A preference only; devices of today choose by what a kernel uses.
    current()?.context.cache_config.store(config.0, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetSharedMemConfig<D: Driver>(out: *mut CUsharedconfig) -> Result<()> {
    current()?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE) }
}

pub(crate) unsafe fn cuCtxSetSharedMemConfig<D: Driver>(config: CUsharedconfig) -> Result<()> {
    require(config.0 <= 2)?;
    current()?;
    // Without effect since Maxwell: banks are four bytes wide.
    Ok(())
}

pub(crate) unsafe fn cuCtxResetPersistingL2Cache<D: Driver>() -> Result<()> {
    current().map(|_| ())
}

pub(crate) unsafe fn cuCtxGetLimit<D: Driver>(value: *mut usize, limit: CUlimit) -> Result<()> {
    let here = current()?;
    require(!value.is_null())?;
    let found = here.note(D::get().context_limit(here.id, limit.0))?;
    // SAFETY: the program's out parameter.
    unsafe { put(value, found as usize) }
}

pub(crate) unsafe fn cuCtxSetLimit<D: Driver>(limit: CUlimit, value: usize) -> Result<()> {
    let here = current()?;
    here.note(D::get().context_set_limit(here.id, limit.0, value as u64))
}

pub(crate) unsafe fn cuCtxSynchronize<D: Driver>() -> Result<()> {
    let here = current()?;
    crate::capture::refuse_context(&here)?;
    here.note(D::get().context_synchronize(here.id))
}

pub(crate) unsafe fn cuCtxSynchronize_v2<D: Driver>(ctx: CUcontext) -> Result<()> {
    let here = named(ctx)?.live()?;
    crate::capture::refuse_context(&here)?;
    here.note(D::get().context_synchronize(here.id))
}
