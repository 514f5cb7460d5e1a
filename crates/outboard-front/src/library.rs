//! Libraries and kernels: images that belong to no context, loaded into each context that uses them.

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use outboard_abi::{
    CUdevice, CUdeviceptr, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUkernel, CUlibrary,
    CUlibraryOption, CUmodule, CUresult,
};
use parking_lot::Mutex;

use crate::Driver;
use crate::backend::{ContextId, JitLog, JitOptions, Result};
use crate::border::{put, put_if, require, slice, text};
use crate::context::{self, Here};
use crate::function::{self, Function};
use crate::handles::{Kind, Live, Table};
use crate::image::{self, Parts};
use crate::jit;
use crate::module::{self, Module};
use crate::recent;

/// An image and the contexts it is loaded into.
pub(crate) struct Library {
    handle: u64,
    parts: Parts,
    options: JitOptions,
    unloaded: AtomicBool,
    /// Held over a load: two threads that launch from a library at once must not load it twice.
    modules: Mutex<HashMap<ContextId, Arc<Module>>>,
    kernels: Mutex<HashMap<String, u64>>,
}

/// A kernel of a library.
pub(crate) struct Kernel {
    handle: u64,
    library: Arc<Library>,
    name: CString,
    /// Its functions by context, each by its handle. Changed by whoever holds `settings`.
    functions: ArcSwap<Vec<(ContextId, u64)>>,
    /// The function that was asked for last: mostly there is one context.
    recent: ArcSwapOption<Function>,
    /// Attributes set for a device, for the contexts that will load the kernel later: (device, attribute, value).
    settings: Mutex<Vec<(usize, CUfunction_attribute, i32)>>,
}

static LIBRARIES: Table<Library> = Table::new(Kind::Library);
static KERNELS: Table<Kernel> = Table::new(Kind::Kernel);

/// `CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE`: addresses of host functions, for devices that could call them.
const HOST_TABLE: u32 = 0;
/// `CU_LIBRARY_BINARY_IS_PRESERVED`: the program keeps the image until the library is unloaded.
const BINARY_IS_PRESERVED: u32 = 1;

impl Library {
    /// The library loaded into a context, now if it was not.
    fn module<D: Driver>(&self, here: &Here) -> Result<Arc<Module>> {
        self.load::<D>(here, &mut JitLog::default())
    }

    fn load<D: Driver>(&self, here: &Here, log: &mut JitLog) -> Result<Arc<Module>> {
        let mut modules = self.modules.lock();
        if let Some(module) = modules.get(&here.id) {
            return Ok(module.clone());
        }
        // After an unload the program may have taken the image away.
        if self.unloaded.load(Ordering::Acquire) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        // SAFETY: not unloaded, so that a program that promised to keep the image still does.
        let parts = unsafe { self.parts.slices() };
        let module = module::load::<D>(here, &parts, &self.options, log)?;
        modules.insert(here.id, module.clone());
        Ok(module)
    }

    /// The kernel of that name; its handle is the same each time.
    fn kernel(self: &Arc<Library>, name: &str) -> Result<u64> {
        let mut kernels = self.kernels.lock();
        if let Some(handle) = kernels.get(name) {
            return Ok(*handle);
        }
        let c_name = CString::new(name).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let make = |handle| Kernel {
            handle,
            library: self.clone(),
            name: c_name,
            functions: ArcSwap::default(),
            recent: ArcSwapOption::empty(),
            settings: Mutex::default(),
        };
        let kernel = KERNELS.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        kernels.insert(name.to_owned(), kernel.handle);
        Ok(kernel.handle)
    }
}

impl Kernel {
    /// The kernel as a function of a context.
    fn function<D: Driver>(&self, here: &Here) -> Result<Live<Function>> {
        if let Some(function) = Live::of(&self.recent).filter(|function| function.ctx == here.id) {
            return Ok(function);
        }
        let known = self.functions.load().iter().find(|(id, _)| *id == here.id).map(|(_, handle)| *handle);
        if let Some(handle) = known {
            let function = function::by_id(handle)?;
            self.recent.store(Some(function.clone()));
            return Ok(function);
        }
        let name = self.name.to_str().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let function = self.library.module::<D>(here)?.function::<D>(here, name)?;
        let settings = self.settings.lock();
        let known = self.functions.load_full();
        if !known.iter().any(|(id, _)| *id == here.id) {
            let all = known.iter().copied().chain([(here.id, function.handle)]);
            self.functions.store(Arc::new(all.collect()));
            for (device, attribute, value) in settings.iter() {
                if *device == here.context.device {
                    function.set_attribute::<D>(here, *attribute, *value)?;
                }
            }
        }
        function::by_id(function.handle)
    }

