//! Memory that host and device both touch: mapped and managed of the software device. Device
//! addresses are host addresses, so that both simply use it.

use outboard_abi::CUresult;
use outboard_front::backend::{
    Backend, ContextId, DevicePtr, HostPtr, Managed, Result, StreamId, UnifiedPtr,
};

use crate::cpu::Cpu;

impl Managed for Cpu {
    fn managed_alloc(&'static self, ctx: ContextId, bytes: u64) -> Result<UnifiedPtr> {
        if self.engines()?.len() == 1 {
            match self.memory_alloc(ctx, bytes) {
                // There may be more managed memory than the device has.
                Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {}
                outcome => return outcome.map(DevicePtr::unified),
            }
        }
        // Memory of one device is not another's; memory of the host is that of all.
        let bytes = usize::try_from(bytes).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let memory = self.host.alloc_untouched(self.engines()?, ctx, bytes)?;
        Ok(HostPtr::of(memory).unified())
    }

    fn managed_free(&'static self, ctx: ContextId, address: UnifiedPtr) -> Result<()> {
        if !self.host.has(address.0) {
            return self.memory_free(ctx, address.device());
        }
        // SAFETY: the front has found the allocation, which it has forgotten since.
        unsafe { self.host_free(ctx, address.host().pointer(), 0) }
    }

    fn managed_prefetch(
        &self,
        _ctx: ContextId,
        _address: UnifiedPtr,
        _bytes: u64,
        _to_host: bool,
        _: StreamId,
    ) -> Result<()> {
        // It is there already.
        Ok(())
    }
}
