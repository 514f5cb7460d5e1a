//! Contexts.

use std::sync::Arc;

use outboard_abi::{CUcontext, CUresult};
use outboard_driver::call;
use outboard_wire::DevicePtr;
use outboard_wire::messages::*;

use super::{Context, Handle, Wait, current};
use crate::answer::Answer;
use crate::arena::Gone;
use crate::budget::{Charge, What};
use crate::collectives::Comm;
use crate::generated::dispatch::ContextCommands;
use crate::opened::Place;
use crate::portion::Portion;
use crate::worker::Worker;

/// Bytes of a device that a process may hold when it ends without their being free at once: the
/// next program may need more. Natively all are.
const MUCH: u64 = 256 << 20;

/// Memory of a context that does not end with it.
struct Left {
    memory: Vec<DevicePtr>,
    blocks: Vec<Gone>,
    opened: Vec<Place>,
    comms: Vec<Arc<Comm>>,
}

impl Worker {
    fn open(&mut self, message: &ContextOpen) -> Result<(), CUresult> {
        self.contexts.check_new()?;
        let device = self.offered.ordinal(message.device)? as i32;
        if let Some(portion) = self.partitions.portion(device) {
            return self.open_portion(message, device, portion);
        }
        let mut real: CUcontext = core::ptr::null_mut();
        let ahead = if message.primary {
            self.contexts.take_kept(self.table, device, message.flags)
        } else {
            None
        };
        if let Some(ahead) = ahead {
            real = ahead.get();
        } else if message.primary {
            // Flags can be set while it is inactive; a failure leaves the default ones, which do.
            let _ = call!(self.table, cuDevicePrimaryCtxSetFlags_v2(device, message.flags));
            call!(self.table, cuDevicePrimaryCtxRetain(&raw mut real, device))?;
        } else {
            // Who makes contexts of its own has no use for the primary one.
            self.contexts.give_back_kept(self.table);
            call!(self.table, cuCtxCreate_v2(&raw mut real, message.flags, device))?;
            let mut popped = core::ptr::null_mut();
            call!(self.table, cuCtxPopCurrent_v2(&raw mut popped))?;
        }
        let (real, primary) = (Handle::new(real), message.primary);
        self.contexts.add(Context { real, device, primary, green: None });
        Ok(())
    }

    /// Opens a context that has only a part of its device. Those that are not the primary one share
    /// its memory and modules, which only shows if it is closed with the session's memory left in
    /// it.
    fn open_portion(
        &mut self,
        message: &ContextOpen,
        device: i32,
        portion: Portion,
    ) -> Result<(), CUresult> {
        if message.primary && self.contexts.take_kept(self.table, device, message.flags).is_none() {
            let _ = call!(self.table, cuDevicePrimaryCtxSetFlags_v2(device, message.flags));
            let mut primary: CUcontext = core::ptr::null_mut();
            call!(self.table, cuDevicePrimaryCtxRetain(&raw mut primary, device))?;
        }
        let green = portion.open(self.table, device).inspect_err(|_| {
            if message.primary {
                let _ = call!(self.table, cuDevicePrimaryCtxRelease_v2(device));
            }
        })?;
        self.contexts.add(Context {
            real: green.real,
            device,
            primary: message.primary,
            green: Some(green.context),
        });
        Ok(())
    }

    /// Forgets a context; its memory counts until the result is dropped.
    fn close(&mut self) -> Result<(Context, Left, Vec<Charge>), CUresult> {
        let ctx = self.contexts.here();
        let context = self.contexts.get(ctx)?;
        // The driver frees what a context has with it, but for what is another one's as well.
        let blocks = self.blocks_end();
        let memory = if context.green.is_some() && !context.primary {
            self.memory.allocations.of(ctx)
        } else {
            Vec::new()
        };
        let opened = self.memory.opened.forget(ctx);
        let comms = self.collectives.forget(ctx);
        let left = Left { memory, blocks, opened, comms };
        self.stop_looking();
        self.streams.forget(self.table, ctx);
        self.chains.end_context(self.table, ctx);
        self.contexts.remove();
        self.code.forget(ctx);
        self.textures.forget(ctx);
        self.partitions.forget(ctx);
        self.memory.forget(ctx);
        self.copies.forget(self.table, ctx);
        self.contexts.leave(self.table)?;
        Ok((context, left, self.memory.budget.release_all(ctx)))
    }

