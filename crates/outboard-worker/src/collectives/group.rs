//! Makes the calls of a group.

use outboard_driver::nccl::{Comm as Real, Id, Nccl};
use outboard_driver::{Table, call};
use outboard_wire::collectives::{
    Collective, CommConfig, Function, differing_releases, release_name,
};

use super::config::Config;
use super::{Failure, Prepared, Step, result};
use crate::contexts::current;

/// A place for what a call gives.
#[derive(Default)]
struct Slot {
    comm: Made,
    value: u64,
    /// NCCL may look at its strings until the group has ended.
    config: Option<Config>,
}

/// A communicator that is being made.
struct Made(Real);

impl Default for Made {
    fn default() -> Made {
        Made(core::ptr::null_mut())
    }
}

/// Makes the calls, on this thread, and returns what each gives. Leaves another context current.
pub(crate) fn run(nccl: &Nccl, table: &Table, group: &Prepared) -> Result<Vec<u64>, Failure> {
    let steps = &group.steps;
    let mut slots: Vec<Slot> = steps.iter().map(|_| Slot::default()).collect();
    let grouped = steps.len() > 1;
    let check = |result| match result {
        result::SUCCESS => Ok(()),
        failed => Err(Failure::new(failed, nccl.sentence(failed))),
    };
    if grouped {
        // SAFETY: it takes nothing.
        check(unsafe { nccl.ncclGroupStart() })?;
    }
    let mut outcome = Ok(());
    for (step, slot) in steps.iter().zip(&mut slots) {
        if let Err(error) = call!(table, cuCtxSetCurrent(current(step.context()))) {
            let sentence = format!("the communicator's context cannot be used: error {}", error.0);
            outcome = Err(Failure::new(result::UNHANDLED_CUDA_ERROR, sentence));
            break;
        }
        outcome = step.is_there(nccl).and_then(|()| step.call(nccl, slot)).and_then(check);
        if outcome.is_err() {
            break;
        }
    }
    if grouped {
        // Also of a group that failed: NCCL drops its calls then.
        // SAFETY: it takes nothing.
        let ended = check(unsafe { nccl.ncclGroupEnd() });
        outcome = outcome.and(ended);
    }
    outcome?;
    Ok(steps.iter().zip(slots).map(|(step, slot)| step.done(nccl, &slot)).collect())
}

impl Step {
    /// Refuses what the server's release of NCCL does not have.
    fn is_there(&self, nccl: &Nccl) -> Result<(), Failure> {
        let name = match self {
            Step::Init { ids, .. } if ids.len() > 1 => "ncclCommInitRankScalable",
            Step::Init { .. } => "ncclCommInitRankConfig",
            Step::Split { .. } => "ncclCommSplit",
            Step::Shrink { .. } => "ncclCommShrink",
            Step::Finalize(_) => "ncclCommFinalize",
            Step::Destroy(_) => "ncclCommDestroy",
            Step::Abort(_) => "ncclCommAbort",
            Step::Collective { call, .. } => call.function.name(),
            Step::Reduction { .. } => "ncclRedOpCreatePreMulSum",
            Step::ForgetReduction { .. } => "ncclRedOpDestroy",
            Step::Register { .. } => "ncclCommRegister",
            Step::Deregister { .. } => "ncclCommDeregister",
            Step::RegisterWindow { .. } => "ncclCommWindowRegister",
            Step::DeregisterWindow { .. } => "ncclCommWindowDeregister",
        };
        if !nccl.lacks(name) {
            return Ok(());
        }
        let release = release_name(nccl.release());
        let sentence = format!("NCCL {release} of the GPU's server has no {name}: a later one has");
        Err(Failure::new(result::INVALID_USAGE, sentence))
    }

    /// NCCL's communicator, if it has one still.
    fn real(&self) -> Result<Real, Failure> {
        self.comm().real().ok_or_else(|| {
            Failure::new(result::INVALID_ARGUMENT, "the communicator has ended or failed to begin")
        })
    }

