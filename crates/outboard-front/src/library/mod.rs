//! Libraries and kernels: images that belong to no context, loaded into each context that uses them.

mod kernel;

use core::ffi::{c_char, c_uint, c_void};
use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::{CUdeviceptr, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule, CUresult};
use parking_lot::Mutex;

use crate::backend::{Backend, ContextId, JitLog, JitOptions, Result};
use crate::border::{put, put_if, require, slice, text};
use crate::context::{self, Here};
use crate::handles::{Kind, Table};
use crate::image::{self, Parts};
use crate::jit;
use crate::module::{self, Module};
use crate::process::{Front, Process};

pub(crate) use kernel::{Kernel, in_context, in_current_context};
pub use kernel::{
    cuKernelGetAttribute, cuKernelGetFunction, cuKernelGetLibrary, cuKernelGetName, cuKernelGetParamInfo,
    cuKernelSetAttribute, cuKernelSetCacheConfig,
};

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

/// The libraries of a process and their kernels.
pub(crate) struct Libraries {
    table: Table<Library>,
    kernels: Table<Kernel>,
    /// What a library lacks has been said.
    said: AtomicBool,
}

impl Libraries {
    pub(crate) const fn new() -> Libraries {
        Libraries { table: Table::new(Kind::Library), kernels: Table::new(Kind::Kernel), said: AtomicBool::new(false) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count() + self.kernels.count()
    }
}

/// `CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE`: addresses of host functions, for devices that could call them.
const HOST_TABLE: u32 = 0;
/// `CU_LIBRARY_BINARY_IS_PRESERVED`: the program keeps the image until the library is unloaded.
const BINARY_IS_PRESERVED: u32 = 1;

impl Library {
    /// The library loaded into a context, now if it was not.
    fn module<B: Backend>(&self, process: &'static Process<B>, here: &Here) -> Result<Arc<Module>> {
        self.load(process, here, &mut JitLog::default())
    }

    fn load<B: Backend>(&self, process: &'static Process<B>, here: &Here, log: &mut JitLog) -> Result<Arc<Module>> {
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
        let module = module::load(process, here, &parts, &self.options, log)?;
        modules.insert(here.id, module.clone());
        Ok(module)
    }

    /// The kernel of that name; its handle is the same each time.
    fn kernel(self: &Arc<Library>, front: &'static Front, name: &str) -> Result<u64> {
        let mut kernels = self.kernels.lock();
        if let Some(handle) = kernels.get(name) {
            return Ok(*handle);
        }
        let handle = kernel::add(front, self, name)?;
        kernels.insert(name.to_owned(), handle);
        Ok(handle)
    }
}

/// Forgets what a context that has ended had loaded.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.libraries.table.for_each(|library| {
        library.modules.lock().remove(&id);
    });
    kernel::forget(front, id);
}

fn library(front: &'static Front, library: CUlibrary) -> Result<Arc<Library>> {
    crate::state::ready(front)?;
    front.libraries.table.get(library as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// # Safety
/// What `jit` was read from is still valid.
unsafe fn add<B: Backend>(process: &'static Process<B>, parts: Parts, jit: &jit::Options) -> Result<u64> {
    let make = |handle| Library {
        handle,
        parts,
        options: jit.given.clone(),
        unloaded: AtomicBool::new(false),
        modules: Mutex::default(),
        kernels: Mutex::default(),
    };
    let library = process.libraries.table.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    // Loading is lazy, but an image that no device here can run is an error of this call.
    if let Ok(here) = context::current(process) {
        let mut log = JitLog::default();
        let loaded = library.load(process, &here, &mut log);
        // SAFETY: by the contract above.
        unsafe { jit.places().write(&log) };
        if let Err(error) = loaded {
            process.libraries.table.remove(library.handle);
            if UNUSABLE.contains(&error) && here.device()?.is_software() {
                // Runtimes load when a kernel is launched, and libraries that launch do not always look.
                here.owe(error);
                say_once(process, &log.error);
            }
            return Err(error);
        }
    }
    Ok(library.handle)
}

/// Why a software device cannot run an image that a GPU may run.
const UNUSABLE: [CUresult; 3] = [
    CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUresult::CUDA_ERROR_INVALID_PTX,
    CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
];

/// Says on standard error what a library lacks, once in a process.
fn say_once(front: &'static Front, what: &str) {
    if !what.is_empty() && !front.libraries.said.swap(true, Ordering::Relaxed) {
        // Standard error may be closed.
        let _ = writeln!(std::io::stderr(), "outboard: {what}");
    }
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

pub unsafe fn cuLibraryLoadData<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUlibrary,
    data: *const c_void,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
    count: c_uint,
) -> Result<()> {
    crate::state::ready(process)?;
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
    unsafe { put(out, add(process, parts, &jit)? as CUlibrary) }
}

pub unsafe fn cuLibraryLoadFromFile<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUlibrary,
    name: *const c_char,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
    count: c_uint,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null())?;
    // SAFETY: the program's options and string.
    let (jit, kept, name) = unsafe {
        (jit::Options::read(jit_count, jit_options, jit_values)?, is_kept(options, values, count)?, text(name)?)
    };
    // There is no memory of the program's to keep.
    require(!kept)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, add(process, module::read_file(name)?, &jit)? as CUlibrary) }
}

