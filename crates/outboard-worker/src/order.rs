//! The order between the default stream and blocking streams, in a session that has a part of the
//! multiprocessors.
//!
//! CUDA's default stream waits for what was queued before in every stream that is not made
//! non-blocking, and these wait for it. In green contexts NVIDIA's driver does not keep that order
//! (observed on an H200 with driver 580.159), so the worker keeps it by events, whenever work
//! follows from the one to the others.

use std::collections::HashMap;

use outboard_abi::{
    CUevent, CUevent_flags_enum, CUevent_st, CUresult, CUstream, CUstream_st, CUstreamCaptureStatus,
};
use outboard_driver::{Table, call};
use outboard_wire::{ContextId, StreamId};

use super::objects::Handle;

/// Events and waits for them, in one context.
trait Barrier {
    /// Makes later work in `after` wait for the work in `before`.
    fn put(&mut self, before: CUstream, after: CUstream) -> Result<(), CUresult>;

    /// Whether what is queued in a stream goes into a graph.
    fn is_captured(&self, stream: CUstream) -> bool;
}

/// The contexts of a session.
#[derive(Default)]
pub(super) struct Order {
    contexts: HashMap<ContextId, InContext>,
}

/// One context.
#[derive(Default)]
struct InContext {
    /// Is recorded anew for each wait.
    event: Option<Handle<CUevent_st>>,
    heeding: Heeding,
}

/// The streams that heed the default stream, by the client's names.
#[derive(Default)]
struct Heeding(HashMap<StreamId, Stream>);

struct Stream {
    stream: Handle<CUstream_st>,
    /// It has work for which the default stream does not wait yet.
    ahead: bool,
    /// The default stream has work for which it does not wait yet.
    behind: bool,
}

impl Heeding {
    /// Work is about to be queued in a stream of that name, 0 for the default stream.
    fn queue(&mut self, name: StreamId, barrier: &mut impl Barrier) -> Result<(), CUresult> {
        if name != StreamId::LEGACY {
            let Some(stream) = self.0.get_mut(&name) else { return Ok(()) };
            if stream.behind && !barrier.is_captured(stream.stream.get()) {
                barrier.put(core::ptr::null_mut(), stream.stream.get())?;
                stream.behind = false;
            }
            stream.ahead = true;
            return Ok(());
        }
        for stream in self.0.values_mut() {
            if stream.ahead && !barrier.is_captured(stream.stream.get()) {
                barrier.put(stream.stream.get(), core::ptr::null_mut())?;
                stream.ahead = false;
            }
            stream.behind = true;
        }
        Ok(())
    }
}

impl Order {
    /// A stream that heeds the default stream has been made.
    pub(super) fn opened(&mut self, ctx: ContextId, name: StreamId, stream: CUstream) {
        // Work that is already in the default stream comes first.
        let new = Stream { stream: Handle::new(stream), ahead: false, behind: true };
        self.contexts.entry(ctx).or_default().heeding.0.insert(name, new);
    }

    /// A stream is about to end. The default stream waits for what is left in it.
    pub(super) fn ending(
        &mut self,
        table: &Table,
        ctx: ContextId,
        name: StreamId,
    ) -> Result<(), CUresult> {
        let Some(context) = self.contexts.get_mut(&ctx) else { return Ok(()) };
        let Some(stream) = context.heeding.0.remove(&name) else { return Ok(()) };
        let mut events = Events { table, event: &mut context.event };
        if stream.ahead && !events.is_captured(stream.stream.get()) {
            events.put(stream.stream.get(), core::ptr::null_mut())?;
        }
        Ok(())
    }

    /// A context is about to end.
    pub(super) fn forget(&mut self, table: &Table, ctx: ContextId) {
        if let Some(event) = self.contexts.remove(&ctx).and_then(|context| context.event) {
            // Work that waits for it still waits for the recorded work.
            let _ = call!(table, cuEventDestroy_v2(event.get()));
        }
    }

    /// Work is about to be queued in a stream of the current context, 0 for the default stream.
    pub(super) fn queue(
        &mut self,
        table: &Table,
        ctx: ContextId,
        name: StreamId,
    ) -> Result<(), CUresult> {
        let Some(context) = self.contexts.get_mut(&ctx) else { return Ok(()) };
        context.heeding.queue(name, &mut Events { table, event: &mut context.event })
    }
}

struct Events<'a> {
    table: &'a Table,
    event: &'a mut Option<Handle<CUevent_st>>,
}

impl Barrier for Events<'_> {
    fn put(&mut self, before: CUstream, after: CUstream) -> Result<(), CUresult> {
        let event = match *self.event {
            Some(event) => event.get(),
            None => {
                let mut event: CUevent = core::ptr::null_mut();
                call!(
                    self.table,
                    cuEventCreate(&raw mut event, CUevent_flags_enum::CU_EVENT_DISABLE_TIMING.0)
                )?;
                self.event.insert(Handle::new(event)).get()
            }
        };
        call!(self.table, cuEventRecord(event, before))?;
        call!(self.table, cuStreamWaitEvent(after, event, 0))
    }

    fn is_captured(&self, stream: CUstream) -> bool {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let asked = call!(self.table, cuStreamIsCapturing(stream, &raw mut status));
        asked.is_ok() && status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Noted {
        put: Vec<(usize, usize)>,
        captured: Option<usize>,
    }

    impl Barrier for Noted {
        fn put(&mut self, before: CUstream, after: CUstream) -> Result<(), CUresult> {
            self.put.push((before as usize, after as usize));
            Ok(())
        }

        fn is_captured(&self, stream: CUstream) -> bool {
            self.captured == Some(stream as usize)
        }
    }

    /// What is waited for when work is queued in these streams, one after the other; streams are
    /// their own names, and there are 1 and 2.
    fn waits(names: &[u64], captured: Option<usize>) -> Vec<(usize, usize)> {
        let mut order = Order::default();
        for name in [1_usize, 2] {
            order.opened(ContextId(7), StreamId(name as u64), name as CUstream);
        }
        let mut noted = Noted { captured, ..Noted::default() };
        let heeding = &mut order.contexts.get_mut(&ContextId(7)).unwrap().heeding;
        names.iter().for_each(|name| heeding.queue(StreamId(*name), &mut noted).unwrap());
        noted.put
    }

    #[test]
    fn the_default_stream_waits_for_those_with_work_and_they_for_it() {
        assert_eq!(waits(&[0, 1, 1, 0, 0, 1, 2], None), [(0, 1), (1, 0), (0, 1), (0, 2)]);
        assert_eq!(waits(&[1, 1, 1], None), [(0, 1)], "streams do not wait for each other");
        assert_eq!(waits(&[0, 9, 0], None), [], "nor for those that heed nothing");
    }

    #[test]
    fn what_goes_into_a_graph_waits_for_nothing() {
        assert_eq!(waits(&[0, 1, 0, 2], Some(1)), [(0, 2)]);
    }
}
