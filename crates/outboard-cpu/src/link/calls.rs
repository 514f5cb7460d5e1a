//! The linker.

use outboard_abi::CUresult;
use outboard_front::backend::{
    ContextId, Image, JitLog, JitOptions, LinkInput, Linking, ObjectId, Result,
};
use parking_lot::Mutex;

use super::Link;
use crate::cpu::Cpu;
use crate::device;
use crate::module::{self};

impl Linking for Cpu {
    fn link_create(&self, ctx: ContextId, link: ObjectId, options: &JitOptions) -> Result<()> {
        self.context(ctx)?;
        self.links.insert(link, Link { ctx, options: options.clone(), inputs: Mutex::default() });
        Ok(())
    }

    fn link_add(
        &self,
        _ctx: ContextId,
        link: ObjectId,
        input: LinkInput<'_>,
        log: &mut JitLog,
    ) -> Result<()> {
        let link = self.links.get(link)?;
        module::told(&link.options, log, |log| link.inputs.lock().add(&input, log))
            .inspect_err(|_| self.log(&log.error))
    }

    fn link_complete(&self, ctx: ContextId, link: ObjectId, log: &mut JitLog) -> Result<Vec<u8>> {
        let (context, link) = (self.context(ctx)?, self.links.get(link)?);
        let mut inputs = link.inputs.lock();
        if inputs.units.is_empty() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        inputs.take_spare();
        let texts: Vec<&str> = inputs.units.iter().map(|unit| unit.text.as_str()).collect();
        let image = outboard_image::linked_image(&texts, device::SM);
        // Loaded once and dropped: what does not link is an error now, not when the image is
        // loaded.
        let trial = Image { parts: &[&image], options: &link.options, sm: device::SM };
        module::load(&context, trial, log).inspect_err(|_| self.log(&log.error))?;
        Ok(image)
    }

    fn link_destroy(&self, _ctx: ContextId, link: ObjectId) -> Result<()> {
        self.links.remove(link).map(drop)
    }
}
