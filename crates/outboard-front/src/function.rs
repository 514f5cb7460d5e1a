//! Functions: kernels in a context.

use core::ffi::{c_char, c_int};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use outboard_abi::{
    CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUmodule, CUresult, CUsharedconfig,
};
use outboard_wire::platform::KernelInfo;
use parking_lot::Mutex;

use crate::backend::{Backend, ContextId, ObjectId, Result};
use crate::border::{put, put_if, require};
use crate::context::{Context, Here};
use crate::handles::{self, Kind, Live, Table};
use crate::module::Module;
use crate::process::{Front, Process};
use crate::recent::Sign;

mod configured;

pub(crate) use configured::Configured;
pub use configured::{
    cuFuncSetBlockShape, cuFuncSetSharedSize, cuLaunch, cuLaunchGrid, cuLaunchGridAsync, cuParamSetSize, cuParamSetf,
    cuParamSeti, cuParamSetv,
};

/// A kernel in a context.
pub(crate) struct Function {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) ctx: ContextId,
    module: u64,
    name: CString,
    pub(crate) info: KernelInfo,
    pub(crate) param_bytes: usize,
    /// Current value of each attribute; programs may set some.
    attributes: Vec<AtomicI32>,
    pub(crate) answers: crate::occupancy::Answers,
    /// For the launch interface of before CUDA 4.
    pub(crate) next: Mutex<Configured>,
}

/// The functions of a process.
pub(crate) struct Functions {
    table: Table<Function>,
}

impl Functions {
    pub(crate) const fn new() -> Functions {
        Functions { table: Table::new(Kind::Function) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

/// The attributes that `cuFuncSetAttribute` may change.
const SETTABLE: [CUfunction_attribute; 7] = [
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
];

impl Function {
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }

    /// Its name in the image.
    pub(crate) fn name(&self) -> &std::ffi::CStr {
        &self.name
    }

    /// The current value of an attribute.
    pub(crate) fn attribute(&self, attribute: CUfunction_attribute) -> Result<i32> {
        let value = self.attributes.get(attribute.0 as usize).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(value.load(Ordering::Relaxed))
    }

    /// Sets an attribute, as `cuFuncSetAttribute` does.
    pub(crate) fn set_attribute<B: Backend>(
        &self,
        process: &'static Process<B>,
        here: &Here,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> Result<()> {
        require(SETTABLE.contains(&attribute))?;
        if attribute == CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES {
            let most = crate::launch::shared_limit(here.device()?) - self.static_shared();
            require((0..=most).contains(&value))?;
        }
        here.note(process.backend.function_set_attribute(self.ctx, self.id(), attribute.0, value))?;
        if let Some(slot) = self.attributes.get(attribute.0 as usize) {
            slot.store(value, Ordering::Relaxed);
        }
        self.answers.forget();
        Ok(())
    }

    /// Bytes of shared memory that a block needs whatever the launch says.
    pub(crate) fn static_shared(&self) -> i32 {
        self.info.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES.0)
    }

    pub(crate) fn live(&self) -> Result<Here> {
        self.context.live()
    }
}

/// Asks for a kernel of a module.
pub(crate) fn find<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    module: &Module,
    name: &str,
) -> Result<Arc<Function>> {
    let c_name = CString::new(name).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let handle = process.functions.table.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let info = match here.note(process.backend.module_function(here.id, module.id(), name, ObjectId(handle))) {
        Ok(info) => info,
        Err(error) => {
            process.functions.table.release(handle);
            return Err(error);
        }
    };
    let local = info.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES.0);
    here.context.needs_local(u64::try_from(local).unwrap_or(0));
    let function = Arc::new(Function {
        handle,
        context: here.context,
        ctx: here.id,
        module: module.handle,
        name: c_name,
        param_bytes: info.param_bytes(),
        attributes: info.attributes.iter().map(|value| AtomicI32::new(*value)).collect(),
        answers: crate::occupancy::Answers::default(),
        info,
        next: Mutex::default(),
    });
    process.functions.table.fill(handle, function.clone());
    Ok(function)
}

