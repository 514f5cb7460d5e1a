//! Modules: their kernels and variables.

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, DevicePtr, ObjectId, Result};
use outboard_wire::messages as msg;
use outboard_wire::platform::KernelInfo;

use super::Remote;

impl Remote {
    /// Ends a module.
    pub(super) fn module_unload(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.end_variables(id);
        let session = self.session()?;
        session.kernels().forget(id);
        if self.post_if_idle(ctx, &msg::ModuleUnloadIdle { module: id })? {
            return session.wait_for_nothing();
        }
        self.call(ctx, &msg::ModuleUnload { module: id }, |_| ())
    }

    /// Names of the kernels, which the server may have told of already.
    pub(super) fn module_functions(&self, ctx: ContextId, id: ObjectId) -> Result<Vec<String>> {
        if let Some(names) = self.session()?.kernels().names(id) {
            return Ok(names);
        }
        self.call_idle(ctx, &msg::ModuleFunctions { module: id }, |reply| reply.names)
    }

    /// A kernel, of which the server may have told already.
    pub(super) fn module_function(
        &self,
        ctx: ContextId,
        module: ObjectId,
        name: &str,
        function: ObjectId,
    ) -> Result<KernelInfo> {
        let session = self.session()?;
        match session.kernels().find(module, name) {
            Some(Some(info)) => {
                let message = msg::ModuleFunctionKnown { module, name, function };
                session.post_numbered(ctx, &message)?;
                return Ok(info);
            }
            Some(None) => return Err(CUresult::CUDA_ERROR_NOT_FOUND),
            None => {}
        }
        let message = msg::ModuleFunction { module, name, function };
        self.call(ctx, &message, |reply| reply.info)
    }

    /// Address, size of a variable, and whether it is managed memory.
    pub(super) fn module_global(
        &'static self,
        ctx: ContextId,
        module: ObjectId,
        name: &str,
    ) -> Result<(DevicePtr, u64, bool)> {
        let message = msg::ModuleGlobal { module, name };
        let found =
            self.call(ctx, &message, |reply| (reply.address, reply.bytes, reply.managed))?;
        let (address, bytes, managed) = found;
        if managed {
            self.add_variable(ctx, module, address.unified().range(bytes))?;
        }
        Ok(found)
    }
}
