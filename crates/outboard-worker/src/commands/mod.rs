//! The handlers of messages, one module per family.

mod array;
mod boxes;
mod collectives;
mod context;
mod copy;
mod device;
mod event;
mod files;
mod graph;
mod green;
mod ipc;
mod launch;
mod link;
mod managed;
mod memory;
mod message;
mod module;
mod nvml;
mod peer;
mod peer_link;
mod pool;
mod reference;
mod stream;
mod tensormap;
mod texture;
mod vmm;

use outboard_abi::{CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_wire::StreamId;
use outboard_wire::messages::Call;

use super::answer::Answer;
use super::contexts::{Context, current};
use super::objects::Handle;
use super::output::Printed;
use super::waits::Wait;
use crate::worker::Worker;

impl Worker {
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
        let (table, reporter) = (self.table, self.client.reporter().cloned());
        self.helpers.run_in_turn(move || {
            let outcome =
                call!(table, cuCtxSetCurrent(current(&context))).and_then(|()| work(table));
            if let Some(reporter) = reporter {
                reporter.report(Printed::Perhaps);
            }
            finish(answer, outcome);
        });
    }

    /// As [`Worker::on_helper`], for a call that returns only when the device has nothing left to
    /// do, and lets no other thread queue work meanwhile.
    fn on_helper_when_quiet<M, T>(
        &mut self,
        context: Context,
        answer: Answer<M>,
        work: impl FnOnce(&'static Table) -> Result<T, CUresult> + Send + 'static,
        finish: impl FnOnce(Answer<M>, Result<T, CUresult>) + Send + 'static,
    ) where
        M: Call + 'static,
        T: 'static,
    {
        if !self.copies.are_any_unqueued() {
            return self.on_helper(context, answer, work, finish);
        }
        self.when_quiet(context, move |entered| finish(answer, entered.and_then(work)));
    }

    /// Does something on a helper thread when the current context has nothing left to do and no
    /// copy is about to be queued.
    fn when_quiet(
        &mut self,
        context: Context,
        work: impl FnOnce(Result<&'static Table, CUresult>) + Send + 'static,
    ) {
        let (table, unqueued) = (self.table, self.copies.unqueued());
        // Whether there was a fault or not.
        self.wait_then(Wait::Context, move |_| {
            unqueued.alone(move || {
                work(call!(table, cuCtxSetCurrent(current(&context))).map(|()| table));
            });
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
        self.helpers.run_in_turn(move || finish(answer, work(table)));
    }

    /// The stream of that name, for work that is about to be queued in it.
    #[inline]
    fn stream(&mut self, name: StreamId) -> Result<CUstream, CUresult> {
        let context = self.enter()?;
        self.streams.queue(self.table, (self.contexts.here(), &context), name)
    }

    /// The stream of that name, to see how far it is.
    fn stream_so_far(&mut self, name: StreamId) -> Result<CUstream, CUresult> {
        let context = self.enter()?;
        self.streams.so_far(self.table, (self.contexts.here(), &context), name)
    }
}
