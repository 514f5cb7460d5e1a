//! Functions: kernels in a context.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use outboard_abi::{CUfunction_attribute, CUresult};
use parking_lot::Mutex;

use crate::backend::{Backend, ContextId, ObjectId, Result};
use crate::border::{put_if, require};
use crate::context::Here;
use crate::handles::Live;
use crate::parts::module::Module;
use crate::process::{Front, Process};
use crate::recent::Sign;

pub(crate) use crate::parts::function::Function;

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

/// Shared memory in percent of the most, and the driver's own choice.
const CARVEOUTS: core::ops::RangeInclusive<i32> = -1..=100;

impl Function {
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
        if attribute == CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT {
            require(CARVEOUTS.contains(&value))?;
        }
        here.note(process.backend.function_set_attribute(self.ctx, self.id(), attribute.0, value))?;
        if let Some(slot) = self.attributes.get(attribute.0 as usize) {
            slot.store(value, Ordering::Relaxed);
        }
        self.answers.forget();
        Ok(())
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
    let info = match here.note(process.backend.module_function(
        here.id,
        module.id(),
        name,
        ObjectId(handle),
    )) {
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
        answers: crate::parts::occupancy::Answers::default(),
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

/// A mark that shows whether the function with a back end's name has ended.
pub(crate) fn sign(front: &'static Front, id: u64) -> Option<Sign> {
    front.functions.table.sign(id)
}

/// # Safety
/// `offset` and `size` are null or valid for a write.
pub(crate) unsafe fn param(
    function: &Function,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Result<()> {
    let (at, bytes) = *function.info.params.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(!offset.is_null())?;
    // SAFETY: by the contract above.
    unsafe {
        put_if(offset, at as usize);
        put_if(size, bytes as usize);
    }
    Ok(())
}
