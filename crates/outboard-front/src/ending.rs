//! The end of a context, and of all that is in it.

use std::sync::atomic::Ordering;

use outboard_abi::CUresult;

use crate::backend::{Backend, ContextId, Result};
use crate::context::Context;
use crate::process::Process;
use crate::{
    array, capture, collectives, event, ipc, library, memory, module, peer, reference, stream,
    texture,
};

impl Context {
    /// Takes a user away from a primary context, which ends with the last one.
    pub(crate) fn release<B: Backend>(&self, process: &'static Process<B>) -> Result<()> {
        let mut users = self.users.lock();
        match *users {
            0 => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
            1 => {
                *users = 0;
                self.stop(process)
            }
            _ => {
                *users -= 1;
                Ok(())
            }
        }
    }

    /// Ends the back end's context and all objects in it.
    pub(crate) fn stop<B: Backend>(&self, process: &'static Process<B>) -> Result<()> {
        let id = ContextId(self.id.load(Ordering::Acquire));
        if id.0 == 0 {
            return Ok(());
        }
        self.storage.end(self.handle);
        self.id.store(0, Ordering::Release);
        capture::forget_context(process, id);
        collectives::forget(process, id);
        stream::forget(process, id);
        event::forget(process, id);
        module::forget(process, id);
        library::forget(process, id);
        array::forget(process, id);
        texture::forget(process, id);
        reference::forget(process, id);
        memory::forget(process, id);
        ipc::forget(process);
        peer::forget(process, id);
        let outcome = process.backend.context_close(id);
        self.fault.clear();
        if self.primary {
            // They were for the time that it was active.
            self.flags.store(0, Ordering::Relaxed);
        }
        outcome
    }
}
