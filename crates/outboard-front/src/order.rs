//! Order between streams that a program has not asked for, but CUDA promises.

use outboard_abi::CUresult;

use crate::backend::{Backend, ContextId, ObjectId, Result, StreamId};
use crate::event::DISABLE_TIMING;
use crate::process::Process;

/// Has later work of a stream wait for what is in another one now, on whichever device and server
/// that is. The calling thread waits for neither.
pub(crate) fn wait_for<B: Backend>(
    process: &'static Process<B>,
    (ctx, stream): (ContextId, StreamId),
    (of, awaited): (ContextId, StreamId),
) -> Result<()> {
    let (device, events) = (process.backend, &process.events.table);
    let name = events.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let event = ObjectId(name);
    let outcome = device.event_create(of, event, DISABLE_TIMING).and_then(|()| {
        let recorded = device.event_record(of, event, awaited, 0);
        let waits = recorded.and_then(|()| match ctx.has_server_of(of) {
            true => device.stream_wait_event(ctx, stream, event, 0),
            false => device.wait_for_event(ctx, stream, of, event),
        });
        waits.and(device.event_destroy(of, event))
    });
    events.release(name);
    outcome
}