    /// Ends a context on a helper, and then has `finish` answer.
    fn end_context<M: Call + 'static>(
        &mut self,
        answer: Answer<M>,
        finish: impl FnOnce(Answer<M>, Result<(), CUresult>) + Send + 'static,
    ) {
        match self.close() {
            Ok((context, left, charges)) => {
                let library = Arc::clone(&self.collectives.library);
                self.on_helper(
                    context,
                    answer,
                    move |table| {
                        // NCCL's kernels and threads use what ends here.
                        for comm in left.comms {
                            let _ = library.get().map(|nccl| comm.abort(nccl));
                        }
                        for address in left.memory {
                            let _ = call!(table, cuMemFree_v2(address.0));
                        }
                        call!(table, cuCtxSetCurrent(core::ptr::null_mut()))?;
                        let ended = context
                            .green
                            .map_or(Ok(()), |green| call!(table, cuGreenCtxDestroy(green.get())));
                        let outcome = if context.primary {
                            // A reset ends it whatever its state and whoever holds it: this process
                            // serves one client.
                            call!(table, cuDevicePrimaryCtxReset_v2(context.device)).and_then(
                                |()| call!(table, cuDevicePrimaryCtxRelease_v2(context.device)),
                            )
                        } else {
                            match context.green {
                                Some(_) => ended,
                                None => call!(table, cuCtxDestroy_v2(current(&context))),
                            }
                        };
                        for block in left.blocks {
                            block.unmap(table);
                        }
                        for place in left.opened {
                            place.unmap(table);
                        }
                        drop(charges);
                        outcome
                    },
                    finish,
                )
            }
            Err(error) => answer.error(error),
        }
    }

    fn set_limit(&mut self, m: &ContextSetLimit) -> Result<(), CUresult> {
        let context = self.enter()?;
        let device = context.device as u32;
        let bytes = self.limit_bytes(device, m.limit, m.value);
        // The driver waits for the device.
        self.copies.unqueued().wait();
        let set = |worker: &mut Worker| {
            call!(
                worker.table,
                cuCtxSetLimit(outboard_abi::CUlimit_enum(m.limit), m.value as usize)
            )
        };
        let ((), charge) = self.hold(device, bytes, set)?;
        self.memory.budget.keep(self.contexts.here(), What::Limit(m.limit), charge);
        Ok(())
    }
}

impl ContextCommands for Worker {
    fn context_open(&mut self, message: ContextOpen, answer: Answer<ContextOpen>) {
        let outcome = self.open(&message);
        answer.result(outcome.map(|()| ContextOpenReply {}));
    }

    fn context_close(&mut self, _: ContextClose, answer: Answer<ContextClose>) {
        self.end_context(answer, |answer, outcome| {
            answer.result(outcome.map(|()| ContextCloseReply {}))
        });
    }

    fn context_leave(&mut self, _: ContextLeave, answer: Answer<ContextLeave>) {
        let holds_much = self.device_here().is_ok_and(|device| self.held(device) >= MUCH);
        // What kernels print is fetched when their work is done.
        let is_quiet =
            self.enter().is_ok() && self.streams.waits.is_quiet(self.table, self.contexts.here());
        if holds_much || self.code.prints() || !is_quiet {
            self.end_context(answer, |answer, outcome| {
                answer.result(outcome.map(|()| ContextLeaveReply {}))
            });
        } else {
            // The context ends with the session.
            answer.ok(&ContextLeaveReply {});
        }
    }

    fn context_synchronize(&mut self, _: ContextSynchronize, answer: Answer<ContextSynchronize>) {
        self.wait(Wait::Context, answer, |answer, outcome| {
            answer.result(outcome.map(|()| ContextSynchronizeReply {}));
        });
    }

    fn context_limit(&mut self, message: ContextLimit, answer: Answer<ContextLimit>) {
        let mut value = 0usize;
        let limit = outboard_abi::CUlimit_enum(message.limit);
        let outcome =
            self.enter().and_then(|_| call!(self.table, cuCtxGetLimit(&raw mut value, limit)));
        answer.result(outcome.map(|()| ContextLimitReply { value: value as u64 }));
    }

    fn context_set_limit(&mut self, message: ContextSetLimit, answer: Answer<ContextSetLimit>) {
        let outcome = self.set_limit(&message);
        answer.result(outcome.map(|()| ContextSetLimitReply {}));
    }
}
