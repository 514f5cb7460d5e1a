//! Calls of NCCL.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_driver::nccl::{Id, Nccl};
use outboard_driver::{Table, call};
use outboard_wire::collectives::{Collective, CommCall, ID_BYTES, element_bytes};
use outboard_wire::messages::*;
use outboard_wire::{ContextId, DevicePtr, ObjectId};

use super::Handle;
use crate::answer::{Answer, Outcome};
use crate::bounds::Kind;
use crate::collectives::{
    Collectives, Comm, Failure, Library, Prepared, Step, capture, result, run, tell,
};
use crate::generated::dispatch::CollectivesCommands;
use crate::worker::Worker;

/// More ranks than any communicator has: an answer from a hostile client is bounded by it.
const MOST_IDS: usize = 1 << 12;

/// `ncclNumOps`: further operations are a program's own.
const OPS: u32 = 5;

impl CollectivesCommands for Worker {
    fn collectives_release(&mut self, _: CollectivesRelease, answer: Answer<CollectivesRelease>) {
        self.on_nccl_helper(
            answer,
            |nccl, _| nccl.map(Nccl::release),
            |answer, told| match told {
                Ok(release) => answer.ok(&CollectivesReleaseReply { release, failure: "" }),
                Err(failure) => {
                    answer.ok(&CollectivesReleaseReply { release: 0, failure: &failure.sentence })
                }
            },
        );
    }

    fn collectives_id(&mut self, _: CollectivesId, answer: Answer<CollectivesId>) {
        let make = |nccl: Result<&Nccl, Failure>, _: &_| {
            let (nccl, mut id) = (nccl?, Id([0; ID_BYTES]));
            // SAFETY: a place for an id.
            match unsafe { nccl.ncclGetUniqueId(&raw mut id) } {
                result::SUCCESS => Ok(id.0),
                failed => Err(Failure::new(failed, nccl.sentence(failed))),
            }
        };
        self.on_nccl_helper(answer, make, |answer, made| match made {
            Ok(id) => answer.ok(&CollectivesIdReply { status: 0, failure: "", id: &id }),
            Err(Failure { result: status, sentence }) => {
                answer.ok(&CollectivesIdReply { status, failure: &sentence, id: &[] });
            }
        });
    }

    fn collectives_group(&mut self, m: CollectivesGroup, answer: Answer<CollectivesGroup>) {
        let group = match self.prepare(m.calls) {
            Ok(group) => group,
            Err(failure) => return answer.ok(&refusal(&failure)),
        };
        if let Some(replier) = self.client.replier() {
            let Collectives { library, comms, watch } = &self.collectives;
            watch.begin(library, comms, replier);
        }
        let work = move |nccl: Result<&Nccl, Failure>, table: &'static Table| {
            let outcome = nccl.and_then(|nccl| run(nccl, table, &group));
            outcome.inspect_err(|_| group.forget_made())
        };
        self.on_nccl_helper(answer, work, |answer, outcome| match outcome {
            Ok(values) => answer.ok(&CollectivesGroupReply { status: 0, failure: "", values }),
            Err(failure) => answer.ok(&refusal(&failure)),
        });
    }

    fn collectives_capture(&mut self, m: CollectivesCapture, answer: Answer<CollectivesCapture>) {
        let told = |answer: Answer<CollectivesCapture>, outcome: Result<(), Failure>| {
            let (status, failure) = match &outcome {
                Ok(()) => (0, ""),
                Err(failure) => (failure.result, failure.sentence.as_str()),
            };
            answer.ok(&CollectivesCaptureReply { status, failure });
        };
        let prepared = self.make_graph(m.graph).map_err(cuda).and_then(|()| {
            let native = self.graphs.graph(m.graph).map_err(cuda)?.native;
            Ok((self.prepare(m.calls)?, native))
        });
        match prepared {
            Ok((group, graph)) => {
                let work = move |nccl: Result<&Nccl, Failure>, table: &'static Table| {
                    nccl.and_then(|nccl| capture(nccl, table, group, graph))
                };
                self.on_nccl_helper(answer, work, told);
            }
            Err(failure) => told(answer, Err(failure)),
        }
    }

    fn collectives_posted(&mut self, m: CollectivesPosted) -> Outcome {
        let names: Vec<ObjectId> = m.calls.iter().map(CommCall::comm).collect();
        let outcome = self.prepare(m.calls).and_then(|group| {
            let library = self.nccl();
            let nccl = library.get()?;
            let done = run(nccl, self.table, &group);
            self.contexts.lose_current();
            done
        });
        if let Err(failure) = outcome {
            let comms = names.iter().filter_map(|name| self.collectives.find(*name).ok());
            if let Some(replier) = self.client.replier() {
                comms.for_each(|comm| {
                    tell(replier, &comm, failure.result, failure.sentence.clone());
                });
            }
        }
        Ok(())
    }
}

