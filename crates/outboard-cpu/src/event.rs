//! Events: the latest record of each, and the times between two.

use std::sync::Arc;

use outboard_abi::{CUevent_flags_enum, CUresult};
use outboard_front::backend::{ContextId, Result};
use parking_lot::Mutex;

use crate::ipc::SharedEvent;
use crate::sched::Ticket;
use crate::work::Stamp;

/// An event of a program.
pub(crate) struct Event {
    pub(crate) ctx: ContextId,
    timing: bool,
    /// What other processes see of it.
    pub(crate) shared: Option<Arc<SharedEvent>>,
    record: Mutex<Option<Record>>,
}

/// A point in a stream.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) ticket: Ticket,
    stamp: Arc<Stamp>,
}

impl Event {
    pub(crate) fn new(ctx: ContextId, flags: u32) -> Result<Event> {
        let timing = flags & CUevent_flags_enum::CU_EVENT_DISABLE_TIMING.0 == 0;
        let interprocess = flags & CUevent_flags_enum::CU_EVENT_INTERPROCESS.0 != 0;
        let shared = if interprocess { Some(SharedEvent::new()?) } else { None };
        Ok(Event { ctx, timing, shared, record: Mutex::new(None) })
    }

    /// An event of another process.
    pub(crate) fn of(ctx: ContextId, shared: Arc<SharedEvent>) -> Event {
        Event { ctx, timing: false, shared: Some(shared), record: Mutex::new(None) }
    }

    pub(crate) fn record(&self, ticket: Ticket, stamp: Arc<Stamp>) {
        *self.record.lock() = Some(Record { ticket, stamp });
    }

    /// The latest record.
    pub(crate) fn latest(&self) -> Option<Record> {
        self.record.lock().clone()
    }

    /// The latest record of an event that takes times.
    pub(crate) fn timed(&self) -> Result<Record> {
        self.latest().filter(|_| self.timing).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}

impl Record {
    /// Milliseconds from `self` to `end`, both reached.
    pub(crate) fn milliseconds_to(&self, end: &Record) -> Result<f32> {
        let (start, end) =
            self.stamp.time().zip(end.stamp.time()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let (sign, span) = match end.checked_duration_since(start) {
            Some(span) => (1.0, span),
            None => (-1.0, start.duration_since(end)),
        };
        Ok((sign * span.as_secs_f64() * 1e3) as f32)
    }
}
