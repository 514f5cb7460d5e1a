//! Kernels of libraries: functions of whichever context they run in.

use core::ffi::{c_char, c_int};
use std::ffi::CString;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use outboard_abi::{CUdevice, CUfunc_cache, CUfunction, CUfunction_attribute, CUkernel, CUlibrary, CUresult};
use parking_lot::Mutex;

use super::Library;
use crate::backend::{Backend, ContextId, Result};
use crate::border::{put, require};
use crate::context::{self, Here};
use crate::function::{self, Function};
use crate::handles::{Kind, Live};
use crate::process::{Front, Process};
use crate::recent;

/// A kernel of a library.
pub(crate) struct Kernel {
    handle: u64,
    library: Arc<Library>,
    name: CString,
    /// Its functions by context, each by its handle. Changed by whoever holds `settings`.
    functions: ArcSwap<Vec<(ContextId, u64)>>,
    /// The function that was asked for last: mostly there is one context.
    recent: ArcSwapOption<Function>,
    /// Attributes set for a device, for the contexts that will load the kernel later, in the order in which they were set first.
    settings: Mutex<Vec<Setting>>,
}

/// An attribute that was set.
struct Setting {
    device: usize,
    attribute: CUfunction_attribute,
    value: i32,
}

impl Kernel {
    /// The kernel as a function of a context.
    fn function<B: Backend>(&self, process: &'static Process<B>, here: &Here) -> Result<Live<Function>> {
        if let Some(function) = Live::of(&self.recent).filter(|function| function.ctx == here.id) {
            return Ok(function);
        }
        let known = self.functions.load().iter().find(|(id, _)| *id == here.id).map(|(_, handle)| *handle);
        if let Some(handle) = known {
            let function = function::by_id(process, handle)?;
            self.recent.store(Some(function.clone()));
            return Ok(function);
        }
        let name = self.name.to_str().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let function = self.library.module(process, here)?.function(process, here, name)?;
        let settings = self.settings.lock();
        let known = self.functions.load_full();
        if !known.iter().any(|(id, _)| *id == here.id) {
            // Before others find it: they must not launch it without.
            let of_device = settings.iter().filter(|setting| setting.device == here.context.device);
            let set = of_device.map(|setting| function.set_attribute(process, here, setting.attribute, setting.value));
            let outcome = set.fold(Ok(()), Result::and);
            let all = known.iter().copied().chain([(here.id, function.handle)]);
            self.functions.store(Arc::new(all.collect()));
            outcome?;
        }
        function::by_id(process, function.handle)
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
    fn on_device<B: Backend>(&self, process: &'static Process<B>, device: usize) -> Result<Live<Function>> {
        let here = match context::current(process) {
            Ok(here) if here.context.device == device => here,
            _ => context::primary(process, device)?.live()?,
        };
        self.function(process, &here)
    }
}

/// Makes a kernel, and returns its handle.
pub(super) fn add(front: &'static Front, library: &Arc<Library>, name: &str) -> Result<u64> {
    let name = CString::new(name).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let make = |handle| Kernel {
        handle,
        library: Arc::clone(library),
        name,
        functions: ArcSwap::default(),
        recent: ArcSwapOption::empty(),
        settings: Mutex::default(),
    };
    Ok(front.libraries.kernels.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?.handle)
}

/// Ends a kernel's handle.
pub(super) fn remove(front: &'static Front, handle: u64) {
    front.libraries.kernels.remove(handle);
}

/// Forgets what kernels are in a context that has ended.
pub(super) fn forget(front: &'static Front, id: ContextId) {
    front.libraries.kernels.for_each(|kernel| kernel.forget(id));
}

/// Keeps a setting in place of an earlier one: programs may set one before every launch.
fn keep(settings: &mut Vec<Setting>, new: Setting) {
    match settings.iter_mut().find(|old| old.device == new.device && old.attribute == new.attribute) {
        Some(old) => *old = new,
        None => settings.push(new),
    }
}

/// The function that the kernel of a handle is in the current context.
pub(crate) fn in_current_context<B: Backend>(process: &'static Process<B>, handle: u64) -> Result<Live<Function>> {
    in_context(process, handle, &context::current(process)?)
}

/// The function that the kernel of a handle is in a context.
pub(crate) fn in_context<B: Backend>(process: &'static Process<B>, handle: u64, here: &Here) -> Result<Live<Function>> {
    if let Some(function) = Live::<Function>::kept(handle)
        && function.ctx == here.id
    {
        return Ok(function);
    }
    let kernel = process.libraries.kernels.sign(handle);
    let function =
        process.libraries.kernels.look(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.function(process, here)?;
    if let (Some(kernel), Some(own)) = (kernel, function::sign(process, function.handle))
        && function::by_id(process, function.handle).is_ok()
    {
        recent::keep(handle, [kernel, own], Arc::clone(&function));
    }
    Ok(function)
}

pub(super) fn kernel(front: &'static Front, kernel: CUkernel) -> Result<Live<Kernel>> {
    crate::state::ready(front)?;
    front.libraries.kernels.look(kernel as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

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
    if crate::handles::is(Kind::Function, handle as u64) {
        // SAFETY: as this function's; a function may stand in for a kernel.
        return unsafe { function::cuFuncGetName(process, out, handle as CUfunction) };
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
        // Mostly so, and then this thread has it at hand.
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
    // For every context of the device: those that have the kernel now, and those to come. None may come in between.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_takes_the_place_of_an_earlier_one() {
        let set = |device, attribute, value| Setting { device, attribute: CUfunction_attribute(attribute), value };
        let mut settings = Vec::new();
        for value in 0..1000 {
            keep(&mut settings, set(0, 8, value));
            keep(&mut settings, set(1, 8, -value));
        }
        keep(&mut settings, set(0, 9, 50));
        let kept: Vec<_> = settings.iter().map(|kept| (kept.device, kept.attribute.0, kept.value)).collect();
        assert_eq!(kept, [(0, 8, 999), (1, 8, -999), (0, 9, 50)]);
    }
}
