//! What two servers of a process do together: order between streams, and copies.
//!
//! A server knows nothing of the others. Where a stream must wait for something on another server,
//! this process *holds* it: later work of the stream waits until the hold is dropped, which happens
//! when the other server says that it is time. No thread waits meanwhile, and neither server's
//! dispatcher does.
//!
//! Servers that are linked ([`super::links`]) do both without this process: a copy is two halves,
//! and a wait is two commands. Otherwise, an asynchronous copy holds its stream, and a stream of
//! its own in each other context, so that memory that the program frees stays until the copy is
//! done. When the stream has come to it, the bytes go through this process ([`super::transfer`]).

use std::sync::Arc;

use outboard_abi::CUresult;

use super::gate::Gate;
use super::transfer::End;
use super::{
    Awaited, Carried, CarriedCopy, CopyQueue, HalfCopy, Hold, Member, OwnStream, Several, Way,
};
use crate::backend::{
    ContextId, CopyMode, CrossingCopy, Extent, Memory, ObjectId, Result, Side, StreamId, UnifiedPtr,
};

/// What a copy between servers does.
enum Plan<S: 'static> {
    Relayed {
        dst: End<S>,
        src: End<S>,
    },
    /// Within a server that is not the stream's.
    Within {
        dst: End<S>,
        src: End<S>,
    },
    /// From or to memory of this process.
    Host {
        way: Way,
        device: End<S>,
        host: Side,
    },
}

/// A copy that waits for its stream.
struct Copying<S: 'static> {
    plan: Plan<S>,
    extent: Extent,
}

// SAFETY: the host memory that a plan names is the program's until the copy is done, by the
// contract of `copy_across`; all else is names and references to what any thread may use.
unsafe impl<S: Sync> Send for Copying<S> {}

impl<S: Member> Several<S> {
    pub(super) fn wait_for_event(
        &'static self,
        ctx: ContextId,
        stream: StreamId,
        of: ContextId,
        event: ObjectId,
    ) -> Result<()> {
        let (waiting, other) = (self.server(ctx.server())?, self.server(of.server())?);
        let event = Awaited::Event(event);
        if other.is_known_to_be_done(of, event) {
            other.knows_work_done();
            return Ok(());
        }
        // Work behind the wait may read bytes that are on their way to this process, or that this
        // process will have by then.
        if !other.has_bytes_to_take_in()
            && !waiting.uses_memory_of_the_program()
            && let Awaited::Event(event) = event
            && let Some(told) = self.links.tell(
                (ctx.server(), waiting),
                (of.server(), other),
                Carried::Signal,
                |numbered| {
                    other.tell_peer(numbered, of, event)?;
                    waiting.wait_for_peer(numbered, ctx, stream)
                },
            )
        {
            return told;
        }
        let Some(hold) = waiting.hold(ctx, stream)? else { return other.wait_for(of, event) };
        other.when_done(
            of,
            event,
            Box::new(move |outcome| self.let_go(other, waiting, hold, outcome)),
        )
    }

    /// Something on `other` for which a stream of `waiting` was held has happened, or never will.
    fn let_go(
        &'static self,
        other: &'static S,
        waiting: &'static S,
        hold: Hold,
        outcome: Result<()>,
    ) {
        let finish = move || {
            if let Err(error) = outcome {
                waiting.fail_later(error);
            }
            drop(hold);
        };
        if other.has_bytes_to_take_in() || waiting.uses_memory_of_the_program() {
            // Work behind the hold may read them.
            self.movers.run(move || {
                other.take_in();
                waiting.hand_on();
                finish();
            });
        } else {
            finish();
        }
    }

    /// As of [`crate::backend::Crossing::share_across`].
    pub(super) fn share_across(
        &'static self,
        ctx: ContextId,
        of: ContextId,
        address: UnifiedPtr,
    ) -> Result<()> {
        let owner = self.server(of.server())?;
        self.server(ctx.server())?.take_part(ctx, (owner, of), address)
    }

    /// # Safety
    /// As of [`crate::backend::Crossing::copy_across`].
    pub(super) unsafe fn copy_across(
        &'static self,
        ctx: ContextId,
        stream: StreamId,
        copy: &CrossingCopy,
    ) -> Result<()> {
        let own = self.server(ctx.server())?;
        let plan = self.plan(copy)?;
        let mut others: Vec<ContextId> = match &plan {
            Plan::Relayed { dst, src } | Plan::Within { dst, src } => vec![dst.ctx, src.ctx],
            Plan::Host { device, .. } => vec![device.ctx],
        };
        others.retain(|other| *other != ctx);
        others.dedup();
        if copy.mode == CopyMode::Pinned
            && let Plan::Relayed { dst, src } = &plan
            && let Some(copied) = self.copy_over_link(dst, src, copy.extent, (ctx, stream))
        {
            return copied;
        }
        let copying = Copying { plan, extent: copy.extent };
        let run = move || copying.run(self);
        let run = match copy.mode {
            CopyMode::Pinned => self.in_order((own, ctx, stream), &others, run)?,
            _ => Some(run),
        };
        let Some(run) = run else { return Ok(()) };
        own.stream_synchronize(ctx, stream)?;
        if copy.mode == CopyMode::Synchronous {
            // CUDA orders such a copy with the work of all devices that it is about.
            for other in others {
                self.server(other.server())?.stream_synchronize(other, StreamId::LEGACY)?;
            }
        }
        run()
    }

