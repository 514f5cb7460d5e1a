//! Images.

use std::borrow::Borrow;

use outboard_abi::{CUfunction, CUmodule, CUresult};
use outboard_driver::{Table, call};
use outboard_image::{takes_at_least, takes_at_most};
use outboard_wire::ObjectId;
use outboard_wire::messages::*;
use outboard_wire::notice::{KERNELS, Kernels};
use outboard_wire::types::{JitLog, JitOptions};

use super::Context;
use crate::answer::{Answer, Outcome};
use crate::budget::What;
use crate::generated::dispatch::ModuleCommands;
use crate::modules;
use crate::part::Part;
use crate::worker::Worker;

impl Worker {
    fn load<P: Borrow<Part>>(
        &mut self,
        module: ObjectId,
        parts: &[P],
        options: &JitOptions,
    ) -> Result<modules::Loaded, CUresult> {
        let context = self.enter()?;
        self.code.check_new(module)?;
        let sm = self.offered.architecture(context.device as u32);
        self.code.expect(parts, sm);
        // To compile may take seconds, which other threads' waits shall not.
        self.stop_looking();
        let loaded = self.load_counted(module, context.device as u32, parts, options);
        if let Ok(handle) = loaded.outcome {
            self.code.add(self.table, (self.contexts.here(), module, handle), parts, sm);
            self.tell_kernels(module, handle.handle());
        }
        Ok(loaded)
    }

    /// Loads an image. If the session has a limit, what the module takes counts, code and
    /// variables: what the device has less afterwards, but no more and no less than the image
    /// declares, since other sessions may allocate or free in the same moment.
    fn load_counted<P: Borrow<Part>>(
        &mut self,
        name: ObjectId,
        device: u32,
        parts: &[P],
        options: &JitOptions,
    ) -> modules::Loaded {
        // The driver waits for the device.
        self.copies.unqueued().wait();
        if !self.memory.budget.is_limited() {
            return modules::load(self.table, parts, options);
        }
        let before = self.left_on_device();
        let mut loaded = modules::load(self.table, parts, options);
        let most = parts.iter().map(|part| takes_at_most(part.borrow().bytes()));
        let most = most.fold(0, |sum: u64, part| sum.saturating_add(part.unwrap_or(u64::MAX)));
        let sm = self.offered.architecture(device);
        let least = parts
            .iter()
            .map(|part| takes_at_least(part.borrow().bytes(), sm))
            .fold(0, u64::saturating_add);
        let taken = before.saturating_sub(self.left_on_device()).max(least).min(most);
        if let Ok(module) = loaded.outcome
            && taken > 0
        {
            match self.hold(device, taken, |_| Ok(())) {
                Ok(((), charge)) => {
                    self.memory.budget.keep(self.contexts.here(), What::Module(name), charge)
                }
                Err(error) => {
                    let _ = module.unload(self.table);
                    loaded.outcome = Err(error);
                }
            }
        }
        loaded
    }

    /// Free bytes of the current device.
    fn left_on_device(&self) -> u64 {
        let (mut free, mut total) = (0usize, 0usize);
        let asked = call!(self.table, cuMemGetInfo_v2(&raw mut free, &raw mut total));
        asked.map_or(0, |()| free as u64)
    }

    /// Tells the client of the kernels of a new module, so that it need not ask for each.
    fn tell_kernels(&self, name: ObjectId, module: CUmodule) {
        let known = self.table.cuModuleEnumerateFunctions.is_some()
            && self.table.cuFuncGetParamInfo.is_some();
        if let Some(replier) = self.client.replier().filter(|_| known)
            && let Ok(kernels) = modules::described(self.table, module)
        {
            // Too long for a notice, it is asked for.
            let _ =
                replier.notice(KERNELS, |writer| writer.put(&Kernels { module: name, kernels }));
        }
    }

    /// Finds a kernel and gives it the client's name for it.
    fn find_function(
        &mut self,
        module: ObjectId,
        name: &str,
        function: ObjectId,
    ) -> Result<CUfunction, CUresult> {
        self.enter()?;
        self.code.check_new_function(function)?;
        let found = modules::function(self.table, self.code.module(module)?, name)?;
        self.hold_local(found)?;
        self.code.add_function(self.contexts.here(), function, (found, module));
        Ok(found)
    }

    /// A kernel is about to be used: if the session has a limit, its local memory counts. The
    /// driver sets aside as much as its most demanding kernel needs, for all threads that the
    /// device can have at once, and keeps it as long as the context.
    fn hold_local(&mut self, function: CUfunction) -> Outcome {
        if !self.memory.budget.is_limited() {
            return Ok(());
        }
        let (device, mut local) = (self.device_here()?, 0);
        let attribute = outboard_abi::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
        call!(self.table, cuFuncGetAttribute(&raw mut local, attribute, function))?;
        let bytes = self.stack_bytes(device, u64::try_from(local).unwrap_or(0));
        let before = self.memory.budget.kept(self.contexts.here(), What::Local);
        if bytes <= before {
            return Ok(());
        }
        let known = self.memory.budget.release(self.contexts.here(), What::Local);
        drop(known);
        match self.hold(device, bytes, |_| Ok(())) {
            Ok(((), charge)) => {
                self.memory.budget.keep(self.contexts.here(), What::Local, charge);
                Ok(())
            }
            Err(error) => {
                if before > 0
                    && let Ok(((), charge)) = self.hold(device, before, |_| Ok(()))
                {
                    self.memory.budget.keep(self.contexts.here(), What::Local, charge);
                }
                Err(error)
            }
        }
    }
}

