//! Access between devices.

use core::ffi::c_int;
use outboard_wire::device_id::DeviceId;

use outboard_abi::{CUatomicOperation, CUdevice_P2PAttribute, CUresult};
use outboard_driver::call;
use outboard_wire::ContextId;
use outboard_wire::messages::*;

use super::current;
use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::PeerCommands;
use crate::worker::Worker;

/// How many operations one query may name; there are fewer.
const MOST_OPERATIONS: usize = 256;

impl Worker {
    fn enable(&mut self, peer: ContextId) -> Outcome {
        self.enter()?;
        let context = self.contexts.get(peer)?;
        call!(self.table, cuCtxEnablePeerAccess(current(&context), 0))?;
        self.peer_opens(peer)
    }

    fn disable(&mut self, peer: ContextId) -> Outcome {
        self.enter()?;
        let context = self.contexts.get(peer)?;
        call!(self.table, cuCtxDisablePeerAccess(current(&context)))?;
        self.peer_closes(peer)
    }

    fn way(&self, src: DeviceId, dst: DeviceId) -> Result<(c_int, c_int), CUresult> {
        Ok((self.offered.ordinal(src)? as i32, self.offered.ordinal(dst)? as i32))
    }

    fn attribute_of_way(&self, m: &PeerAttribute) -> Result<i32, CUresult> {
        let (src, dst) = self.way(m.src, m.dst)?;
        let mut value = 0;
        call!(
            self.table,
            cuDeviceGetP2PAttribute(&raw mut value, CUdevice_P2PAttribute(m.attribute), src, dst)
        )?;
        Ok(value)
    }

    fn atomics(&self, m: &PeerAtomics) -> Result<Vec<u32>, CUresult> {
        let (src, dst) = self.way(m.src, m.dst)?;
        if m.operations.is_empty() || m.operations.len() > MOST_OPERATIONS {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let operations: Vec<CUatomicOperation> =
            m.operations.iter().copied().map(CUatomicOperation).collect();
        let mut capabilities = vec![0; operations.len()];
        let (out, count) = (capabilities.as_mut_ptr(), operations.len() as u32);
        call!(
            self.table,
            cuDeviceGetP2PAtomicCapabilities(out, operations.as_ptr(), count, src, dst)
        )?;
        Ok(capabilities)
    }
}

impl PeerCommands for Worker {
    fn peer_enable(&mut self, m: PeerEnable, answer: Answer<PeerEnable>) {
        let outcome = self.enable(m.peer);
        answer.result(outcome.map(|()| PeerEnableReply {}));
    }

    fn peer_disable(&mut self, m: PeerDisable, answer: Answer<PeerDisable>) {
        let outcome = self.disable(m.peer);
        answer.result(outcome.map(|()| PeerDisableReply {}));
    }

    fn peer_attribute(&mut self, m: PeerAttribute, answer: Answer<PeerAttribute>) {
        answer.result(self.attribute_of_way(&m).map(|value| PeerAttributeReply { value }));
    }

    fn peer_atomics(&mut self, m: PeerAtomics, answer: Answer<PeerAtomics>) {
        answer.result(self.atomics(&m).map(|capabilities| PeerAtomicsReply { capabilities }));
    }
}