    /// Forgets the function of a context that has ended.
    fn forget(&self, id: ContextId) {
        let _settings = self.settings.lock();
        self.recent.store(None);
        let known = self.functions.load_full();
        if known.iter().any(|(ctx, _)| *ctx == id) {
            self.functions.store(Arc::new(known.iter().filter(|(ctx, _)| *ctx != id).copied().collect()));
        }
    }

    /// The kernel as a function of some context on a device: what attributes are asked of.
    fn on_device<D: Driver>(&self, device: usize) -> Result<Live<Function>> {
        let here = match context::current() {
            Ok(here) if here.context.device == device => here,
            _ => context::primary(device)?.live()?,
        };
        self.function::<D>(&here)
    }
}

/// Forgets what a context that has ended had loaded.
pub(crate) fn forget(id: ContextId) {
    LIBRARIES.for_each(|library| {
        library.modules.lock().remove(&id);
    });
    KERNELS.for_each(|kernel| kernel.forget(id));
}

/// The function that the kernel of a handle is in the current context.
pub(crate) fn in_current_context<D: Driver>(handle: u64) -> Result<Live<Function>> {
    in_context::<D>(handle, &context::current()?)
}

/// The function that the kernel of a handle is in a context.
pub(crate) fn in_context<D: Driver>(handle: u64, here: &Here) -> Result<Live<Function>> {
    if let Some(function) = Live::<Function>::kept(handle)
        && function.ctx == here.id
    {
        return Ok(function);
    }
    let kernel = KERNELS.sign(handle);
    let function = KERNELS.look(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.function::<D>(here)?;
    if let (Some(kernel), Some(own)) = (kernel, function::sign(function.handle))
        && function::by_id(function.handle).is_ok()
    {
        recent::keep(handle, [kernel, own], Arc::clone(&function));
    }
    Ok(function)
}

fn library(library: CUlibrary) -> Result<Arc<Library>> {
    crate::state::ready()?;
    LIBRARIES.get(library as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

fn kernel(kernel: CUkernel) -> Result<Live<Kernel>> {
    crate::state::ready()?;
    KERNELS.look(kernel as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// # Safety
/// What `jit` was read from is still valid.
unsafe fn add<D: Driver>(parts: Parts, jit: &jit::Options) -> Result<u64> {
    let make = |handle| Library {
        handle,
        parts,
        options: jit.given.clone(),
        unloaded: AtomicBool::new(false),
        modules: Mutex::default(),
        kernels: Mutex::default(),
    };
    let library = LIBRARIES.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    // Loading is lazy, but an image that no device here can run is an error of this call.
    if let Ok(here) = context::current() {
        let mut log = JitLog::default();
        let loaded = library.load::<D>(&here, &mut log);
        // SAFETY: by the contract above.
        unsafe { jit.places().write(&log) };
        if let Err(error) = loaded {
            LIBRARIES.remove(library.handle);
            return Err(error);
        }
    }
    Ok(library.handle)
}

/// Whether the program keeps the image, from the options of a library.
///
/// # Safety
/// `options` and `values` are null or have `count` elements.
unsafe fn is_kept(options: *const CUlibraryOption, values: *const *mut c_void, count: c_uint) -> Result<bool> {
    // SAFETY: by the contract above.
    let (options, values) = unsafe {
        // The options that exist are told by being there: cuBLAS passes no values.
        let values = if values.is_null() { None } else { Some(slice(values, count as usize)?) };
        (slice(options, count as usize)?, values)
    };
    let mut kept = false;
    for (index, option) in options.iter().enumerate() {
        match option.0 {
            // No device here calls host functions, so that nobody reads the table.
            HOST_TABLE => {}
            BINARY_IS_PRESERVED => kept = values.is_none_or(|values| !values[index].is_null()),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
    Ok(kept)
}

pub(crate) unsafe fn cuLibraryLoadData<D: Driver>(
    out: *mut CUlibrary,
    data: *const c_void,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
    count: c_uint,
) -> Result<()> {
    crate::state::ready()?;
    require(!out.is_null())?;
    // SAFETY: the program's options and image.
    let (jit, kept, parts) = unsafe {
        (
            jit::Options::read(jit_count, jit_options, jit_values)?,
            is_kept(options, values, count)?,
            image::locate(data)?,
        )
    };
    // SAFETY: the program's image, valid during this call.
    let parts = if kept { parts } else { unsafe { parts.to_owned() } };
    // SAFETY: the program's out parameter.
    unsafe { put(out, add::<D>(parts, &jit)? as CUlibrary) }
}

pub(crate) unsafe fn cuLibraryLoadFromFile<D: Driver>(
    out: *mut CUlibrary,
    name: *const c_char,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
    count: c_uint,
) -> Result<()> {
    crate::state::ready()?;
    require(!out.is_null())?;
    // SAFETY: the program's options and string.
    let (jit, kept, name) = unsafe {
        (jit::Options::read(jit_count, jit_options, jit_values)?, is_kept(options, values, count)?, text(name)?)
    };
    // There is no memory of the program's to keep.
    require(!kept)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, add::<D>(module::read_file(name)?, &jit)? as CUlibrary) }
}

pub(crate) unsafe fn cuLibraryUnload<D: Driver>(handle: CUlibrary) -> Result<()> {
    crate::state::ready()?;
    let library = LIBRARIES.remove(handle as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    library.unloaded.store(true, Ordering::Release);
    for handle in std::mem::take(&mut *library.kernels.lock()).into_values() {
        KERNELS.remove(handle);
    }
    let modules = std::mem::take(&mut *library.modules.lock());
    // A faulted context has nothing left to unload; that is no failure of this call.
    modules
        .into_values()
        .try_for_each(|module| module::unload::<D>(module.handle))
        .or_else(|error| if crate::fault::is_sticky(error) { Ok(()) } else { Err(error) })
}

pub(crate) unsafe fn cuLibraryGetKernel<D: Driver>(
    out: *mut CUkernel,
    handle: CUlibrary,
    name: *const c_char,
) -> Result<()> {
    let library = library(handle)?;
    // SAFETY: the program's string.
    let name = unsafe { text(name) }?;
    require(!out.is_null() && !name.is_empty())?;
    // Whether there is such a kernel is known once the image is loaded somewhere.
    if let Ok(here) = context::current() {
        library.module::<D>(&here)?.function::<D>(&here, name)?;
    }
    // SAFETY: the program's out parameter.
    unsafe { put(out, library.kernel(name)? as CUkernel) }
}

pub(crate) unsafe fn cuLibraryGetModule<D: Driver>(out: *mut CUmodule, handle: CUlibrary) -> Result<()> {
    let library = library(handle)?;
    let here = context::current()?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, library.module::<D>(&here)?.handle as CUmodule) }
}

pub(crate) unsafe fn cuLibraryGetGlobal<D: Driver>(
    out: *mut CUdeviceptr,
    bytes: *mut usize,
    handle: CUlibrary,
    name: *const c_char,
) -> Result<()> {
    let library = library(handle)?;
    let here = context::current()?;
    let module = library.module::<D>(&here)?;
    // SAFETY: the program's string and out parameters.
    unsafe { module::global::<D>(&here, &module, text(name)?, out, bytes) }
}

pub(crate) unsafe fn cuLibraryGetUnifiedFunction<D: Driver>(
    out: *mut *mut c_void,
    handle: CUlibrary,
    name: *const c_char,
) -> Result<()> {
    library(handle)?;
    // SAFETY: the program's string.
    unsafe { text(name) }?;
    require(!out.is_null())?;
    // Functions that host and device both call need a device with `UNIFIED_FUNCTION_POINTERS`, which none here reports.
    Err(CUresult::CUDA_ERROR_NOT_FOUND)
}

pub(crate) unsafe fn cuLibraryGetManaged<D: Driver>(
    out: *mut CUdeviceptr,
    bytes: *mut usize,
    handle: CUlibrary,
    name: *const c_char,
) -> Result<()> {
    let library = library(handle)?;
    // The runtime asks before it has a context: its programs may use such variables before they use the device.
    let here = context::current_or_first::<D>()?;
    let module = library.module::<D>(&here)?;
    let mut address = 0;
    // SAFETY: the program's string and out parameters.
    unsafe {
        module::global::<D>(&here, &module, text(name)?, &raw mut address, bytes)?;
        // Only managed variables are found.
        let managed = crate::memory::find(address).is_some_and(|(_, _, allocation)| allocation.kind.is_managed());
        if !managed {
            return Err(CUresult::CUDA_ERROR_NOT_FOUND);
        }
        put_if(out, address);
    }
    Ok(())
}

pub(crate) unsafe fn cuLibraryGetKernelCount<D: Driver>(count: *mut c_uint, handle: CUlibrary) -> Result<()> {
    let library = library(handle)?;
    let here = context::current()?;
    // SAFETY: the program's out parameter.
    unsafe { put(count, library.module::<D>(&here)?.names::<D>(&here)?.len() as c_uint) }
}

pub(crate) unsafe fn cuLibraryEnumerateKernels<D: Driver>(
    out: *mut CUkernel,
    count: c_uint,
    handle: CUlibrary,
) -> Result<()> {
    let library = library(handle)?;
    let here = context::current()?;
    require(!out.is_null())?;
    let names = library.module::<D>(&here)?.names::<D>(&here)?;
    for (index, name) in names.iter().take(count as usize).enumerate() {
        // SAFETY: the program gives `count` elements.
        unsafe { put(out.add(index), library.kernel(name)? as CUkernel) }?;
    }
    Ok(())
}

pub(crate) unsafe fn cuKernelGetFunction<D: Driver>(out: *mut CUfunction, handle: CUkernel) -> Result<()> {
    let kernel = kernel(handle)?;
    let function = kernel.function::<D>(&context::current()?)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.handle as CUfunction) }
}

pub(crate) unsafe fn cuKernelGetLibrary<D: Driver>(out: *mut CUlibrary, handle: CUkernel) -> Result<()> {
    let kernel = kernel(handle)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, kernel.library.handle as CUlibrary) }
}

