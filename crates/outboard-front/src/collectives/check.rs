//! Checks of what a program passes to NCCL.

use outboard_abi::CUstream;
use outboard_wire::collectives::{Collective, element_bytes};

use super::{Failure, Outcome};
use crate::backend::{Backend, DevicePtr, ObjectId, StreamId};
use crate::parts::collectives::Comm;
use crate::process::{Front, Process};
use crate::stream::{self, LEGACY, PER_THREAD};
use crate::{capture, memory};

/// `ncclMaxRedOp`: further numbers than those of `nccl.h` are of operations that a program has made.
const MOST_OPS: u32 = 0x7fff_ffff;

/// Bytes of an element of a type.
pub(crate) fn element(datatype: u32) -> Outcome<u64> {
    element_bytes(datatype)
        .ok_or_else(|| Failure::argument(format!("{datatype} is no ncclDataType_t")))
}

/// The stream in which a communicator is to work.
pub(crate) fn stream<B: Backend>(
    process: &'static Process<B>,
    comm: &Comm,
    named: CUstream,
) -> Outcome<StreamId> {
    let handle = named as u64;
    let here = comm.context.live()?;
    if handle == 0 || handle == LEGACY {
        // The default stream of the communicator's device, whichever is current.
        capture::refuse(process, &here, StreamId::LEGACY)?;
        return Ok(StreamId::LEGACY);
    }
    if handle == PER_THREAD {
        return Ok(StreamId::created(ObjectId(stream::default::of_thread(process, &here)?)));
    }
    // One that captures makes a node of what is called.
    let (of, stream) = stream::find(process, named)?;
    if of.id != comm.ctx {
        return Err(Failure::argument(
            "the stream is of another device or context than the communicator",
        ));
    }
    Ok(stream)
}

/// Checks a collective, but for its stream and what it is called by.
pub(crate) fn collective(front: &'static Front, comm: &Comm, call: &Collective) -> Outcome<()> {
    let element = element(call.datatype)?;
    if call.function.reduces() && call.op > MOST_OPS {
        return Err(Failure::argument(format!("{} is no ncclRedOp_t", call.op)));
    }
    let (own, ranks) = comm.members();
    if call.function.names_rank() && !(0..ranks).contains(&call.rank) {
        return Err(Failure::argument(format!(
            "rank {} is none of the communicator's {ranks}",
            call.rank
        )));
    }
    let bytes = call.bytes(own, ranks, element);
    let (sent, received) = bytes.ok_or_else(|| Failure::argument("the count is too large"))?;
    for (address, bytes) in [(call.send, sent), (call.recv, received)] {
        device_memory(front, comm, address, bytes)?;
    }
    Ok(())
}

/// Checks that so many bytes are device memory of the communicator's server.
pub(crate) fn device_memory(
    front: &'static Front,
    comm: &Comm,
    address: DevicePtr,
    bytes: u64,
) -> Outcome<()> {
    if bytes == 0 {
        return Ok(());
    }
    let found = memory::check_device(front, address, bytes);
    match found {
        Ok(of) if of.server == comm.ctx.server() && !of.kind.is_host() => Ok(()),
        Ok(of) if of.kind.is_host() => Err(Failure::argument(format!(
            "{:#x} is host memory; collectives work on device memory",
            address.0
        ))),
        Ok(_) => Err(Failure::argument(format!(
            "{:#x} is memory of a device of another server than the communicator's",
            address.0
        ))),
        Err(_) => Err(Failure::argument(format!(
            "there are no {bytes} bytes of device memory at {:#x}",
            address.0
        ))),
    }
}
