//! Modules: images loaded into a context.

use core::ffi::{c_char, c_uint, c_void};
use std::collections::HashMap;
use std::sync::Arc;

use outboard_abi::{
    CUdevice_attribute as A, CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult,
};
use outboard_wire::platform::Device;
use parking_lot::Mutex;

use crate::Driver;
use crate::backend::{ContextId, Image, JitLog, JitOptions, ObjectId, Result};
use crate::border::{put, put_if, require, text};
use crate::context::{self, Context, Here};
use crate::function::{self, Function};
use crate::handles::{Kind, Table};
use crate::image::{self, Parts};
use crate::jit;

/// An image loaded into a context.
pub(crate) struct Module {
    pub(crate) handle: u64,
    context: &'static Context,
    pub(crate) ctx: ContextId,
    functions: Mutex<HashMap<String, Arc<Function>>>,
    names: Mutex<Option<Arc<[String]>>>,
}

static MODULES: Table<Module> = Table::new(Kind::Module);

impl Module {
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }

    fn live(self: &Arc<Module>) -> Result<Here> {
        self.context.live()
    }

    /// The kernel of that name, looked up once.
    pub(crate) fn function<D: Driver>(self: &Arc<Module>, here: &Here, name: &str) -> Result<Arc<Function>> {
        if let Some(function) = self.functions.lock().get(name) {
            return Ok(function.clone());
        }
        // No lock is held over the round trip; who comes second finds the first one's kernel and drops its own.
        let function = function::find::<D>(here, self, name)?;
        let mut functions = self.functions.lock();
        let known = functions.entry(name.to_owned()).or_insert_with(|| function.clone()).clone();
        drop(functions);
        if !Arc::ptr_eq(&known, &function) {
            function::drop_handle(function.handle);
        }
        Ok(known)
    }

    /// Names of the kernels, in the image's order.
    pub(crate) fn names<D: Driver>(&self, here: &Here) -> Result<Arc<[String]>> {
        if let Some(names) = &*self.names.lock() {
            return Ok(names.clone());
        }
        let names: Arc<[String]> = here.note(D::get().module_functions(here.id, self.id()))?.into();
        *self.names.lock() = Some(names.clone());
        Ok(names)
    }
}

/// Loads an image into a context.
pub(crate) fn load<D: Driver>(
    here: &Here,
    parts: &[&[u8]],
    options: &JitOptions,
    log: &mut JitLog,
) -> Result<Arc<Module>> {
    let make = |handle| Module {
        handle,
        context: here.context,
        ctx: here.id,
        functions: Mutex::new(HashMap::new()),
        names: Mutex::new(None),
    };
    let module = MODULES.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let sm = architecture(here.device()?);
    if let Err(error) = here.note(D::get().module_load(here.id, module.id(), Image { parts, options, sm }, log)) {
        MODULES.remove(module.handle);
        if !log.error.is_empty() {
            crate::logs::because(log.error.clone());
        }
        return Err(error);
    }
    Ok(module)
}

