//! Waits and writes of words in a stream's order.

use outboard_abi::{
    CUresult, CUstream, CUstreamBatchMemOpParams,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st as WaitValue,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1 as Value,
    CUstreamBatchMemOpType as Kind, CUstreamWaitValue_flags, CUstreamWriteValue_flags,
};
use outboard_driver::{Table, call};
use outboard_wire::DevicePtr;

/// An operation on a word of staging memory, by its address on the device.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    /// Waits until the word is at least as large.
    WaitAtLeast(DevicePtr, u32),
    Write(DevicePtr, u32),
}

/// Queues operations in their order.
pub(crate) fn queue(
    table: &Table,
    stream: CUstream,
    operations: &[Operation],
) -> Result<(), CUresult> {
    let at_least = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ.0;
    let plain = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT.0;
    match operations {
        [] => Ok(()),
        [Operation::WaitAtLeast(address, value)] => {
            call!(table, cuStreamWaitValue32_v2(stream, address.0, *value, at_least))
        }
        [Operation::Write(address, value)] => {
            call!(table, cuStreamWriteValue32_v2(stream, address.0, *value, plain))
        }
        several => {
            let mut list: Vec<CUstreamBatchMemOpParams> = several
                .iter()
                .map(|operation| {
                    let (kind, address, value, flags) = match *operation {
                        Operation::WaitAtLeast(address, value) => {
                            (Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, at_least)
                        }
                        Operation::Write(address, value) => {
                            (Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, plain)
                        }
                    };
                    let mut params = CUstreamBatchMemOpParams { pad: [0; 6] };
                    // The members for waiting and writing are laid out alike.
                    params.waitValue = WaitValue {
                        operation: kind,
                        address: address.0,
                        __bindgen_anon_1: Value { value64: value.into() },
                        flags,
                        alias: 0,
                    };
                    params
                })
                .collect();
            call!(table, cuStreamBatchMemOp_v2(stream, list.len() as u32, list.as_mut_ptr(), 0))
        }
    }
}
