//! Images.

use outboard_abi::{CUdevice_attribute as A, CUresult};
use outboard_wire::messages::*;

use super::{Handle, Worker};
use crate::generated::dispatch::ModuleCommands;
use crate::worker::answer::{Answer, Outcome};
use crate::worker::layouts::Layouts;
use crate::worker::modules;

impl Worker {
    fn load(&mut self, message: &ModuleLoad) -> Result<modules::Loaded, CUresult> {
        let parts = self.upload.take(&message.parts)?;
        let context = self.enter()?;
        self.objects.modules.check_new(message.module)?;
        let loaded = modules::load(self.table, &parts, &message.options);
        if let Ok(module) = loaded.outcome {
            self.objects.modules.insert(message.module, self.ctx, module);
            if Layouts::are_needed(self.table) {
                let sm = self.architecture(context.device);
                self.layouts.learn(message.module, &parts, sm);
            }
        }
        Ok(loaded)
    }

    /// The architecture of a device, such as 90.
    fn architecture(&self, ordinal: i32) -> u32 {
        let device = self.platform.devices.iter().find(|device| device.ordinal as i32 == ordinal);
        let value = |attribute: A| device.and_then(|device| device.attribute(attribute.0)).unwrap_or(0);
        let (major, minor) =
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        (value(major) * 10 + value(minor)) as u32
    }
}

impl ModuleCommands for Worker {
    fn image_data(&mut self, m: ImageData<'_>) -> Outcome {
        self.upload.extend(m.data)
    }

    fn module_load(&mut self, m: ModuleLoad, answer: Answer<ModuleLoad>) {
        match self.load(&m) {
            Ok(loaded) => {
                let status = loaded.outcome.map_or_else(|error| error.0, |_| 0);
                answer.ok(&ModuleLoadReply { status, log: loaded.log });
            }
            Err(error) => answer.error(error),
        }
    }

    fn module_unload(&mut self, m: ModuleUnload, answer: Answer<ModuleUnload>) {
        let context = self.enter();
        match context.and_then(|context| self.objects.modules.remove(m.module).map(|module| (context, module))) {
            Ok((context, module)) => {
                self.objects.functions.retain(|(_, of)| *of != m.module);
                self.objects.references.retain(|(_, of)| *of != m.module);
                self.objects.surface_references.retain(|(_, of)| *of != m.module);
                self.layouts.retain(|module| module != m.module);
                self.on_helper(
                    context,
                    answer,
                    move |table| module.unload(table),
                    |answer, outcome| answer.result(outcome.map(|()| ModuleUnloadReply {})),
                );
            }
            Err(error) => answer.error(error),
        }
    }

    fn module_functions(&mut self, m: ModuleFunctions, answer: Answer<ModuleFunctions>) {
        let module = self.enter().and_then(|_| self.objects.module(m.module));
        let outcome = module.and_then(|module| match self.table.cuModuleEnumerateFunctions {
            Some(_) => modules::names(self.table, module),
            None => Ok(self.layouts.names(m.module)),
        });
        answer.result(outcome.map(|names| ModuleFunctionsReply { names }));
    }

    fn module_function(&mut self, m: ModuleFunction<'_>, answer: Answer<ModuleFunction<'static>>) {
        let find = || {
            self.enter()?;
            self.objects.functions.check_new(m.function)?;
            let module = self.objects.module(m.module)?;
            let (function, mut info) = modules::function(self.table, module, m.name)?;
            if self.table.cuFuncGetParamInfo.is_none() {
                info.params = self.layouts.params(m.module, m.name);
            }
            self.objects.functions.insert(m.function, self.ctx, (Handle::new(function), m.module));
            Ok(ModuleFunctionReply { info })
        };
        let mut find = find;
        answer.result(find());
    }

    fn module_global(&mut self, m: ModuleGlobal<'_>, answer: Answer<ModuleGlobal<'static>>) {
        let module = self.enter().and_then(|_| self.objects.module(m.module));
        let outcome = module.and_then(|module| modules::global(self.table, module, m.name));
        if let Ok((address, bytes, _)) = outcome
            && self.allocations.check(address, bytes).is_err()
        {
            self.allocations.insert(address, bytes, self.ctx);
        }
        answer.result(outcome.map(|(address, bytes, managed)| ModuleGlobalReply { address, bytes, managed }));
    }
}