/// Ends a function's handle.
pub(crate) fn drop_handle(front: &'static Front, handle: u64) {
    front.functions.table.remove(handle);
}

/// Forgets the functions of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.functions.table.remove_where(|function| function.ctx == id);
}

/// The function of a backend's name.
pub(crate) fn by_id(front: &'static Front, id: u64) -> Result<Live<Function>> {
    front.functions.table.look_again(id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// What shows that the function of a backend's name has ended.
pub(crate) fn sign(front: &'static Front, id: u64) -> Option<Sign> {
    front.functions.table.sign(id)
}

/// The function that a program names: a `CUfunction`, or a `CUkernel` in its place, which means that kernel in the current context.
pub(crate) fn resolve<B: Backend>(process: &'static Process<B>, function: CUfunction) -> Result<Live<Function>> {
    crate::state::ready(process)?;
    let handle = function as u64;
    if handles::is(Kind::Kernel, handle) {
        return crate::library::in_current_context(process, handle);
    }
    by_id(process, handle)
}

/// As [`resolve`], but a `CUkernel` means that kernel in the context given.
pub(crate) fn resolve_in<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    here: &Here,
) -> Result<Live<Function>> {
    let handle = function as u64;
    if handles::is(Kind::Kernel, handle) {
        return crate::library::in_context(process, handle, here);
    }
    by_id(process, handle)
}

pub unsafe fn cuFuncGetAttribute<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    attribute: CUfunction_attribute,
    function: CUfunction,
) -> Result<()> {
    let function = resolve(process, function)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.attribute(attribute)?) }
}

pub unsafe fn cuFuncSetAttribute<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: c_int,
) -> Result<()> {
    let function = resolve(process, function)?;
    let here = function.live()?;
    function.set_attribute(process, &here, attribute, value)
}

pub unsafe fn cuFuncSetCacheConfig<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    config: CUfunc_cache,
) -> Result<()> {
    let function = resolve(process, function)?;
    let here = function.live()?;
    require(config.0 <= 3)?;
    here.note(process.backend.function_set_cache_config(here.id, function.id(), config.0))?;
    function.answers.forget();
    Ok(())
}

pub unsafe fn cuFuncSetSharedMemConfig<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    config: CUsharedconfig,
) -> Result<()> {
    resolve(process, function)?;
    // Without effect since Maxwell: banks are four bytes wide.
    require(config.0 <= 2)
}

pub unsafe fn cuFuncGetModule<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmodule,
    function: CUfunction,
) -> Result<()> {
    let function = resolve(process, function)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.module as CUmodule) }
}

pub unsafe fn cuFuncGetName<B: Backend>(
    process: &'static Process<B>,
    out: *mut *const c_char,
    function: CUfunction,
) -> Result<()> {
    let function = resolve(process, function)?;
    // The name lives as long as the function's handle: the table keeps it.
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.name.as_ptr()) }
}

pub unsafe fn cuFuncGetParamInfo<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Result<()> {
    let function = resolve(process, function)?;
    // SAFETY: as this function's.
    unsafe { param(&function, index, offset, size) }
}

/// # Safety
/// `offset` and `size` are null or valid for a write.
pub(crate) unsafe fn param(function: &Function, index: usize, offset: *mut usize, size: *mut usize) -> Result<()> {
    let (at, bytes) = *function.info.params.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(!offset.is_null())?;
    // SAFETY: by the contract above.
    unsafe {
        put_if(offset, at as usize);
        put_if(size, bytes as usize);
    }
    Ok(())
}

pub unsafe fn cuFuncIsLoaded<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUfunctionLoadingState,
    function: CUfunction,
) -> Result<()> {
    resolve(process, function)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED) }
}

pub unsafe fn cuFuncLoad<B: Backend>(process: &'static Process<B>, function: CUfunction) -> Result<()> {
    resolve(process, function).map(|_| ())
}
