//! Access of a context to the memory of other devices.

use std::sync::Arc;

use outboard_abi::{CUdevice_P2PAttribute_enum as P2P, CUresult};
use outboard_front::backend::{ContextId, DeviceId, Peers, Result};
use outboard_simt::Engine;

use super::Asked;
use crate::cpu::Cpu;

/// `CUatomicOperationCapability`: signed, unsigned, without a result, of 32 and 64 bits.
const INTEGERS: u32 = 0b1_1111;
/// Signed, without a result, of 32 and 64 bits.
const FLOATS: u32 = 0b1_1101;
/// Integer operations come first in `CUatomicOperation`, up to compare-and-swap; then those on
/// floats.
const LAST_INTEGER: u32 = 9;
const FLOAT_ADD: u32 = 10;

impl Cpu {
    fn ordinal(&self, ctx: ContextId) -> Result<u32> {
        self.device_of(&self.context(ctx)?.engine)
    }

    /// Takes back what a context was allowed that ends now, and what others were allowed of it.
    pub(crate) fn forget_peers(&self, engines: &[Arc<Engine>], ctx: ContextId) {
        let is_of = |asked: &mut Asked| asked.who.0 == ctx || asked.whose.0 == ctx;
        let ended: Vec<Asked> = self.windows.asked.lock().extract_if(.., is_of).collect();
        for asked in ended {
            self.windows.close(engines, asked.who.1, asked.whose.1);
        }
    }
}

impl Peers for Cpu {
    fn peer_enable(&self, ctx: ContextId, peer: ContextId) -> Result<()> {
        let asked = Asked { who: (ctx, self.ordinal(ctx)?), whose: (peer, self.ordinal(peer)?) };
        self.windows.open(self.engines()?, asked.who.1, asked.whose.1);
        self.windows.asked.lock().push(asked);
        Ok(())
    }

    fn peer_disable(&self, ctx: ContextId, peer: ContextId) -> Result<()> {
        let mut all = self.windows.asked.lock();
        let at = all.iter().position(|asked| asked.who.0 == ctx && asked.whose.0 == peer);
        let asked = all.swap_remove(at.ok_or(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)?);
        drop(all);
        self.scheduler.wait_all(self.scheduler.pending(ctx));
        self.windows.close(self.engines()?, asked.who.1, asked.whose.1);
        Ok(())
    }

    fn peer_attribute(&self, from: DeviceId, to: DeviceId, attribute: u32) -> Result<i32> {
        self.engine(from)?;
        self.engine(to)?;
        match P2P(attribute) {
            P2P::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
            | P2P::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED => Ok(1),
            P2P::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
            | P2P::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED
            | P2P::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => Ok(0),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn peer_atomics(&self, from: DeviceId, to: DeviceId, operations: &[u32]) -> Result<Vec<u32>> {
        self.engine(from)?;
        self.engine(to)?;
        let capability = |operation: &u32| match *operation {
            ..=LAST_INTEGER => Ok(INTEGERS),
            FLOAT_ADD => Ok(FLOATS),
            // Least and greatest of floats are not atomic operations of PTX.
            11 | 12 => Ok(0),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        operations.iter().map(capability).collect()
    }
}

#[cfg(test)]
mod tests {
    use outboard_front::backend::Backend as _;

    use super::*;

    #[test]
    fn a_context_ends_whole_whatever_became_of_its_peers() {
        let (cpu, ctx, peer, gone) =
            (Cpu::get(), ContextId(7001), ContextId(7002), ContextId(7003));
        for ctx in [ctx, peer] {
            cpu.context_open(ctx, DeviceId::new(0), 0, false).unwrap();
        }
        let engine = cpu.context(peer).unwrap().engine.clone();
        let address = cpu.memory_alloc(ctx, 4096).unwrap();
        cpu.peer_enable(ctx, peer).unwrap();
        // One that ended between being looked up and being noted.
        cpu.windows.open(cpu.engines().unwrap(), 0, 0);
        cpu.windows.asked.lock().push(Asked { who: (ctx, 0), whose: (gone, 0) });
        assert!(engine.memory().range_of(address.0).is_some());
        cpu.context_close(ctx).unwrap();
        assert!(engine.memory().range_of(address.0).is_none(), "its memory is free");
        let is_of = |asked: &Asked| asked.who.0 == ctx || asked.whose.0 == ctx;
        assert!(
            !cpu.windows.asked.lock().iter().any(is_of)
                && !cpu.windows.open.lock().contains_key(&(0, 0))
        );
        assert_eq!(cpu.peer_disable(ctx, peer), Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED));
        cpu.context_close(peer).unwrap();
    }
}
