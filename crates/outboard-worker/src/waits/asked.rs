//! The object of a wait, as the driver can be queried about it.

use outboard_abi::{CUevent, CUevent_flags, CUresult, CUstream, CUstream_flags};
use outboard_driver::{Table, call};

use crate::answer::Outcome;
use crate::objects::Handle;

/// The object of a wait.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    Context,
    Stream(Handle<outboard_abi::CUstream_st>),
    Event(Handle<outboard_abi::CUevent_st>),
}

impl Wait {
    pub(super) fn name(self) -> &'static str {
        match self {
            Wait::Context => "context",
            Wait::Stream(_) => "stream",
            Wait::Event(_) => "event",
        }
    }

    /// Whether it is over. Of a context as a whole the driver has no question.
    pub(crate) fn query(self, table: &Table) -> Outcome {
        match self {
            Wait::Context => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            Wait::Stream(stream) => call!(table, cuStreamQuery(stream.get())),
            Wait::Event(event) => call!(table, cuEventQuery(event.get())),
        }
    }

    pub(super) fn block(self, table: &Table) -> Outcome {
        match self {
            Wait::Context => call!(table, cuCtxSynchronize()),
            Wait::Stream(stream) => call!(table, cuStreamSynchronize(stream.get())),
            Wait::Event(event) => call!(table, cuEventSynchronize(event.get())),
        }
    }
}

/// Something that the driver can be asked about.
pub(super) enum Part {
    /// All that is in the stream.
    Stream(Handle<outboard_abi::CUstream_st>),
    /// An event of the client's.
    Event(Handle<outboard_abi::CUevent_st>),
    /// All that was in a stream when it was used anew.
    Mark(Mark),
}

/// An event of our own, behind what is waited for.
pub(crate) struct Mark {
    table: &'static Table,
    event: Handle<outboard_abi::CUevent_st>,
}

impl Mark {
    pub(super) fn behind(table: &'static Table, stream: CUstream) -> Result<Mark, CUresult> {
        let mut event = core::ptr::null_mut();
        call!(table, cuEventCreate(&raw mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0))?;
        let mark = Mark { table, event: Handle::new(event) };
        call!(table, cuEventRecord(event, stream))?;
        Ok(mark)
    }
    /// What the event stands for now, whatever becomes of it.
    pub(super) fn of(table: &'static Table, event: CUevent) -> Result<Mark, CUresult> {
        let mut stream = core::ptr::null_mut();
        call!(table, cuStreamCreate(&raw mut stream, CUstream_flags::CU_STREAM_NON_BLOCKING.0))?;
        let mark = call!(table, cuStreamWaitEvent(stream, event, 0))
            .and_then(|()| Mark::behind(table, stream));
        // Its work continues.
        call!(table, cuStreamDestroy_v2(stream)).and(mark)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = call!(self.table, cuEventDestroy_v2(self.event.get()));
    }
}

impl Part {
    /// `CUDA_ERROR_NOT_READY` if a wait would block.
    pub(super) fn query(&self, table: &Table) -> Outcome {
        match self {
            Part::Stream(stream) => call!(table, cuStreamQuery(stream.get())),
            Part::Event(event) => call!(table, cuEventQuery(event.get())),
            Part::Mark(mark) => call!(table, cuEventQuery(mark.event.get())),
        }
    }

    pub(super) fn block(&self, table: &Table) -> Outcome {
        match self {
            Part::Stream(stream) => call!(table, cuStreamSynchronize(stream.get())),
            Part::Event(event) => call!(table, cuEventSynchronize(event.get())),
            Part::Mark(mark) => call!(table, cuEventSynchronize(mark.event.get())),
        }
    }
}
