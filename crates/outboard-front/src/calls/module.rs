//! Modules.

use core::ffi::{c_char, c_uint, c_void};

use outboard_abi::{CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode};

use crate::backend::{Backend, JitLog, Result};
use crate::border::{put, require, text};
use crate::context;
use crate::image::{self, Parts};
use crate::jit;
use crate::module::{global, load, read_file, resolve, unload};
use crate::process::Process;

/// # Safety
/// As of `cuModuleLoadDataEx`.
unsafe fn load_image<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmodule,
    parts: &Parts,
    count: c_uint,
    options: *const CUjit_option,
    values: *mut *mut c_void,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null())?;
    let mut log = JitLog::default();
    // SAFETY: the program's options.
    let jit = unsafe { jit::Options::read(count, options, values) }?;
    // SAFETY: the program's image, valid during this call.
    let loaded =
        unsafe { load(process, &here, parts, &jit.given, (&mut log, jit.has_error_log()), false) };
    // SAFETY: as read above.
    unsafe {
        jit.places().write(&log);
        put(out, loaded?.handle as CUmodule)
    }
}

pub unsafe fn cuModuleLoadDataEx<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmodule,
    data: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Result<()> {
    // SAFETY: the program's image and options.
    unsafe { load_image(process, out, &image::locate(data)?, count, options, values) }
}

pub unsafe fn cuModuleLoadData<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmodule,
    data: *const c_void,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        cuModuleLoadDataEx(process, out, data, 0, core::ptr::null_mut(), core::ptr::null_mut())
    }
}

pub unsafe fn cuModuleLoadFatBinary<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmodule,
    data: *const c_void,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuModuleLoadData(process, out, data) }
}

pub unsafe fn cuModuleLoad<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmodule,
    name: *const c_char,
) -> Result<()> {
    context::current(process)?;
    // The file is the client's: a server never opens a file by a client's name for it.
    // SAFETY: the program's string.
    let parts = read_file(unsafe { text(name) }?)?;
    // SAFETY: no options are passed.
    unsafe { load_image(process, out, &parts, 0, core::ptr::null(), core::ptr::null_mut()) }
}

pub unsafe fn cuModuleUnload<B: Backend>(
    process: &'static Process<B>,
    module: CUmodule,
) -> Result<()> {
    crate::state::ready(process)?;
    crate::capture::refuse_unsafe(process)?;
    unload(process, module as u64)
}

pub unsafe fn cuModuleGetFunction<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> Result<()> {
    let (here, module) = resolve(process, module)?;
    // SAFETY: the program's string.
    let name = unsafe { text(name) }?;
    require(!out.is_null() && !name.is_empty())?;
    let function = module.function(process, &here, name)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.handle as CUfunction) }
}

pub unsafe fn cuModuleGetFunctionCount<B: Backend>(
    process: &'static Process<B>,
    count: *mut c_uint,
    module: CUmodule,
) -> Result<()> {
    let (here, module) = resolve(process, module)?;
    // SAFETY: the program's out parameter.
    unsafe { put(count, module.names(process, &here)?.len() as c_uint) }
}

pub unsafe fn cuModuleEnumerateFunctions<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUfunction,
    count: c_uint,
    module: CUmodule,
) -> Result<()> {
    let (here, module) = resolve(process, module)?;
    require(!out.is_null())?;
    for (index, name) in module.names(process, &here)?.iter().take(count as usize).enumerate() {
        let function = module.function(process, &here, name)?;
        // SAFETY: the program gives `count` elements.
        unsafe { put(out.add(index), function.handle as CUfunction) }?;
    }
    Ok(())
}

pub unsafe fn cuModuleGetGlobal_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: *mut usize,
    module: CUmodule,
    name: *const c_char,
) -> Result<()> {
    let (here, module) = resolve(process, module)?;
    // SAFETY: the program's string.
    let name = unsafe { text(name) }?;
    require(!out.is_null() || !bytes.is_null())?;
    // SAFETY: as this function's.
    unsafe { global(process, &here, &module, name, out, bytes) }
}

pub unsafe fn cuModuleGetLoadingMode<B: Backend>(
    process: &'static Process<B>,
    mode: *mut CUmoduleLoadingMode,
) -> Result<()> {
    // By it, the runtime loads what it launches, or all that it holds.
    let found = match crate::state::ready(process)?.settings.loads_eagerly {
        true => CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING,
        false => CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(mode, found) }
}
