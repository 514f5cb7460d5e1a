//! A server's part in what several servers do together.

use std::collections::BTreeMap;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, DevicePtr, Result, StreamId};
use outboard_front::several::{Awaited, OwnStream, Then, Way};
use outboard_wire::messages as msg;
use parking_lot::Mutex;

use super::Remote;
use super::names::crossing_stream;
use super::stream::NON_BLOCKING;
use crate::copies::hold::Hold;
use crate::link::{LinkError, Reply};

/// The memory that holds write, by context; allocated with the first hold.
pub(super) struct Crossing(Mutex<BTreeMap<ContextId, DevicePtr>>);

impl Crossing {
    pub(super) const fn new() -> Crossing {
        Crossing(Mutex::new(BTreeMap::new()))
    }

    /// A context ends, and its memory and streams with it.
    pub(super) fn context_ends(&self, ctx: ContextId) {
        self.0.lock().remove(&ctx);
    }
}

impl Remote {
    /// The memory that holds write; makes it, and the streams of the context.
    fn scratch(&self, ctx: ContextId) -> Result<DevicePtr> {
        let mut contexts = self.crossing.0.lock();
        if let Some(scratch) = contexts.get(&ctx) {
            return Ok(*scratch);
        }
        let scratch = self.memory_alloc(ctx, Hold::BYTES)?;
        let copies = [Way::ToDevice, Way::FromDevice].map(OwnStream::Copies);
        for which in copies.into_iter().chain([OwnStream::Held]) {
            self.stream_create(ctx, crossing_stream(ctx, which), NON_BLOCKING, 0)?;
        }
        contexts.insert(ctx, scratch);
        Ok(scratch)
    }

    pub(crate) fn hold_stream(&self, ctx: ContextId, stream: StreamId) -> Result<Option<Hold>> {
        let scratch = self.scratch(ctx)?;
        self.session()?.hold(ctx, stream, scratch)
    }

    pub(crate) fn crossing_stream(&self, ctx: ContextId, which: OwnStream) -> Result<StreamId> {
        self.scratch(ctx)?;
        Ok(StreamId::created(crossing_stream(ctx, which)))
    }

    pub(crate) fn tell_when_done(&self, ctx: ContextId, what: Awaited, then: Then) -> Result<()> {
        if self.knows_to_be_done(what, ctx) {
            then(Ok(()));
            return Ok(());
        }
        let then = move |reply: std::result::Result<Reply, LinkError>| {
            then(match reply.map(|reply| CUresult(reply.status)) {
                Ok(CUresult::CUDA_SUCCESS) => Ok(()),
                Ok(error) => Err(error),
                Err(error) => Err(error.into()),
            });
        };
        let session = self.session()?;
        match what {
            Awaited::Stream(stream) => {
                session.call_then(ctx, &msg::StreamSynchronize { stream }, Box::new(then))
            }
            Awaited::Event(event) => {
                session.call_then(ctx, &msg::EventSynchronize { event }, Box::new(then))
            }
        }
    }

    pub(crate) fn knows_to_be_done(&self, what: Awaited, ctx: ContextId) -> bool {
        let Ok(session) = self.session() else { return false };
        session.link().is_alive()
            && match what {
                Awaited::Stream(stream) => session.progress().is_stream_idle(ctx, stream),
                Awaited::Event(event) => session.progress().has_happened(event),
            }
    }
}
