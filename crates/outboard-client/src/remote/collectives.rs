//! Calls of NCCL: they are made by the worker.

use std::sync::Arc;
use std::time::Duration;

use outboard_abi::CUresult;
use outboard_front::backend::{
    CollectivesDone, ContextId, GroupOutcome, ObjectId, Result, StreamId,
};
use outboard_wire::collectives::CommCall;
use outboard_wire::messages as msg;
use outboard_wire::{Decode, Reader};

use super::Remote;
use crate::link::{LinkError, Reply};
use crate::session::LOST;

/// A server that could not be reached for so long counts as lost for its communicators: the other
/// ranks wait for this one.
const PATIENCE: Duration = Duration::from_secs(3);

impl Remote {
    pub(super) fn collectives_lost(&self, _ctx: ContextId) -> Result<()> {
        let link = self.session()?.link();
        if link.is_alive() && link.broken_for().is_none_or(|time| time < PATIENCE) {
            return Ok(());
        }
        Err(LOST)
    }

    pub(super) fn collectives_begin(
        &self,
        ctx: ContextId,
        calls: Vec<CommCall>,
        then: CollectivesDone,
    ) -> Result<()> {
        let session = self.session()?;
        session.link().count_call();
        let of_session = Arc::clone(session);
        let then = tells(then, move |reply| {
            // Collectives among the calls are work of their streams.
            of_session.progress().posted(reply.seq);
            outcome(reply)
        });
        let streams = streams(&calls);
        let message = msg::CollectivesGroup { calls };
        let begin = || session.call_then(ctx, &message, then);
        match streams {
            Streams::None => begin(),
            Streams::One(stream) => self.work(ctx, stream, begin),
            Streams::Several => self.work(ctx, StreamId::LEGACY, begin),
        }
    }

    pub(super) fn collectives_capture(
        &self,
        ctx: ContextId,
        graph: ObjectId,
        calls: Vec<CommCall>,
        then: CollectivesDone,
    ) -> Result<()> {
        let session = self.session()?;
        session.link().count_call();
        let then = tells(then, |reply| {
            let read: msg::CollectivesCaptureReply<'_> = read(reply)?;
            let failure = read.failure.to_owned();
            Ok(GroupOutcome { status: read.status, failure, values: Vec::new() })
        });
        session.call_then(ctx, &msg::CollectivesCapture { graph, calls }, then)
    }

    #[inline]
    pub(super) fn collectives_post(&self, ctx: ContextId, calls: Vec<CommCall>) -> Result<()> {
        let streams = streams(&calls);
        let message = msg::CollectivesPosted { calls };
        match streams {
            Streams::One(stream) => self.work(ctx, stream, || self.post_to(ctx, stream, &message)),
            _ => self.work(ctx, StreamId::LEGACY, || self.post(ctx, &message)),
        }
    }
}

/// The streams that a group puts work into.
enum Streams {
    None,
    One(StreamId),
    Several,
}

fn streams(calls: &[CommCall]) -> Streams {
    let mut found = Streams::None;
    for call in calls {
        let CommCall::Collective(call) = call else { continue };
        found = match found {
            Streams::None => Streams::One(call.stream),
            // Each context has a default stream, which all have one name.
            Streams::One(one) if one == call.stream && one != StreamId::LEGACY => found,
            _ => Streams::Several,
        };
    }
    found
}

/// What a call's answer is given to: it tells what `read` makes of the answer.
fn tells(
    then: CollectivesDone,
    read: impl FnOnce(&Reply) -> Result<GroupOutcome> + Send + 'static,
) -> Box<dyn FnOnce(std::result::Result<Reply, LinkError>) + Send> {
    Box::new(move |reply| {
        then.tell(reply.map_err(CUresult::from).and_then(|reply| read(&reply)));
    })
}

fn outcome(reply: &Reply) -> Result<GroupOutcome> {
    let read: msg::CollectivesGroupReply<'_> = read(reply)?;
    let failure = read.failure.to_owned();
    Ok(GroupOutcome { status: read.status, failure, values: read.values })
}

/// What an answer contains, unless it is an error.
fn read<'a, T: Decode<'a>>(reply: &'a Reply) -> Result<T> {
    match CUresult(reply.status) {
        CUresult::CUDA_SUCCESS => {
            Reader::new(&reply.payload).get().map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)
        }
        error => Err(error),
    }
}
