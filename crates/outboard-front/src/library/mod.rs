//! Libraries and kernels: images that belong to no context, loaded into each context that uses
//! them.

pub(crate) mod kernel;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::{CUlibrary, CUresult};
use parking_lot::Mutex;

use crate::backend::{Backend, ContextId, JitLog, Result};
use crate::context::{self, Here};
use crate::image::Parts;
use crate::jit;
use crate::module::{self, Module};
use crate::process::{Front, Process};

pub(crate) use crate::parts::library::Library;
pub(crate) use kernel::{function, function_in, in_context};

impl Library {
    /// The library loaded into a context, now if it was not.
    pub(crate) fn module<B: Backend>(
        &self,
        process: &'static Process<B>,
        here: &Here,
    ) -> Result<Arc<Module>> {
        self.load(process, here, (&mut JitLog::default(), false))
    }

    fn load<B: Backend>(
        &self,
        process: &'static Process<B>,
        here: &Here,
        log: (&mut JitLog, bool),
    ) -> Result<Arc<Module>> {
        let mut modules = self.modules.lock();
        if let Some(module) = modules.get(&here.id) {
            return Ok(module.clone());
        }
        // After an unload the program may have taken the image away.
        if self.unloaded.load(Ordering::Acquire) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        // SAFETY: not unloaded, so that a program that promised to keep the image still does.
        let module = unsafe { module::load(process, here, &self.parts, &self.options, log, true) }?;
        modules.insert(here.id, module.clone());
        Ok(module)
    }

    /// The kernel of that name; its handle is the same each time.
    pub(crate) fn kernel(self: &Arc<Library>, front: &'static Front, name: &str) -> Result<u64> {
        let mut kernels = self.kernels.lock();
        if let Some(handle) = kernels.get(name) {
            return Ok(*handle);
        }
        let handle = kernel::add(front, self, name)?;
        kernels.insert(name.to_owned(), handle);
        Ok(handle)
    }
}

/// Forgets the modules of an ended context.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.libraries.table.for_each(|library| {
        library.modules.lock().remove(&id);
    });
    kernel::forget(front, id);
}

pub(crate) fn library(front: &'static Front, library: CUlibrary) -> Result<Arc<Library>> {
    crate::state::ready(front)?;
    front.libraries.table.get(library as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// # Safety
/// What `jit` was read from is still valid.
pub(crate) unsafe fn add<B: Backend>(
    process: &'static Process<B>,
    parts: Parts,
    jit: &jit::Options,
) -> Result<u64> {
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
        let loaded = library.load(process, &here, (&mut log, jit.has_error_log()));
        // SAFETY: by the contract above.
        unsafe { jit.places().write(&log) };
        if let Err(error) = loaded {
            process.libraries.table.remove(library.handle);
            return Err(error);
        }
    }
    Ok(library.handle)
}
