//! Functions: kernels in a context.

pub(crate) mod configured;

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use outboard_abi::{CUfunction, CUfunction_attribute, CUresult};
use outboard_wire::platform::KernelInfo;
use parking_lot::Mutex;

use crate::backend::{Backend, ContextId, ObjectId, Result};
use crate::border::{put_if, require};
use crate::context::{Context, Here};
use crate::handles::{self, Kind, Live, Table};
use crate::module::Module;
use crate::process::{Front, Process};
use crate::recent::Sign;

pub(crate) use configured::Configured;

/// A kernel in a context.
pub(crate) struct Function {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) ctx: ContextId,
    pub(crate) module: u64,
    pub(crate) name: CString,
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
            let most = crate::device::shared_limit(here.device()?) - self.static_shared();
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
