//! Kernels of libraries: functions of whichever context they run in.

use std::ffi::CString;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use outboard_abi::{CUfunction, CUkernel, CUresult};
use parking_lot::Mutex;

use super::Library;
use crate::backend::{Backend, ContextId, Result};
use crate::context::{self, Here};
use crate::function::{self, Function};
use crate::handles::{self, Kind, Live};
use crate::process::{Front, Process};
use crate::recent;

pub(crate) use crate::parts::library::kernel::{Kernel, Setting};

impl Kernel {
    /// The kernel as a function of a context.
    pub(crate) fn function<B: Backend>(
        &self,
        process: &'static Process<B>,
        here: &Here,
    ) -> Result<Live<Function>> {
        if let Some(function) = Live::of(&self.recent).filter(|function| function.ctx == here.id) {
            return Ok(function);
        }
        let known =
            self.functions.load().iter().find(|(id, _)| *id == here.id).map(|(_, handle)| *handle);
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
            let set = of_device.map(|setting| {
                function.set_attribute(process, here, setting.attribute, setting.value)
            });
            let outcome = set.fold(Ok(()), Result::and);
            let all = known.iter().copied().chain([(here.id, function.handle)]);
            self.functions.store(Arc::new(all.collect()));
            outcome?;
        }
        function::by_id(process, function.handle)
    }

    /// The kernel as a function of some context on a device: what attributes are asked of.
    pub(crate) fn on_device<B: Backend>(
        &self,
        process: &'static Process<B>,
        device: usize,
    ) -> Result<Live<Function>> {
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
pub(crate) fn remove(front: &'static Front, handle: u64) {
    front.libraries.kernels.remove(handle);
}

/// Forgets the kernels' functions in an ended context.
pub(super) fn forget(front: &'static Front, id: ContextId) {
    front.libraries.kernels.for_each(|kernel| kernel.forget(id));
}

/// Keeps a setting in place of an earlier one: programs may set one before every launch.
pub(crate) fn keep(settings: &mut Vec<Setting>, new: Setting) {
    match settings.iter_mut().find(|old| old.device == new.device && old.attribute == new.attribute)
    {
        Some(old) => *old = new,
        None => settings.push(new),
    }
}

/// The function that the kernel of a handle is in the current context.
pub(crate) fn in_current_context<B: Backend>(
    process: &'static Process<B>,
    handle: u64,
) -> Result<Live<Function>> {
    in_context(process, handle, &context::current(process)?)
}

/// The function that the kernel of a handle is in a context.
pub(crate) fn in_context<B: Backend>(
    process: &'static Process<B>,
    handle: u64,
    here: &Here,
) -> Result<Live<Function>> {
    if let Some(function) = Live::<Function>::kept(handle)
        && function.ctx == here.id
    {
        return Ok(function);
    }
    let kernel = process.libraries.kernels.sign(handle);
    let function = process
        .libraries
        .kernels
        .look(handle)
        .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?
        .function(process, here)?;
    if let (Some(kernel), Some(own)) = (kernel, function::sign(process, function.handle))
        && function::by_id(process, function.handle).is_ok()
    {
        recent::keep(handle, [kernel, own], Arc::clone(&function));
    }
    Ok(function)
}

pub(crate) fn kernel(front: &'static Front, kernel: CUkernel) -> Result<Live<Kernel>> {
    crate::state::ready(front)?;
    front.libraries.kernels.look(kernel as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// The function that a program names: a `CUfunction`, or a `CUkernel` in its place, which means
/// that kernel in the current context.
pub(crate) fn function<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
) -> Result<Live<Function>> {
    crate::state::ready(process)?;
    let handle = function as u64;
    if handles::is(Kind::Kernel, handle) {
        return in_current_context(process, handle);
    }
    function::by_id(process, handle)
}

/// As [`function`], but a `CUkernel` means that kernel in the context given.
pub(crate) fn function_in<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    here: &Here,
) -> Result<Live<Function>> {
    let handle = function as u64;
    if handles::is(Kind::Kernel, handle) {
        return in_context(process, handle, here);
    }
    function::by_id(process, handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_abi::CUfunction_attribute;

    #[test]
    fn a_setting_takes_the_place_of_an_earlier_one() {
        let set = |device, attribute, value| Setting {
            device,
            attribute: CUfunction_attribute(attribute),
            value,
        };
        let mut settings = Vec::new();
        for value in 0..1000 {
            keep(&mut settings, set(0, 8, value));
            keep(&mut settings, set(1, 8, -value));
        }
        keep(&mut settings, set(0, 9, 50));
        let kept: Vec<_> =
            settings.iter().map(|kept| (kept.device, kept.attribute.0, kept.value)).collect();
        assert_eq!(kept, [(0, 8, 999), (1, 8, -999), (0, 9, 50)]);
    }
}
