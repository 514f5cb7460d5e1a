//! Has NCCL capture what it would queue.

use outboard_abi::{
    CUcontext, CUctx_st, CUevent_flags_enum as EventFlags, CUgraph, CUgraph_st, CUresult, CUstream,
    CUstream_flags_enum as StreamFlags, CUstreamCaptureMode_enum as Mode,
};
use outboard_driver::nccl::Nccl;
use outboard_driver::{Table, call};

use super::{Failure, Prepared, Step, result, run};
use crate::contexts::current;
use crate::objects::Handle;

/// A stream of this module's own, for what a context's streams were to do.
struct OwnStream {
    context: Handle<CUctx_st>,
    stream: CUstream,
}

/// Streams that capture together; the first one began.
struct Streams {
    table: &'static Table,
    all: Vec<OwnStream>,
}

/// Puts what the calls of a group queue into a graph, as a node. Leaves another context current.
pub(crate) fn capture(
    nccl: &Nccl,
    table: &'static Table,
    mut group: Prepared,
    into: Handle<CUgraph_st>,
) -> Result<(), Failure> {
    let mut streams = Streams { table, all: Vec::new() };
    for step in &mut group.steps {
        let context = current(step.context());
        let Step::Collective { stream, .. } = step else {
            return Err(Failure::new(result::INVALID_USAGE, "graphs can only have collectives"));
        };
        *stream = Handle::new(streams.of(context)?);
    }
    let captured = streams.begin().map_err(cuda).and_then(|()| {
        let queued = run(nccl, table, &group);
        // Whatever came of it, the capture must end.
        let captured = streams.end();
        queued.and(captured.map_err(cuda))
    })?;
    let mut node = core::ptr::null_mut();
    let added = call!(
        table,
        cuGraphAddChildGraphNode(&raw mut node, into.get(), core::ptr::null(), 0, captured)
    );
    call!(table, cuGraphDestroy(captured)).and(added).map_err(cuda)
}

fn cuda(error: CUresult) -> Failure {
    let sentence = format!("collectives cannot be captured: CUDA says error {}", error.0);
    Failure::new(result::UNHANDLED_CUDA_ERROR, sentence)
}

impl Streams {
    /// The stream of a context.
    fn of(&mut self, context: CUcontext) -> Result<CUstream, Failure> {
        if let Some(known) = self.all.iter().find(|known| known.context.get() == context) {
            return Ok(known.stream);
        }
        let (mut stream, flags) = (core::ptr::null_mut(), StreamFlags::CU_STREAM_NON_BLOCKING.0);
        call!(self.table, cuCtxSetCurrent(context))
            .and_then(|()| call!(self.table, cuStreamCreate(&raw mut stream, flags)))
            .map_err(cuda)?;
        self.all.push(OwnStream { context: Handle::new(context), stream });
        Ok(stream)
    }

    fn begin(&self) -> Result<(), CUresult> {
        let Some((first, others)) = self.all.split_first() else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        // Other threads do as they please meanwhile.
        let mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
        call!(self.table, cuCtxSetCurrent(first.context.get()))?;
        call!(self.table, cuStreamBeginCapture_v2(first.stream, mode))?;
        others.iter().try_for_each(|other| self.order(first, other))
    }

    fn end(&self) -> Result<CUgraph, CUresult> {
        let Some((first, others)) = self.all.split_first() else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let joined = others.iter().try_for_each(|other| self.order(other, first));
        let mut graph = core::ptr::null_mut();
        call!(self.table, cuCtxSetCurrent(first.context.get()))?;
        call!(self.table, cuStreamEndCapture(first.stream, &raw mut graph))?;
        if let Err(error) = joined {
            let _ = call!(self.table, cuGraphDestroy(graph));
            return Err(error);
        }
        Ok(graph)
    }

    /// What `second` does next comes behind what `first` has done.
    fn order(&self, first: &OwnStream, second: &OwnStream) -> Result<(), CUresult> {
        let (table, mut event) = (self.table, core::ptr::null_mut());
        call!(table, cuCtxSetCurrent(first.context.get()))?;
        call!(table, cuEventCreate(&raw mut event, EventFlags::CU_EVENT_DISABLE_TIMING.0))?;
        let ordered = call!(table, cuEventRecord(event, first.stream))
            .and_then(|()| call!(table, cuCtxSetCurrent(second.context.get())))
            .and_then(|()| call!(table, cuStreamWaitEvent(second.stream, event, 0)));
        call!(table, cuEventDestroy_v2(event)).and(ordered)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for own in &self.all {
            let _ = call!(self.table, cuCtxSetCurrent(own.context.get()))
                .and_then(|()| call!(self.table, cuStreamDestroy_v2(own.stream)));
        }
    }
}
