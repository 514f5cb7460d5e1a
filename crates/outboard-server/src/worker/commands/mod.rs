//! What the worker does for each message, one module per family.

mod array;
mod boxes;
mod context;
mod copy;
mod device;
mod event;
mod graph;
mod green;
mod ipc;
mod launch;
mod link;
mod managed;
mod memory;
mod module;
mod nvml;
mod peer;
mod pool;
mod reference;
mod stream;
mod tensormap;
mod texture;
mod vmm;

use std::time::{Duration, Instant};

use outboard_abi::{CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_wire::messages::Call;

use super::Worker;
use super::answer::{Answer, Outcome};
use super::objects::{Context, Handle, current};

/// How long the dispatcher itself looks at work that is nearly done before it hands the wait to a helper, which costs more than this.
const GLANCE: Duration = Duration::from_micros(15);

/// What a wait is for.
#[derive(Clone, Copy)]
enum Wait {
    Context,
    Stream(Handle<outboard_abi::CUstream_st>),
    Event(Handle<outboard_abi::CUevent_st>),
}

impl Wait {
    /// `CUDA_ERROR_NOT_READY` if it would block.
    fn query(self, table: &Table) -> Outcome {
        match self {
            // The driver has no such question; the legacy stream alone does not answer for the others.
            Wait::Context => Err(CUresult::CUDA_ERROR_NOT_READY),
            Wait::Stream(stream) => call!(table, cuStreamQuery(stream.get())),
            Wait::Event(event) => call!(table, cuEventQuery(event.get())),
        }
    }

    fn block(self, table: &Table) -> Outcome {
        match self {
            Wait::Context => call!(table, cuCtxSynchronize()),
            Wait::Stream(stream) => call!(table, cuStreamSynchronize(stream.get())),
            Wait::Event(event) => call!(table, cuEventSynchronize(event.get())),
        }
    }
}

impl Worker {
    /// Waits for the device and then answers: here if that is soon, else on a helper thread.
    fn wait<M>(&mut self, wait: Wait, answer: Answer<M>, finish: impl FnOnce(Answer<M>, Outcome) + Send + 'static)
    where
        M: Call + 'static,
    {
        let context = match self.enter() {
            Ok(context) => context,
            Err(error) => return answer.error(error),
        };
        let until = Instant::now() + GLANCE;
        loop {
            match wait.query(self.table) {
                Err(CUresult::CUDA_ERROR_NOT_READY) if Instant::now() < until && !matches!(wait, Wait::Context) => {}
                Err(CUresult::CUDA_ERROR_NOT_READY) => break,
                outcome => {
                    // Only a wait makes the driver give back what pools have freed, not a question.
                    let outcome =
                        if self.stream_ordered { outcome.and_then(|()| wait.block(self.table)) } else { outcome };
                    self.tell();
                    return finish(answer, outcome);
                }
            }
        }
        self.on_helper(context, answer, move |table| wait.block(table), finish);
    }

    /// Makes a driver call that may block on a helper thread, and answers there.
    fn on_helper<M, T>(
        &self,
        context: Context,
        answer: Answer<M>,
        work: impl FnOnce(&'static Table) -> Result<T, CUresult> + Send + 'static,
        finish: impl FnOnce(Answer<M>, Result<T, CUresult>) + Send + 'static,
    ) where
        M: Call + 'static,
    {
        let (table, output, copies, replier) =
            (self.table, self.output.clone(), self.copies.clone(), self.replier.clone());
        self.helpers.run(move || {
            let outcome = call!(table, cuCtxSetCurrent(current(&context))).and_then(|()| work(table));
            if let Some(replier) = &replier {
                output.forward(replier);
                copies.tell(replier);
            }
            finish(answer, outcome);
        });
    }

    /// As [`Worker::on_helper`], for a call that needs no context.
    fn on_free_helper<M, T>(
        &self,
        answer: Answer<M>,
        work: impl FnOnce(&'static Table) -> Result<T, CUresult> + Send + 'static,
        finish: impl FnOnce(Answer<M>, Result<T, CUresult>) + Send + 'static,
    ) where
        M: Call + 'static,
    {
        let table = self.table;
        self.helpers.run(move || finish(answer, work(table)));
    }

    fn stream(&mut self, name: u64) -> Result<CUstream, CUresult> {
        self.enter()?;
        self.objects.stream(name)
    }
}
