//! Attributes of streams, and batches of operations on memory.

use outboard_front::backend::{ContextId, MemoryOperation, Result, StreamId, Streams};

use super::{check, default};
use crate::cpu::{Cpu, lane};
use crate::work::Work;

impl Streams for Cpu {
    fn stream_set_attribute(
        &self,
        ctx: ContextId,
        stream: StreamId,
        attribute: u32,
        value: [u8; 64],
    ) -> Result<()> {
        check(outboard_abi::CUlaunchAttributeID_enum(attribute), &value)?;
        self.attributes.0.lock().entry(lane(ctx, stream)).or_default().insert(attribute, value);
        Ok(())
    }

    fn stream_attribute(
        &self,
        ctx: ContextId,
        stream: StreamId,
        attribute: u32,
    ) -> Result<[u8; 64]> {
        let set = self
            .attributes
            .0
            .lock()
            .get(&lane(ctx, stream))
            .and_then(|of| of.get(&attribute).copied());
        Ok(set.unwrap_or_else(|| default(outboard_abi::CUlaunchAttributeID_enum(attribute))))
    }

    fn stream_copy_attributes(&self, ctx: ContextId, dst: StreamId, src: StreamId) -> Result<()> {
        let mut all = self.attributes.0.lock();
        let of = all.get(&lane(ctx, src)).cloned().unwrap_or_default();
        all.insert(lane(ctx, dst), of);
        Ok(())
    }

    fn stream_batch(
        &'static self,
        ctx: ContextId,
        stream: StreamId,
        operations: &[MemoryOperation],
    ) -> Result<()> {
        let work = operations.iter().map(|operation| match *operation {
            MemoryOperation::Wait { address, value, wide, flags } => {
                self.wait_for_value(address, value, wide, flags)
            }
            MemoryOperation::Write { address, value, wide, .. } => {
                self.word(address.0, value, wide).map(Work::Write)
            }
            // Work of a stream is ordered, and all memory is coherent.
            MemoryOperation::Flush | MemoryOperation::Barrier { .. } => Ok(Work::Nothing),
        });
        let batch = Work::Batch(work.collect::<Result<_>>()?);
        self.scheduler.submit(ctx, lane(ctx, stream), batch, None).map(drop)
    }
}