pub unsafe fn cuLibraryUnload<B: Backend>(process: &'static Process<B>, handle: CUlibrary) -> Result<()> {
    crate::state::ready(process)?;
    crate::capture::refuse_unsafe(process)?;
    let library = process.libraries.table.remove(handle as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    library.unloaded.store(true, Ordering::Release);
    for handle in std::mem::take(&mut *library.kernels.lock()).into_values() {
        kernel::remove(process, handle);
    }
    let modules = std::mem::take(&mut *library.modules.lock());
    let outcomes = modules.into_values().map(|module| module::unload(process, module.handle));
    // All of them, whatever becomes of the others. A faulted context has nothing left to unload; that is no failure of this call.
    outcomes.filter(|outcome| !outcome.is_err_and(crate::fault::is_sticky)).fold(Ok(()), Result::and)
}

pub unsafe fn cuLibraryGetKernel<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUkernel,
    handle: CUlibrary,
    name: *const c_char,
) -> Result<()> {
    let library = library(process, handle)?;
    // SAFETY: the program's string.
    let name = unsafe { text(name) }?;
    require(!out.is_null() && !name.is_empty())?;
    // Whether there is such a kernel is known once the image is loaded somewhere.
    if let Ok(here) = context::current(process) {
        library.module(process, &here)?.function(process, &here, name)?;
    }
    // SAFETY: the program's out parameter.
    unsafe { put(out, library.kernel(process, name)? as CUkernel) }
}

pub unsafe fn cuLibraryGetModule<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmodule,
    handle: CUlibrary,
) -> Result<()> {
    let library = library(process, handle)?;
    let here = context::current(process)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, library.module(process, &here)?.handle as CUmodule) }
}

pub unsafe fn cuLibraryGetGlobal<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: *mut usize,
    handle: CUlibrary,
    name: *const c_char,
) -> Result<()> {
    let library = library(process, handle)?;
    let here = context::current(process)?;
    let module = library.module(process, &here)?;
    // SAFETY: the program's string and out parameters.
    unsafe { module::global(process, &here, &module, text(name)?, out, bytes) }
}

pub unsafe fn cuLibraryGetUnifiedFunction<B: Backend>(
    process: &'static Process<B>,
    out: *mut *mut c_void,
    handle: CUlibrary,
    name: *const c_char,
) -> Result<()> {
    library(process, handle)?;
    // SAFETY: the program's string.
    unsafe { text(name) }?;
    require(!out.is_null())?;
    // Functions that host and device both call need a device with `UNIFIED_FUNCTION_POINTERS`, which none here reports.
    Err(CUresult::CUDA_ERROR_NOT_FOUND)
}

pub unsafe fn cuLibraryGetManaged<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: *mut usize,
    handle: CUlibrary,
    name: *const c_char,
) -> Result<()> {
    let library = library(process, handle)?;
    // The runtime asks before it has a context: its programs may use such variables before they use the device.
    let here = context::current_or_first(process)?;
    let module = library.module(process, &here)?;
    let mut address = 0;
    // SAFETY: the program's string and out parameters.
    unsafe {
        module::global(process, &here, &module, text(name)?, &raw mut address, bytes)?;
        // Only managed variables are found.
        let managed =
            crate::memory::find(process, address).is_some_and(|(_, _, allocation)| allocation.kind.is_managed());
        if !managed {
            return Err(CUresult::CUDA_ERROR_NOT_FOUND);
        }
        put_if(out, address);
    }
    Ok(())
}

pub unsafe fn cuLibraryGetKernelCount<B: Backend>(
    process: &'static Process<B>,
    count: *mut c_uint,
    handle: CUlibrary,
) -> Result<()> {
    let library = library(process, handle)?;
    let here = context::current(process)?;
    // SAFETY: the program's out parameter.
    unsafe { put(count, library.module(process, &here)?.names(process, &here)?.len() as c_uint) }
}

pub unsafe fn cuLibraryEnumerateKernels<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUkernel,
    count: c_uint,
    handle: CUlibrary,
) -> Result<()> {
    let library = library(process, handle)?;
    let here = context::current(process)?;
    require(!out.is_null())?;
    let names = library.module(process, &here)?.names(process, &here)?;
    for (index, name) in names.iter().take(count as usize).enumerate() {
        // SAFETY: the program gives `count` elements.
        unsafe { put(out.add(index), library.kernel(process, name)? as CUkernel) }?;
    }
    Ok(())
}