pub(crate) unsafe fn cuKernelGetName<D: Driver>(out: *mut *const c_char, handle: CUkernel) -> Result<()> {
    if crate::handles::is(Kind::Function, handle as u64) {
        // SAFETY: as this function's; a function may stand in for a kernel.
        return unsafe { function::cuFuncGetName::<D>(out, handle as CUfunction) };
    }
    let kernel = kernel(handle)?;
    // The name lives as long as the kernel's handle: the table keeps it.
    // SAFETY: the program's out parameter.
    unsafe { put(out, kernel.name.as_ptr()) }
}

pub(crate) unsafe fn cuKernelGetAttribute<D: Driver>(
    out: *mut c_int,
    attribute: CUfunction_attribute,
    handle: CUkernel,
    dev: CUdevice,
) -> Result<()> {
    let (device, _) = crate::state::device(dev)?;
    let function = match context::current() {
        // Mostly so, and then this thread has it at hand.
        Ok(here) if here.context.device == device => in_context::<D>(handle as u64, &here)?,
        _ => kernel(handle)?.on_device::<D>(device)?,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.attribute(attribute)?) }
}

pub(crate) unsafe fn cuKernelSetAttribute<D: Driver>(
    attribute: CUfunction_attribute,
    value: c_int,
    handle: CUkernel,
    dev: CUdevice,
) -> Result<()> {
    let (device, _) = crate::state::device(dev)?;
    let kernel = kernel(handle)?;
    // For every context of the device: those that have the kernel now, and those to come.
    let loaded = kernel.functions.load_full();
    let loaded = loaded.iter().filter_map(|(_, handle)| function::by_id(*handle).ok());
    for function in loaded.filter(|function| function.context.device == device) {
        function.set_attribute::<D>(&function.live()?, attribute, value)?;
    }
    kernel.settings.lock().push((device, attribute, value));
    Ok(())
}

pub(crate) unsafe fn cuKernelSetCacheConfig<D: Driver>(
    handle: CUkernel,
    config: CUfunc_cache,
    dev: CUdevice,
) -> Result<()> {
    crate::state::device(dev)?;
    kernel(handle)?;
    // A preference only.
    require(config.0 <= 3)
}

pub(crate) unsafe fn cuKernelGetParamInfo<D: Driver>(
    handle: CUkernel,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Result<()> {
    let function = kernel(handle)?.function::<D>(&context::current()?)?;
    // SAFETY: as this function's.
    unsafe { function::param(&function, index, offset, size) }
}
