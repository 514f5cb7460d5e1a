//! Streams.

use outboard_abi::{
    CUlaunchAttributeID, CUresult, CUstreamBatchMemOpParams,
    CUstreamBatchMemOpParams_union_CUstreamMemOpMemoryBarrierParams_st as MemoryBarrier,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st as WaitValue,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1 as Value,
    CUstreamBatchMemOpType as Kind,
};
use outboard_driver::call;
use outboard_wire::DevicePtr;
use outboard_wire::launch::STREAM_ATTRIBUTES;
use outboard_wire::messages::*;

use super::{Handle, Wait};
use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::StreamCommands;
use crate::host_calls::HostFunction;
use crate::launch;
use crate::worker::Worker;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

impl StreamCommands for Worker {
    fn stream_create(&mut self, m: StreamCreate) -> Outcome {
        let context = self.enter()?;
        self.streams.check_new(m.stream)?;
        let mut stream = core::ptr::null_mut();
        call!(self.table, cuStreamCreateWithPriority(&raw mut stream, m.flags, m.priority))?;
        self.streams.add(self.contexts.here(), m.stream, stream);
        if context.green.is_some() && m.flags & NON_BLOCKING == 0 {
            self.streams.heeds_default(self.contexts.here(), m.stream, stream);
        }
        Ok(())
    }

    fn stream_destroy(&mut self, m: StreamDestroy) -> Outcome {
        let (context, ctx) = (self.enter()?, self.contexts.here());
        let stream = self.streams.remove(self.table, ctx, m.stream)?;
        self.copies.end_stream(self.table, (ctx, context), stream)
    }

    fn stream_synchronize(&mut self, m: StreamSynchronize, answer: Answer<StreamSynchronize>) {
        match self.stream_so_far(m.stream) {
            Ok(stream) => {
                self.wait(Wait::Stream(Handle::new(stream)), answer, |answer, outcome| {
                    answer.result(outcome.map(|()| StreamSynchronizeReply {}));
                })
            }
            Err(error) => answer.error(error),
        }
    }

    fn stream_query(&mut self, m: StreamQuery, answer: Answer<StreamQuery>) {
        let stream = self.stream_so_far(m.stream);
        let outcome = stream.and_then(|stream| call!(self.table, cuStreamQuery(stream)));
        self.client.report_copies();
        answer.result(outcome.map(|()| StreamQueryReply {}));
    }

    fn host_call(&mut self, m: HostCall) -> Outcome {
        let call = HostFunction::new((m.call, m.always), self.contexts.here(), &self.client)?;
        match self.stream(m.stream) {
            Ok(stream) => call.queue(self.table, stream),
            Err(error) => call.fail(error),
        }
    }

    fn stream_wait_event(&mut self, m: StreamWaitEvent) -> Outcome {
        let stream = self.stream(m.stream)?;
        let event = self.streams.event(m.event)?;
        call!(self.table, cuStreamWaitEvent(stream, event, m.flags))
    }

    fn stream_wait_value(&mut self, m: StreamWaitValue) -> Outcome {
        let stream = self.stream(m.stream)?;
        self.memory.allocations.check(m.address, if m.wide { 8 } else { 4 })?;
        if m.wide {
            call!(self.table, cuStreamWaitValue64_v2(stream, m.address.0, m.value, m.flags))
        } else {
            call!(self.table, cuStreamWaitValue32_v2(stream, m.address.0, m.value as u32, m.flags))
        }
    }

    fn stream_write_value(&mut self, m: StreamWriteValue) -> Outcome {
        let stream = self.stream(m.stream)?;
        self.memory.allocations.check(m.address, if m.wide { 8 } else { 4 })?;
        if m.wide {
            call!(self.table, cuStreamWriteValue64_v2(stream, m.address.0, m.value, m.flags))
        } else {
            call!(self.table, cuStreamWriteValue32_v2(stream, m.address.0, m.value as u32, m.flags))
        }
    }

    fn stream_set_attribute(&mut self, m: StreamSetAttribute, answer: Answer<StreamSetAttribute>) {
        let outcome = self.stream(m.stream).and_then(|stream| {
            let id = stream_attribute(m.attribute)?;
            let value = launch::attribute(m.attribute, m.value).value;
            call!(self.table, cuStreamSetAttribute(stream, id, &raw const value))
        });
        answer.result(outcome.map(|()| StreamSetAttributeReply {}));
    }

    fn stream_attribute(&mut self, m: StreamAttribute, answer: Answer<StreamAttribute>) {
        let outcome = self.stream(m.stream).and_then(|stream| {
            let id = stream_attribute(m.attribute)?;
            let mut value = launch::attribute(m.attribute, [0; 64]).value;
            call!(self.table, cuStreamGetAttribute(stream, id, &raw mut value))?;
            // SAFETY: a union of plain values, all bytes of which `pad` covers.
            Ok(unsafe { value.pad }.map(|byte| byte as u8))
        });
        answer.result(outcome.map(|value| StreamAttributeReply { value }));
    }

    fn stream_copy_attributes(
        &mut self,
        m: StreamCopyAttributes,
        answer: Answer<StreamCopyAttributes>,
    ) {
        let streams = self.stream(m.dst).and_then(|dst| Ok((dst, self.streams.get(m.src)?)));
        let outcome =
            streams.and_then(|(dst, src)| call!(self.table, cuStreamCopyAttributes(dst, src)));
        answer.result(outcome.map(|()| StreamCopyAttributesReply {}));
    }

    fn stream_batch(&mut self, m: StreamBatch) -> Outcome {
        let stream = self.stream(m.stream)?;
        if m.operations.len() > MOST_OPERATIONS {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut list =
            m.operations.iter().map(|o| self.operation(o)).collect::<Result<Vec<_>, _>>()?;
        call!(self.table, cuStreamBatchMemOp_v2(stream, list.len() as u32, list.as_mut_ptr(), 0))
    }
}

/// Operations in one batch; drivers take fewer than 256.
const MOST_OPERATIONS: usize = 255;

/// The attribute, if streams have it.
fn stream_attribute(attribute: u32) -> Result<CUlaunchAttributeID, CUresult> {
    if STREAM_ATTRIBUTES.contains(&attribute) {
        Ok(outboard_abi::CUlaunchAttributeID_enum(attribute))
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

impl Worker {
    /// One operation of a batch, its address checked.
    fn operation(
        &self,
        (kind, address, value, flags): &(u64, DevicePtr, u64, u64),
    ) -> Result<CUstreamBatchMemOpParams, CUresult> {
        let kind = outboard_abi::CUstreamBatchMemOpType_enum(*kind as u32);
        let bytes = match kind {
            Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32 | Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32 => 4,
            Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64 | Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64 => 8,
            Kind::CU_STREAM_MEM_OP_BARRIER | Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => 0,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let mut operation = CUstreamBatchMemOpParams { pad: [0; 6] };
        let flags = *flags as u32;
        if bytes > 0 {
            self.memory.allocations.check(*address, bytes)?;
            // The members for waiting and writing are laid out alike.
            operation.waitValue = WaitValue {
                operation: kind,
                address: address.0,
                __bindgen_anon_1: Value { value64: *value },
                flags,
                alias: 0,
            };
        } else if kind == Kind::CU_STREAM_MEM_OP_BARRIER {
            operation.memoryBarrier = MemoryBarrier { operation: kind, flags };
        } else {
            operation.operation = kind;
        }
        Ok(operation)
    }
}