/// The architecture of a device, such as 90.
fn architecture(device: &Device) -> u32 {
    let value = |attribute: A| device.attribute(attribute.0).unwrap_or(0) as u32;
    value(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 + value(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
}

/// Unloads a module and ends its functions' handles.
pub(crate) fn unload<D: Driver>(handle: u64) -> Result<()> {
    let module = MODULES.remove(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    for function in module.functions.lock().values() {
        function::drop_handle(function.handle);
    }
    crate::reference::forget_module(handle);
    D::get().module_unload(module.ctx, module.id())
}

/// Forgets the modules of a context that has ended.
pub(crate) fn forget(id: ContextId) {
    MODULES.remove_where(|module| module.ctx == id);
    function::forget(id);
}

/// The module of a handle, and its context.
pub(crate) fn resolve(module: CUmodule) -> Result<(Here, Arc<Module>)> {
    crate::state::ready()?;
    let module = MODULES.get(module as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    Ok((module.live()?, module))
}

/// # Safety
/// As of `cuModuleLoadDataEx`.
unsafe fn load_image<D: Driver>(
    out: *mut CUmodule,
    parts: &Parts,
    count: c_uint,
    options: *const CUjit_option,
    values: *mut *mut c_void,
) -> Result<()> {
    let here = context::current()?;
    require(!out.is_null())?;
    let mut log = JitLog::default();
    // SAFETY: the program's options and image, valid during this call.
    let (jit, slices) = unsafe { (jit::Options::read(count, options, values)?, parts.slices()) };
    let loaded = load::<D>(&here, &slices, &jit.given, &mut log);
    // SAFETY: as read above.
    unsafe {
        jit.places().write(&log);
        put(out, loaded?.handle as CUmodule)
    }
}

pub(crate) unsafe fn cuModuleLoadDataEx<D: Driver>(
    out: *mut CUmodule,
    data: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Result<()> {
    // SAFETY: the program's image and options.
    unsafe { load_image::<D>(out, &image::locate(data)?, count, options, values) }
}

pub(crate) unsafe fn cuModuleLoadData<D: Driver>(out: *mut CUmodule, data: *const c_void) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuModuleLoadDataEx::<D>(out, data, 0, core::ptr::null_mut(), core::ptr::null_mut()) }
}

pub(crate) unsafe fn cuModuleLoadFatBinary<D: Driver>(out: *mut CUmodule, data: *const c_void) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuModuleLoadData::<D>(out, data) }
}

pub(crate) unsafe fn cuModuleLoad<D: Driver>(out: *mut CUmodule, name: *const c_char) -> Result<()> {
    context::current()?;
    // The file is the client's: a server never opens a file by a client's name for it.
    // SAFETY: the program's string.
    let parts = read_file(unsafe { text(name) }?)?;
    // SAFETY: no options are passed.
    unsafe { load_image::<D>(out, &parts, 0, core::ptr::null(), core::ptr::null_mut()) }
}

/// An image from a file of the program's machine.
pub(crate) fn read_file(name: &str) -> Result<Parts> {
    let bytes = std::fs::read(name).map_err(|_| CUresult::CUDA_ERROR_FILE_NOT_FOUND)?;
    if bytes.len() < 4 {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    Ok(Parts::from_file(bytes))
}

pub(crate) unsafe fn cuModuleUnload<D: Driver>(module: CUmodule) -> Result<()> {
    crate::state::ready()?;
    crate::capture::refuse_unsafe()?;
    unload::<D>(module as u64)
}

pub(crate) unsafe fn cuModuleGetFunction<D: Driver>(
    out: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> Result<()> {
    let (here, module) = resolve(module)?;
    // SAFETY: the program's string.
    let name = unsafe { text(name) }?;
    require(!out.is_null() && !name.is_empty())?;
    let function = module.function::<D>(&here, name)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.handle as CUfunction) }
}

pub(crate) unsafe fn cuModuleGetFunctionCount<D: Driver>(count: *mut c_uint, module: CUmodule) -> Result<()> {
    let (here, module) = resolve(module)?;
    // SAFETY: the program's out parameter.
    unsafe { put(count, module.names::<D>(&here)?.len() as c_uint) }
}

pub(crate) unsafe fn cuModuleEnumerateFunctions<D: Driver>(
    out: *mut CUfunction,
    count: c_uint,
    module: CUmodule,
) -> Result<()> {
    let (here, module) = resolve(module)?;
    require(!out.is_null())?;
    for (index, name) in module.names::<D>(&here)?.iter().take(count as usize).enumerate() {
        let function = module.function::<D>(&here, name)?;
        // SAFETY: the program gives `count` elements.
        unsafe { put(out.add(index), function.handle as CUfunction) }?;
    }
    Ok(())
}

pub(crate) unsafe fn cuModuleGetGlobal_v2<D: Driver>(
    out: *mut CUdeviceptr,
    bytes: *mut usize,
    module: CUmodule,
    name: *const c_char,
) -> Result<()> {
    let (here, module) = resolve(module)?;
    // SAFETY: the program's string.
    let name = unsafe { text(name) }?;
    // SAFETY: as this function's.
    unsafe { global::<D>(&here, &module, name, out, bytes) }
}

/// Address and size of a global variable, which copies may then name.
///
/// # Safety
/// `out` and `bytes` are null or valid for a write.
pub(crate) unsafe fn global<D: Driver>(
    here: &Here,
    module: &Module,
    name: &str,
    out: *mut CUdeviceptr,
    bytes: *mut usize,
) -> Result<()> {
    let (address, len, managed) = here.note(D::get().module_global(here.id, module.id(), name))?;
    if crate::memory::find(address).is_none() {
        let kind = if managed { crate::memory::Kind::ManagedGlobal } else { crate::memory::Kind::Global };
        crate::memory::insert(here, address, len, kind);
    }
    // SAFETY: by the contract above.
    unsafe {
        put_if(out, address);
        put_if(bytes, len as usize);
    }
    Ok(())
}

pub(crate) unsafe fn cuModuleGetLoadingMode<D: Driver>(mode: *mut CUmoduleLoadingMode) -> Result<()> {
    // Lazy: the runtime then loads what it launches, not all that it holds.
    // SAFETY: the program's out parameter.
    unsafe { put(mode, CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING) }
}
