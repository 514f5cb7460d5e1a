//! Memory that host and device both touch: mapped and managed of the software device. Device addresses are host addresses, so that both
//! simply use it.

use outboard_abi::CUresult;
use outboard_front::backend::{Backend, ContextId, Managed, Result, Stream};

use crate::cpu::Cpu;

impl Managed for Cpu {
    fn managed_alloc(&'static self, ctx: ContextId, bytes: u64) -> Result<u64> {
        if self.engines()?.len() == 1 {
            return self.memory_alloc(ctx, bytes);
        }
        // Memory of one device is not another's; memory of the host is that of all.
        let bytes = usize::try_from(bytes).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.host_alloc(ctx, bytes, 0).map(|memory| memory as u64)
    }

    fn managed_free(&'static self, ctx: ContextId, address: u64) -> Result<()> {
        if self.engines()?.len() == 1 {
            return self.memory_free(ctx, address);
        }
        // SAFETY: the front has found the allocation, which it has forgotten since.
        unsafe { self.host_free(ctx, address as *mut u8, 0) }
    }

    fn managed_prefetch(&self, _ctx: ContextId, _address: u64, _bytes: u64, _to_host: bool, _: Stream) -> Result<()> {
        // It is there already.
        Ok(())
    }
}
