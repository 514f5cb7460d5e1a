//! Modules: images loaded into a context.

use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

use outboard_abi::{CUdevice_attribute as A, CUdeviceptr, CUmodule, CUresult};
use outboard_wire::platform::Device;
use parking_lot::Mutex;

use crate::backend::{Backend, ContextId, Image, JitLog, JitOptions, Result};
use crate::border::put_if;
use crate::context::Here;
use crate::dropped;
use crate::function::{self, Function};
use crate::image::Parts;
use crate::memory;
use crate::process::{Front, Process};

pub(crate) use crate::parts::module::Module;

impl Module {
    /// The kernel of that name, looked up once.
    pub(crate) fn function<B: Backend>(
        self: &Arc<Module>,
        process: &'static Process<B>,
        here: &Here,
        name: &str,
    ) -> Result<Arc<Function>> {
        if let Some(function) = self.functions.lock().get(name) {
            return Ok(function.clone());
        }
        // No lock is held over the round trip; the second thread finds the first one's kernel and
        // drops its own.
        let function = function::find(process, here, self, name)?;
        let mut functions = self.functions.lock();
        let known = functions.entry(name.to_owned()).or_insert_with(|| function.clone()).clone();
        drop(functions);
        if !Arc::ptr_eq(&known, &function) {
            function::drop_handle(process, function.handle);
        }
        Ok(known)
    }

    /// Names of the kernels, in the image's order.
    pub(crate) fn names<B: Backend>(
        &self,
        process: &'static Process<B>,
        here: &Here,
    ) -> Result<Arc<[String]>> {
        if let Some(names) = &*self.names.lock() {
            return Ok(names.clone());
        }
        let names: Arc<[String]> =
            here.note(process.backend.module_functions(here.id, self.id()))?.into();
        *self.names.lock() = Some(names.clone());
        Ok(names)
    }
}

/// Loads an image into a context. `has_log`: the caller gets what the log says. `for_launch`: a
/// runtime that loads it does so for a launch. Old runtimes load all images at their start, of
/// which the program may launch nothing.
///
/// # Safety
/// As of [`Parts::slices`].
pub(crate) unsafe fn load<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    parts: &Parts,
    options: &JitOptions,
    (log, has_log): (&mut JitLog, bool),
    for_launch: bool,
) -> Result<Arc<Module>> {
    let make = |handle| Module {
        handle,
        context: here.context,
        ctx: here.id,
        functions: Mutex::new(HashMap::new()),
        names: Mutex::new(None),
        globals: Mutex::new(Vec::new()),
    };
    let module = process.modules.table.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let sm = architecture(here.device()?);
    // SAFETY: by the contract above.
    let slices = unsafe { parts.slices() };
    if let Err(error) = here.note(process.backend.module_load(
        here.id,
        module.id(),
        Image { parts: &slices, options, sm },
        log,
    )) {
        process.modules.table.remove(module.handle);
        // No runtime gives options: a worker does, for its client.
        let is_runtime = for_launch && parts.is_runtimes() && !has_log;
        let caller = dropped::Caller { is_runtime, has_log };
        dropped::note(process, here, error, &log.error, &caller);
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
    value(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10
        + value(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
}

/// Unloads a module and ends its functions' handles.
pub(crate) fn unload<B: Backend>(process: &'static Process<B>, handle: u64) -> Result<()> {
    let module = process.modules.table.remove(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    for function in module.functions.lock().values() {
        function::drop_handle(process, function.handle);
    }
    for address in module.globals.lock().iter() {
        memory::remove(process, address.unified(), |kind| {
            matches!(kind, memory::Kind::Global | memory::Kind::ManagedGlobal)
        });
    }
    crate::reference::forget_module(process, handle);
    process.note(module.ctx, process.backend.module_unload(module.ctx, module.id()))
}

/// Forgets the modules of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.modules.table.remove_where(|module| module.ctx == id);
    function::forget(front, id);
}

/// The module of a handle, and its context.
pub(crate) fn resolve(front: &'static Front, module: CUmodule) -> Result<(Here, Arc<Module>)> {
    crate::state::ready(front)?;
    let module =
        front.modules.table.get(module as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    Ok((module.live()?, module))
}

/// An image from a file of the program's machine.
pub(crate) fn read_file(name: &str) -> Result<Parts> {
    if name.is_empty() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let missing = |_| CUresult::CUDA_ERROR_FILE_NOT_FOUND;
    let kind = std::fs::metadata(name).map_err(missing)?.file_type();
    if kind.is_dir() {
        // NVIDIA's driver wants memory for the size that a folder seems to have.
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    if kind.is_fifo() || kind.is_socket() {
        // It has no size, and might never end.
        return Err(CUresult::CUDA_ERROR_FILE_NOT_FOUND);
    }
    let bytes = std::fs::read(name).map_err(missing)?;
    if bytes.len() < 4 {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    Ok(Parts::from_file(bytes))
}

/// Address and size of a global variable, which copies may then name.
///
/// # Safety
/// `out` and `bytes` are null or valid for a write.
pub(crate) unsafe fn global<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    module: &Module,
    name: &str,
    out: *mut CUdeviceptr,
    bytes: *mut usize,
) -> Result<()> {
    let (address, len, managed) =
        here.note(process.backend.module_global(here.id, module.id(), name))?;
    if memory::find(process, address.unified()).is_none() {
        let kind = if managed { memory::Kind::ManagedGlobal } else { memory::Kind::Global };
        memory::insert(process, here, address.unified(), len, kind);
        module.globals.lock().push(address);
    }
    // SAFETY: by the contract above.
    unsafe {
        put_if(out, address.0);
        put_if(bytes, len as usize);
    }
    Ok(())
}
