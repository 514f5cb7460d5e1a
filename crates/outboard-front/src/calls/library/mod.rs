//! Libraries and kernels.

mod kernel;

use core::ffi::{c_char, c_uint, c_void};
use std::sync::atomic::Ordering;

use outboard_abi::{
    CUdeviceptr, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule, CUresult,
};

use crate::backend::{Backend, Result, UnifiedPtr};
use crate::border::{put, put_if, require, slice, text};
use crate::context;
use crate::image;
use crate::jit;
use crate::library::{add, library};
use crate::module;
use crate::process::Process;

pub use kernel::*;

/// `CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE`: addresses of host functions, for devices
/// that could call them.
const HOST_TABLE: u32 = 0;
/// `CU_LIBRARY_BINARY_IS_PRESERVED`: the program keeps the image until the library is unloaded.
const BINARY_IS_PRESERVED: u32 = 1;

/// Whether the program keeps the image, from the options of a library.
///
/// # Safety
/// `options` and `values` are null or have `count` elements.
unsafe fn is_kept(
    options: *const CUlibraryOption,
    values: *const *mut c_void,
    count: c_uint,
) -> Result<bool> {
    // SAFETY: by the contract above.
    let (options, values) = unsafe {
        // The known options take effect by their presence: cuBLAS passes no values.
        let values = if values.is_null() { None } else { Some(slice(values, count as usize)?) };
        (slice(options, count as usize)?, values)
    };
    let mut kept = false;
    for (index, option) in options.iter().enumerate() {
        match option.0 {
            // No device here calls host functions, so the table is never read.
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
        (
            jit::Options::read(jit_count, jit_options, jit_values)?,
            is_kept(options, values, count)?,
            text(name)?,
        )
    };
    // There is no memory of the program's to keep.
    require(!kept)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, add(process, module::read_file(name)?, &jit)? as CUlibrary) }
}

pub unsafe fn cuLibraryUnload<B: Backend>(
    process: &'static Process<B>,
    handle: CUlibrary,
) -> Result<()> {
    crate::state::ready(process)?;
    crate::capture::refuse_unsafe(process)?;
    let library =
        process.libraries.table.remove(handle as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    library.unloaded.store(true, Ordering::Release);
    for handle in std::mem::take(&mut *library.kernels.lock()).into_values() {
        crate::library::kernel::remove(process, handle);
    }
    let modules = std::mem::take(&mut *library.modules.lock());
    let outcomes = modules.into_values().map(|module| module::unload(process, module.handle));
    // All of them, whatever becomes of the others. A faulted context has nothing left to unload;
    // that is no failure of this call.
    outcomes
        .filter(|outcome| !outcome.is_err_and(crate::fault::is_sticky))
        .fold(Ok(()), Result::and)
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
    require(!out.is_null() || !bytes.is_null())?;
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
    // Functions that host and device both call need a device with `UNIFIED_FUNCTION_POINTERS`,
    // which none here reports.
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
    // The runtime asks before it has a context: its programs may use such variables before they use
    // the device.
    let here = context::current_or_first(process)?;
    let module = library.module(process, &here)?;
    let mut address = 0;
    // SAFETY: the program's string and out parameters.
    unsafe {
        module::global(process, &here, &module, text(name)?, &raw mut address, bytes)?;
        // Only managed variables are found.
        let managed = crate::memory::find(process, UnifiedPtr(address))
            .is_some_and(|(_, _, allocation)| allocation.kind.is_managed());
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
