//! Collectives, transfers between two ranks, and operations that a program makes.

use core::ffi::{c_int, c_void};

use outboard_abi::CUstream;
use outboard_wire::collectives::{Collective, CommCall, Function};

use super::{Comm, enter, put};
use crate::backend::{Backend, DevicePtr};
use crate::collectives::group::{After, Entry};
use crate::collectives::{self, Failure, Outcome, alone, check, group};
use crate::process::Process;

/// What a function of NCCL is given, as far as it has it.
struct Given {
    function: Function,
    send: *const c_void,
    recv: *const c_void,
    count: usize,
    datatype: u32,
    op: u32,
    rank: c_int,
}

fn collective<B: Backend>(
    process: &'static Process<B>,
    given: &Given,
    comm: Comm,
    stream: CUstream,
) -> u32 {
    enter(process, given.function.name(), || {
        let comm = collectives::ready(process, comm as u64)?;
        let call = Collective {
            comm: comm.id(),
            function: given.function,
            send: DevicePtr(given.send as u64),
            recv: DevicePtr(given.recv as u64),
            count: given.count as u64,
            datatype: given.datatype,
            op: given.op,
            rank: given.rank,
            stream: check::stream(process, &comm, stream)?,
        };
        check::collective(process, &comm, &call)?;
        let call = CommCall::Collective(call);
        group::add(process, Entry { comm, call, after: After::Nothing })
    })
}

/// Defines functions of NCCL by what each gives.
macro_rules! collectives {
    ($($name:ident = $function:ident($($param:ident: $type:ty),*) { $($field:ident: $value:expr),* };)*) => {$(
        pub unsafe fn $name<B: Backend>(
            process: &'static Process<B>,
            $($param: $type,)*
            comm: Comm,
            stream: CUstream,
        ) -> u32 {
            let nothing = Given {
                function: Function::$function,
                send: core::ptr::null(),
                recv: core::ptr::null(),
                count: 0,
                datatype: 0,
                op: 0,
                rank: 0,
            };
            collective(process, &Given { $($field: $value,)* ..nothing }, comm, stream)
        }
    )*};
}

type In = *const c_void;
type Out = *mut c_void;

collectives! {
    ncclAllReduce = AllReduce(send: In, recv: Out, count: usize, datatype: u32, op: u32)
        { send: send, recv: recv, count: count, datatype: datatype, op: op };
    ncclBroadcast = Broadcast(send: In, recv: Out, count: usize, datatype: u32, root: c_int)
        { send: send, recv: recv, count: count, datatype: datatype, rank: root };
    ncclBcast = Broadcast(buffer: Out, count: usize, datatype: u32, root: c_int)
        { send: buffer, recv: buffer, count: count, datatype: datatype, rank: root };
    ncclReduce = Reduce(send: In, recv: Out, count: usize, datatype: u32, op: u32, root: c_int)
        { send: send, recv: recv, count: count, datatype: datatype, op: op, rank: root };
    ncclAllGather = AllGather(send: In, recv: Out, count: usize, datatype: u32)
        { send: send, recv: recv, count: count, datatype: datatype };
    ncclReduceScatter = ReduceScatter(send: In, recv: Out, count: usize, datatype: u32, op: u32)
        { send: send, recv: recv, count: count, datatype: datatype, op: op };
    ncclAlltoAll = AlltoAll(send: In, recv: Out, count: usize, datatype: u32)
        { send: send, recv: recv, count: count, datatype: datatype };
    ncclGather = Gather(send: In, recv: Out, count: usize, datatype: u32, root: c_int)
        { send: send, recv: recv, count: count, datatype: datatype, rank: root };
    ncclScatter = Scatter(send: In, recv: Out, count: usize, datatype: u32, root: c_int)
        { send: send, recv: recv, count: count, datatype: datatype, rank: root };
    ncclSend = Send(send: In, count: usize, datatype: u32, peer: c_int)
        { send: send, count: count, datatype: datatype, rank: peer };
    ncclRecv = Recv(recv: Out, count: usize, datatype: u32, peer: c_int)
        { recv: recv, count: count, datatype: datatype, rank: peer };
}

/// `ncclScalarDevice` and `ncclScalarHostImmediate`.
const ON_DEVICE: u32 = 0;
const IMMEDIATE: u32 = 1;

pub unsafe fn ncclRedOpCreatePreMulSum<B: Backend>(
    process: &'static Process<B>,
    op: *mut u32,
    scalar: *mut c_void,
    datatype: u32,
    residence: u32,
    comm: Comm,
) -> u32 {
    enter(process, "ncclRedOpCreatePreMulSum", || {
        let comm = collectives::ready(process, comm as u64)?;
        let bytes = check::element(datatype)?;
        if op.is_null() || scalar.is_null() {
            return Err(Failure::argument("the scalar or the place for the operation is null"));
        }
        let (immediate, address) = match residence {
            IMMEDIATE => {
                // SAFETY: the program's scalar, of that type.
                let scalar =
                    unsafe { std::slice::from_raw_parts(scalar.cast::<u8>(), bytes as usize) };
                (scalar.to_vec(), DevicePtr(0))
            }
            ON_DEVICE => {
                let address = DevicePtr(scalar as u64);
                check::device_memory(process, &comm, address, bytes)?;
                (Vec::new(), address)
            }
            other => {
                return Err(Failure::argument(format!("{other} is no ncclScalarResidence_t")));
            }
        };
        let call = CommCall::Reduction { comm: comm.id(), datatype, immediate, address };
        let made = alone(process, &comm, call)?;
        // SAFETY: the program's out parameter.
        unsafe { put(op, made as u32) }
    })
}

pub unsafe fn ncclRedOpDestroy<B: Backend>(
    process: &'static Process<B>,
    op: u32,
    comm: Comm,
) -> u32 {
    enter(process, "ncclRedOpDestroy", || {
        let comm = collectives::ready(process, comm as u64)?;
        destroy(process, &comm, op)
    })
}

fn destroy<B: Backend>(
    process: &'static Process<B>,
    comm: &std::sync::Arc<crate::parts::collectives::Comm>,
    op: u32,
) -> Outcome<()> {
    let call = CommCall::ForgetReduction { comm: comm.id(), op };
    alone(process, comm, call)?;
    // Another operation may get the number.
    comm.shapes.forget();
    Ok(())
}