    fn call(&self, nccl: &Nccl, slot: &mut Slot) -> Result<u32, Failure> {
        if let Step::Init { ids, .. } = self
            && let Some(sentence) = differing_releases(nccl.release(), ids)
        {
            return Err(Failure::new(result::INVALID_USAGE, sentence));
        }
        let real = match self {
            Step::Init { .. } | Step::Destroy(_) | Step::Abort(_) => core::ptr::null_mut(),
            _ => self.real()?,
        };
        let made = &raw mut slot.comm.0;
        // SAFETY: communicators are NCCL's own and alive, buffers lie in the session's
        // allocations, and places for results stay until the group has ended.
        Ok(unsafe {
            match self {
                Step::Init { ranks, rank, ids, config, .. } => {
                    let config = keep(&mut slot.config, Some(config), nccl);
                    let mut ids: Vec<Id> = ids.iter().map(|id| Id(*id)).collect();
                    if let [id] = ids.as_slice() {
                        nccl.ncclCommInitRankConfig(made, *ranks, *id, *rank, config)
                    } else {
                        let (count, ids) = (ids.len() as i32, ids.as_mut_ptr());
                        nccl.ncclCommInitRankScalable(made, *ranks, *rank, count, ids, config)
                    }
                }
                Step::Split { color, key, config, .. } => {
                    let config = keep(&mut slot.config, config.as_ref(), nccl);
                    nccl.ncclCommSplit(real, *color, *key, made, config)
                }
                Step::Shrink { excluded, config, flags, .. } => {
                    let config = keep(&mut slot.config, config.as_ref(), nccl);
                    let mut excluded = excluded.clone();
                    let (count, excluded) = (excluded.len() as i32, excluded.as_mut_ptr());
                    nccl.ncclCommShrink(real, excluded, count, made, config, *flags)
                }
                Step::Finalize(_) => nccl.ncclCommFinalize(real),
                Step::Destroy(comm) => {
                    comm.end().map_or(result::SUCCESS, |real| nccl.ncclCommDestroy(real))
                }
                Step::Abort(comm) => comm.abort(nccl),
                Step::Collective { call, stream, .. } => collective(nccl, real, call, stream.get()),
                Step::Reduction { datatype, immediate, address, .. } => {
                    let op = (&raw mut slot.value).cast();
                    let mut scalar = Scalar::new(immediate);
                    match immediate.is_empty() {
                        true => {
                            let scalar = *address as *mut _;
                            nccl.ncclRedOpCreatePreMulSum(op, scalar, *datatype, ON_DEVICE, real)
                        }
                        false => {
                            let scalar = scalar.0.as_mut_ptr().cast();
                            nccl.ncclRedOpCreatePreMulSum(op, scalar, *datatype, IMMEDIATE, real)
                        }
                    }
                }
                Step::ForgetReduction { op, .. } => nccl.ncclRedOpDestroy(*op, real),
                Step::Register { address, bytes, .. } => {
                    let (buffer, handle) = (*address as *mut _, (&raw mut slot.value).cast());
                    nccl.ncclCommRegister(real, buffer, *bytes as usize, handle)
                }
                Step::Deregister { handle, .. } => nccl.ncclCommDeregister(real, *handle as *mut _),
                Step::RegisterWindow { address, bytes, flags, .. } => {
                    let (buffer, window) = (*address as *mut _, (&raw mut slot.value).cast());
                    nccl.ncclCommWindowRegister(real, buffer, *bytes as usize, window, *flags)
                }
                Step::DeregisterWindow { window, .. } => {
                    nccl.ncclCommWindowDeregister(real, *window as *mut _)
                }
            }
        })
    }

    /// The group is done: notes what NCCL has made, and returns what the client is told of it.
    fn done(&self, nccl: &Nccl, slot: &Slot) -> u64 {
        let noted = &mut self.comm().made.lock();
        match self {
            Step::Init { .. } | Step::Split { .. } | Step::Shrink { .. } => {
                let made = self.made().filter(|_| !slot.comm.0.is_null());
                return made.map_or(0, |made| made.begin(nccl, slot.comm.0));
            }
            Step::Reduction { .. } => drop(noted.ops.insert(slot.value as u32)),
            Step::ForgetReduction { op, .. } => drop(noted.ops.remove(op)),
            Step::Register { .. } => drop(noted.buffers.insert(slot.value)),
            Step::Deregister { handle, .. } => drop(noted.buffers.remove(handle)),
            Step::RegisterWindow { .. } => drop(noted.windows.insert(slot.value)),
            Step::DeregisterWindow { window, .. } => drop(noted.windows.remove(window)),
            _ => {}
        }
        slot.value
    }
}

/// `ncclScalarDevice` and `ncclScalarHostImmediate`.
const ON_DEVICE: u32 = 0;
const IMMEDIATE: u32 = 1;

/// A scalar of any type, as aligned as each asks.
struct Scalar([u64; 1]);

impl Scalar {
    fn new(bytes: &[u8]) -> Scalar {
        let mut word = [0; size_of::<u64>()];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Scalar([u64::from_ne_bytes(word)])
    }
}

/// The configuration as NCCL takes it, or null.
fn keep(
    slot: &mut Option<Config>,
    config: Option<&CommConfig>,
    nccl: &Nccl,
) -> *mut core::ffi::c_void {
    let config = config.map(|config| Config::new(config, nccl.release()));
    config.map_or(core::ptr::null_mut(), |config| slot.insert(config).pointer())
}

fn collective(nccl: &Nccl, comm: Real, call: &Collective, stream: outboard_abi::CUstream) -> u32 {
    let (send, recv) = (call.send.0 as *const _, call.recv.0 as *mut _);
    let (count, datatype, op, rank) = (call.count as usize, call.datatype, call.op, call.rank);
    // SAFETY: the buffers lie in the session's allocations, the stream is of the communicator's
    // context, and NCCL checks the rest.
    unsafe {
        match call.function {
            Function::AllReduce => {
                nccl.ncclAllReduce(send, recv, count, datatype, op, comm, stream)
            }
            Function::Broadcast => {
                nccl.ncclBroadcast(send, recv, count, datatype, rank, comm, stream)
            }
            Function::Reduce => {
                nccl.ncclReduce(send, recv, count, datatype, op, rank, comm, stream)
            }
            Function::AllGather => nccl.ncclAllGather(send, recv, count, datatype, comm, stream),
            Function::ReduceScatter => {
                nccl.ncclReduceScatter(send, recv, count, datatype, op, comm, stream)
            }
            Function::AlltoAll => nccl.ncclAlltoAll(send, recv, count, datatype, comm, stream),
            Function::Gather => nccl.ncclGather(send, recv, count, datatype, rank, comm, stream),
            Function::Scatter => nccl.ncclScatter(send, recv, count, datatype, rank, comm, stream),
            Function::Send => nccl.ncclSend(send, count, datatype, rank, comm, stream),
            Function::Recv => nccl.ncclRecv(recv, count, datatype, rank, comm, stream),
        }
    }
}