    /// Has two servers copy between them, as part of the work of a stream in one of the two
    /// contexts. `None` if they cannot.
    fn copy_over_link(
        &'static self,
        dst: &End<S>,
        src: &End<S>,
        extent: Extent,
        (ctx, stream): (ContextId, StreamId),
    ) -> Option<Result<()>> {
        let ends = [(Way::ToDevice, dst), (Way::FromDevice, src)];
        if !ends.iter().all(|(_, end)| end.server.is_for_links(&end.side, extent)) {
            return None;
        }
        let way = ends.iter().find_map(|(way, end)| (end.ctx == ctx).then_some(*way))?;
        let bytes = extent.bytes().unwrap_or(0);
        let queue = CopyQueue { ctx, stream, way };
        self.links.tell(
            (dst.ctx.server(), dst.server),
            (src.ctx.server(), src.server),
            Carried::Copy(CarriedCopy { bytes, queue }),
            |numbered| {
                self.links.add_bytes(bytes, numbered);
                for (way, end) in ends {
                    let leads = end.ctx == ctx;
                    let stream = if leads {
                        stream
                    } else {
                        end.server.own_stream(end.ctx, OwnStream::Held)?
                    };
                    let End { side, ctx, .. } = *end;
                    let half = HalfCopy { way, side, ctx, extent, stream, leads };
                    end.server.copy_over_link(numbered, &half)?;
                }
                Ok(())
            },
        )
    }

    fn plan(&'static self, copy: &CrossingCopy) -> Result<Plan<S>> {
        let end = |(side, ctx): (Side, ContextId)| {
            Ok(End { server: self.server(ctx.server())?, ctx, side })
        };
        Ok(match (copy.dst.0.memory, copy.src.0.memory) {
            (Memory::Host(_), Memory::Host(_)) => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            (Memory::Host(_), _) => {
                Plan::Host { way: Way::FromDevice, device: end(copy.src)?, host: copy.dst.0 }
            }
            (_, Memory::Host(_)) => {
                Plan::Host { way: Way::ToDevice, device: end(copy.dst)?, host: copy.src.0 }
            }
            _ => {
                let (dst, src) = (end(copy.dst)?, end(copy.src)?);
                if dst.ctx.has_server_of(src.ctx) {
                    Plan::Within { dst, src }
                } else {
                    Plan::Relayed { dst, src }
                }
            }
        })
    }

    /// Does something in the order of a stream: when the stream has come so far, this process does
    /// it, and then the stream goes on. The other contexts that it is about are busy until then.
    /// Gives `work` back if a server can hold no more streams.
    pub(super) fn in_order<W: FnOnce() -> Result<()> + Send + 'static>(
        &'static self,
        (own, ctx, stream): (&'static S, ContextId, StreamId),
        others: &[ContextId],
        work: W,
    ) -> Result<Option<W>> {
        let Some(Begun { holds, gate }) = self.begin((own, ctx, stream), others)? else {
            return Ok(Some(work));
        };
        gate.pass_with(move |outcome| {
            self.movers.run(move || {
                own.take_in();
                if let Err(error) = outcome.and_then(|()| work()) {
                    own.fail_later(error);
                }
                own.hand_on();
                drop(holds);
            });
        });
        Ok(None)
    }

    /// Has this process be told when a stream has come so far, and the stream wait behind that.
    /// `None` if a server can hold no more streams.
    fn begin(
        &'static self,
        (own, ctx, stream): (&'static S, ContextId, StreamId),
        others: &[ContextId],
    ) -> Result<Option<Begun>> {
        let mut holds = Vec::new();
        for other in others {
            let server = self.server(other.server())?;
            match server.hold(*other, server.own_stream(*other, OwnStream::Held)?)? {
                Some(hold) => holds.push(hold),
                None => return Ok(None),
            }
        }
        let gate = Arc::new(Gate::default());
        let passed = Arc::clone(&gate);
        own.when_done(
            ctx,
            Awaited::Stream(stream),
            Box::new(move |outcome| passed.come_to(outcome)),
        )?;
        // Behind the question when the stream has come so far.
        let Some(hold) = own.hold(ctx, stream)? else { return Ok(None) };
        holds.push(hold);
        Ok(Some(Begun { holds, gate }))
    }
}

/// A copy whose stream will say when it has come to it.
struct Begun {
    holds: Vec<Hold>,
    gate: Arc<Gate>,
}

impl<S: Member> Several<S> {
    /// Copies from one server to another. Returns when the bytes are there.
    fn move_between(&'static self, dst: End<S>, src: End<S>, extent: Extent) -> Result<()> {
        let stream = dst.server.own_stream(dst.ctx, OwnStream::Copies(Way::ToDevice))?;
        match self.copy_over_link(&dst, &src, extent, (dst.ctx, stream)) {
            Some(copied) => copied.and_then(|()| dst.server.stream_synchronize(dst.ctx, stream)),
            None => self.relay.copy(dst, src, extent),
        }
    }
}

impl<S: Member> Copying<S> {
    /// Moves the bytes. Returns when they are where they belong.
    fn run(&self, several: &'static Several<S>) -> Result<()> {
        match self.plan {
            Plan::Relayed { dst, src } => several.move_between(dst, src, self.extent),
            Plan::Within { dst, src } => dst.copy_from(&src, self.extent),
            Plan::Host { way, device, host } => {
                // SAFETY: by the contract of `copy_across`.
                unsafe { device.copy_whole(way, self.extent, host) }
            }
        }
    }
}