/// The answer of a group that was not made.
fn refusal(failure: &Failure) -> CollectivesGroupReply<'_> {
    CollectivesGroupReply { status: failure.result, failure: &failure.sentence, values: Vec::new() }
}

fn invalid(sentence: &str) -> Failure {
    Failure::new(result::INVALID_ARGUMENT, sentence)
}

fn cuda(error: CUresult) -> Failure {
    Failure::new(result::UNHANDLED_CUDA_ERROR, format!("CUDA says error {}", error.0))
}

impl Worker {
    /// The session's NCCL, which may open connections.
    fn nccl(&self) -> Arc<Library> {
        if let Some(registry) = self.client.registry() {
            self.collectives.library.has_sockets_from(registry);
        }
        Arc::clone(&self.collectives.library)
    }

    /// Does something with NCCL, or with the reason why there is none, on a helper thread.
    fn on_nccl_helper<M, T>(
        &self,
        answer: Answer<M>,
        work: impl FnOnce(Result<&Nccl, Failure>, &'static Table) -> Result<T, Failure> + Send + 'static,
        finish: impl FnOnce(Answer<M>, Result<T, Failure>) + Send + 'static,
    ) where
        M: Call + 'static,
    {
        let (library, table) = (self.nccl(), self.table);
        self.helpers.run_in_turn(move || {
            let outcome = work(library.get(), table);
            // The thread may serve another context next.
            let _ = call!(table, cuCtxSetCurrent(core::ptr::null_mut()));
            finish(answer, outcome);
        });
    }

    /// Looks up what the calls name.
    fn prepare(&mut self, calls: Vec<CommCall>) -> Result<Prepared, Failure> {
        let here = self.contexts.here();
        let comms = Arc::clone(&self.collectives.comms);
        let mut group = Prepared { steps: Vec::with_capacity(calls.len()), comms };
        let outcome = calls.into_iter().try_for_each(|call| {
            let step = self.step(call)?;
            group.steps.push(step);
            Ok(())
        });
        self.contexts.turn_to(here);
        if outcome.is_err() {
            group.forget_made();
        }
        outcome.map(|()| group)
    }

    fn step(&mut self, call: CommCall) -> Result<Step, Failure> {
        let find = |name| self.collectives.find(name);
        Ok(match call {
            CommCall::Init { comm, ctx, ranks, rank, ids, config } => {
                if ids.is_empty() || ids.len() > MOST_IDS {
                    return Err(invalid("there are no unique ids, or too many"));
                }
                let made = self.make_comm(comm, ctx)?;
                Step::Init { made, ranks, rank, ids, config }
            }
            CommCall::Split { comm, made, color, key, config } => {
                let comm = find(comm)?;
                let made = match made {
                    ObjectId::NONE => None,
                    made => Some(self.make_comm(made, comm.ctx)?),
                };
                Step::Split { comm, made, color, key, config }
            }
            CommCall::Shrink { comm, made, excluded, config, flags } => {
                let comm = find(comm)?;
                let made = self.make_comm(made, comm.ctx)?;
                Step::Shrink { comm, made, excluded, config, flags }
            }
            CommCall::Finalize { comm } => Step::Finalize(find(comm)?),
            CommCall::Destroy { comm } => Step::Destroy(self.end_comm(comm)?),
            CommCall::Abort { comm } => Step::Abort(self.end_comm(comm)?),
            CommCall::Collective(call) => self.collective(call)?,
            CommCall::Reduction { comm, datatype, immediate, address } => {
                let element = element_bytes(datatype).ok_or_else(|| invalid("no such type"))?;
                if immediate.is_empty() {
                    self.check_buffer(address, element)?;
                } else if immediate.len() as u64 != element {
                    return Err(invalid("the scalar is of another type"));
                }
                let (comm, address) = (self.collectives.find(comm)?, address.0);
                Step::Reduction { comm, datatype, immediate, address }
            }
            CommCall::ForgetReduction { comm, op } => {
                let comm = find(comm)?;
                known(comm.made.lock().ops.contains(&op), "operation")?;
                Step::ForgetReduction { comm, op }
            }
            CommCall::Register { comm, address, bytes } => {
                self.check_buffer(address, bytes)?;
                let comm = self.collectives.find(comm)?;
                Step::Register { comm, address: address.0, bytes }
            }
            CommCall::Deregister { comm, handle } => {
                let comm = find(comm)?;
                known(comm.made.lock().buffers.contains(&handle), "registered buffer")?;
                Step::Deregister { comm, handle }
            }
            CommCall::RegisterWindow { comm, address, bytes, flags } => {
                self.check_buffer(address, bytes)?;
                let comm = self.collectives.find(comm)?;
                Step::RegisterWindow { comm, address: address.0, bytes, flags }
            }
            CommCall::DeregisterWindow { comm, window } => {
                let comm = find(comm)?;
                known(comm.made.lock().windows.contains(&window), "window")?;
                Step::DeregisterWindow { comm, window }
            }
        })
    }

    fn collective(&mut self, call: Collective) -> Result<Step, Failure> {
        let comm = self.collectives.find(call.comm)?;
        let element = element_bytes(call.datatype).ok_or_else(|| invalid("no such type"))?;
        if call.function.reduces() && call.op >= OPS {
            known(comm.made.lock().ops.contains(&call.op), "operation")?;
        }
        let (own, ranks) = comm.members();
        let bytes = call.bytes(own, ranks, element);
        let (sent, received) = bytes.ok_or_else(|| invalid("the count is too large"))?;
        self.check_buffer(call.send, sent)?;
        self.check_buffer(call.recv, received)?;
        self.contexts.turn_to(comm.ctx);
        let stream = Handle::new(self.stream(call.stream).map_err(cuda)?);
        Ok(Step::Collective { comm, call, stream })
    }

    fn check_buffer(&self, address: DevicePtr, bytes: u64) -> Result<(), Failure> {
        let there = bytes == 0 || self.memory.allocations.check(address, bytes).is_ok();
        let sentence = || format!("there are no {bytes} bytes of memory at {:#x}", address.0);
        if there { Ok(()) } else { Err(invalid(&sentence())) }
    }

    /// A communicator that is about to be made, in a context.
    fn make_comm(&self, name: ObjectId, ctx: ContextId) -> Result<Arc<Comm>, Failure> {
        let context = self.contexts.get(ctx).map_err(cuda)?;
        if context.green.is_some() {
            let sentence = "the session has a share of the device's multiprocessors, which NCCL \
                            would not keep to: ask for the whole device";
            return Err(Failure::new(result::INVALID_USAGE, sentence));
        }
        let mut comms = self.collectives.comms.lock();
        if name == ObjectId::NONE || comms.contains_key(&name) {
            return Err(invalid("the communicator exists"));
        }
        Kind::Communicator.room(comms.len()).map_err(cuda)?;
        let comm = Arc::new(Comm::new(name, ctx, context));
        comms.insert(name, Arc::clone(&comm));
        if let Some(registry) = self.client.registry() {
            registry.has_communicators(true);
        }
        Ok(comm)
    }

    /// A communicator that nobody may name any more.
    fn end_comm(&self, name: ObjectId) -> Result<Arc<Comm>, Failure> {
        let mut comms = self.collectives.comms.lock();
        let ended = comms.remove(&name);
        if let Some(registry) = self.client.registry() {
            registry.has_communicators(!comms.is_empty());
        }
        ended.ok_or_else(|| invalid("the communicator is no more"))
    }
}

fn known(known: bool, what: &str) -> Result<(), Failure> {
    if known { Ok(()) } else { Err(invalid(&format!("the communicator has no such {what}"))) }
}