impl Worker {
    /// Forgets a module; it only has to be unloaded, in its context.
    fn forget_module(
        &mut self,
        module: ObjectId,
    ) -> Result<(Context, impl FnOnce(&Table) -> Outcome + Send + use<>), CUresult> {
        let context = self.enter()?;
        let unloaded = self.code.remove(module)?;
        let charge = self.memory.budget.release(self.contexts.here(), What::Module(module));
        let unload = move |table: &Table| {
            let outcome = unloaded.unload(table);
            drop(charge);
            outcome
        };
        Ok((context, unload))
    }
}

impl ModuleCommands for Worker {
    fn image_data(&mut self, m: ImageData<'_>) -> Outcome {
        self.code.receive(m.data);
        Ok(())
    }

    fn module_load(&mut self, m: ModuleLoad, answer: Answer<ModuleLoad>) {
        let parts = self.code.take_parts(&m.parts);
        match parts.and_then(|parts| self.load(m.module, &parts, &m.options)) {
            Ok(loaded) => {
                let status = loaded.outcome.map_or_else(|error| error.0, |_| 0);
                answer.ok(&ModuleLoadReply { status, log: loaded.log });
            }
            Err(error) => answer.error(error),
        }
    }

    fn module_load_named(&mut self, m: ModuleLoadNamed, answer: Answer<ModuleLoadNamed>) {
        let kept = self.code.keeps_images();
        if m.parts.is_empty() {
            return answer.error(CUresult::CUDA_ERROR_INVALID_IMAGE);
        }
        if let Err(error) = self.code.check_arrived() {
            return answer.error(error);
        }
        let parts = match self.code.find(&m.parts) {
            Ok(parts) => parts,
            Err(missing) => {
                return answer.ok(&ModuleLoadNamedReply {
                    status: 0,
                    log: JitLog::default(),
                    missing,
                    kept,
                });
            }
        };
        let outcome = self.load(m.module, &parts, &m.options);
        self.code.forget_images();
        match outcome {
            Ok(loaded) => {
                let status = loaded.outcome.map_or_else(|error| error.0, |_| 0);
                answer.ok(&ModuleLoadNamedReply {
                    status,
                    log: loaded.log,
                    missing: Vec::new(),
                    kept,
                });
            }
            Err(error) => answer.error(error),
        }
    }

    fn image_complete(&mut self, m: ImageComplete) -> Outcome {
        self.code.complete(m.name);
        Ok(())
    }

    fn module_unload(&mut self, m: ModuleUnload, answer: Answer<ModuleUnload>) {
        match self.forget_module(m.module) {
            Ok((context, unload)) => {
                self.on_helper_when_quiet(context, answer, unload, |answer, outcome| {
                    answer.result(outcome.map(|()| ModuleUnloadReply {}));
                })
            }
            Err(error) => answer.error(error),
        }
    }

    fn module_unload_idle(&mut self, m: ModuleUnloadIdle) -> Outcome {
        let (context, unload) = self.forget_module(m.module)?;
        if self.streams.waits.is_quiet(self.table, self.contexts.here()) {
            return unload(self.table);
        }
        // Another thread of the client has queued work meanwhile.
        let on_its_way = self.memory.returning.begin();
        self.when_quiet(context, move |entered| {
            let _ = entered.and_then(unload);
            drop(on_its_way);
        });
        Ok(())
    }

    fn module_functions(&mut self, m: ModuleFunctions, answer: Answer<ModuleFunctions>) {
        let module = self.enter().and_then(|_| self.code.module(m.module));
        let outcome = module.and_then(|module| match self.table.cuModuleEnumerateFunctions {
            Some(_) => modules::names(self.table, module),
            None => Ok(self.code.layouts().names(m.module)),
        });
        answer.result(outcome.map(|names| ModuleFunctionsReply { names }));
    }

    fn module_function(&mut self, m: ModuleFunction<'_>, answer: Answer<ModuleFunction<'static>>) {
        let outcome = self.find_function(m.module, m.name, m.function).and_then(|function| {
            let mut info = modules::describe(self.table, function)?;
            if self.table.cuFuncGetParamInfo.is_none() {
                info.params = self.code.layouts().params(m.module, m.name);
            }
            Ok(ModuleFunctionReply { info })
        });
        answer.result(outcome);
    }

    fn module_function_known(&mut self, m: ModuleFunctionKnown<'_>) -> Outcome {
        self.find_function(m.module, m.name, m.function).map(drop)
    }

    fn module_global(&mut self, m: ModuleGlobal<'_>, answer: Answer<ModuleGlobal<'static>>) {
        let module = self.enter().and_then(|_| self.code.module(m.module));
        let outcome = module.and_then(|module| modules::global(self.table, module, m.name));
        if let Ok((address, bytes, _)) = outcome
            && self.memory.allocations.check(address, bytes).is_err()
        {
            self.memory.allocations.insert(address, bytes, self.contexts.here());
        }
        answer.result(outcome.map(|(address, bytes, managed)| ModuleGlobalReply {
            address,
            bytes,
            managed,
        }));
    }
}
