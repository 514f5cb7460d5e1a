//! Kernels of libraries.

use core::ffi::{c_char, c_int};

use outboard_abi::{CUdevice, CUfunc_cache, CUfunction, CUfunction_attribute, CUkernel, CUlibrary};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::context;
use crate::function;
use crate::handles::Kind;
use crate::library::kernel::{Setting, in_context, keep, kernel};
use crate::process::Process;

pub unsafe fn cuKernelGetFunction<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUfunction,
    handle: CUkernel,
) -> Result<()> {
    let kernel = kernel(process, handle)?;
    let function = kernel.function(process, &context::current(process)?)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.handle as CUfunction) }
}

pub unsafe fn cuKernelGetLibrary<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUlibrary,
    handle: CUkernel,
) -> Result<()> {
    let kernel = kernel(process, handle)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, kernel.library.handle as CUlibrary) }
}

pub unsafe fn cuKernelGetName<B: Backend>(
    process: &'static Process<B>,
    out: *mut *const c_char,
    handle: CUkernel,
) -> Result<()> {
    require(!handle.is_null())?;
    if crate::handles::is(Kind::Function, handle as u64) {
        // SAFETY: as this function's; a function may stand in for a kernel.
        return unsafe {
            crate::calls::function::cuFuncGetName(process, out, handle as CUfunction)
        };
    }
    let kernel = kernel(process, handle)?;
    // The name lives as long as the kernel's handle: the table keeps it.
    // SAFETY: the program's out parameter.
    unsafe { put(out, kernel.name.as_ptr()) }
}

pub unsafe fn cuKernelGetAttribute<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    attribute: CUfunction_attribute,
    handle: CUkernel,
    dev: CUdevice,
) -> Result<()> {
    let (device, _) = crate::state::device(process, dev)?;
    let function = match context::current(process) {
        // This is the usual case, and the kernel is in this thread's cache.
        Ok(here) if here.context.device == device => in_context(process, handle as u64, &here)?,
        _ => kernel(process, handle)?.on_device(process, device)?,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.attribute(attribute)?) }
}

pub unsafe fn cuKernelSetAttribute<B: Backend>(
    process: &'static Process<B>,
    attribute: CUfunction_attribute,
    value: c_int,
    handle: CUkernel,
    dev: CUdevice,
) -> Result<()> {
    let (device, _) = crate::state::device(process, dev)?;
    let kernel = kernel(process, handle)?;
    // For every context of the device: those that have the kernel now, and those to come. None may
    // come in between.
    let mut settings = kernel.settings.lock();
    let loaded = kernel.functions.load_full();
    let loaded = loaded.iter().filter_map(|(_, handle)| function::by_id(process, *handle).ok());
    for function in loaded.filter(|function| function.context.device == device) {
        function.set_attribute(process, &function.live()?, attribute, value)?;
    }
    keep(&mut settings, Setting { device, attribute, value });
    Ok(())
}

pub unsafe fn cuKernelSetCacheConfig<B: Backend>(
    process: &'static Process<B>,
    handle: CUkernel,
    config: CUfunc_cache,
    dev: CUdevice,
) -> Result<()> {
    crate::state::device(process, dev)?;
    kernel(process, handle)?;
    // A preference only.
    require(config.0 <= 3)
}

pub unsafe fn cuKernelGetParamInfo<B: Backend>(
    process: &'static Process<B>,
    handle: CUkernel,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Result<()> {
    let function = kernel(process, handle)?.function(process, &context::current(process)?)?;
    // SAFETY: as this function's.
    unsafe { function::param(&function, index, offset, size) }
}
