//! Captures under way: which streams take part, at which nodes, and which events pass that from one
//! stream to another.

use std::sync::atomic::Ordering;

use outboard_wire::graph::Edge;

use crate::backend::{ContextId, StreamId};
use crate::process::Front;

pub(crate) use crate::parts::capture::state::{Capture, Captures, Mark, Member, Mode};

/// Whether anything captures.
#[inline]
pub(crate) fn active(front: &'static Front) -> bool {
    front.graphs.captures.load(Ordering::Relaxed) != 0
}

impl Captures {
    /// Begins a capture; `member` is its first stream.
    pub(crate) fn begin(
        &mut self,
        front: &'static Front,
        capture: Capture,
        member: impl FnOnce(u64) -> Member,
    ) -> u64 {
        self.ids += 1;
        let (id, origin) = (self.ids, capture.origin);
        self.all.insert(id, capture);
        self.members.insert(origin, member(id));
        front.graphs.captures.fetch_add(1, Ordering::Relaxed);
        id
    }

    /// Ends a capture: its streams are as before. Events stay marked until they are recorded again.
    pub(crate) fn end(&mut self, front: &'static Front, id: u64) -> Option<Capture> {
        let capture = self.all.remove(&id)?;
        self.members.retain(|_, member| member.capture != id);
        front.graphs.captures.fetch_sub(1, Ordering::Relaxed);
        Some(capture)
    }

    /// A stream is destroyed: its capture continues without it, unless it began there, when no call
    /// can end it any more.
    pub(crate) fn forget_stream(
        &mut self,
        front: &'static Front,
        stream: StreamId,
    ) -> Option<Capture> {
        let member = self.members.remove(&stream)?;
        let capture = self.all.get_mut(&member.capture)?;
        if capture.origin == stream {
            return self.end(front, member.capture);
        }
        capture.left.extend(member.behind.iter().map(|edge| edge.node));
        None
    }
}

impl Captures {
    /// Ends the captures that streams of a context take part in.
    pub(crate) fn forget_context(&mut self, front: &'static Front, ctx: ContextId) -> Vec<Capture> {
        let ids: std::collections::HashSet<u64> = self
            .members
            .values()
            .filter(|member| member.ctx == ctx)
            .map(|member| member.capture)
            .collect();
        ids.into_iter().filter_map(|id| self.end(front, id)).collect()
    }
}

/// Adds what is not there yet.
pub(crate) fn join(behind: &mut Vec<Edge>, more: &[Edge]) {
    for edge in more {
        if !behind.iter().any(|known| known.node == edge.node) {
            behind.push(*edge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{ObjectId, StreamId};
    use crate::graph::model::World;
    use crate::process::front;
    use outboard_abi::CUresult;

    const CTX: ContextId = ContextId(1);

    fn begin(captures: &mut Captures, stream: StreamId, mode: Mode, blocking: bool) -> u64 {
        let thread = std::thread::current().id();
        let (borrowed, left) = (false, Vec::new());
        let capture = Capture {
            graph: ObjectId::NONE,
            mode,
            thread,
            origin: stream,
            invalidated: false,
            borrowed,
            left,
        };
        let shown = (Vec::new(), Vec::new());
        captures.begin(front(), capture, |capture| Member {
            capture,
            behind: Vec::new(),
            ctx: CTX,
            blocking,
            shown,
        })
    }

    #[test]
    fn modes_say_which_calls_are_safe() {
        // Mode of the capture, mode of the caller, whether the caller's thread began the capture:
        // whether the call is refused.
        let table = [
            (Mode::Global, Mode::Global, true, true),
            (Mode::Global, Mode::Global, false, true),
            (Mode::Global, Mode::ThreadLocal, true, true),
            (Mode::Global, Mode::ThreadLocal, false, false),
            (Mode::ThreadLocal, Mode::Global, true, true),
            (Mode::ThreadLocal, Mode::Global, false, false),
            (Mode::ThreadLocal, Mode::ThreadLocal, true, true),
            (Mode::Relaxed, Mode::Global, true, false),
            (Mode::Relaxed, Mode::ThreadLocal, true, false),
            (Mode::Global, Mode::Relaxed, true, false),
        ];
        for (mode, caller, own, refused) in table {
            let mut captures = Captures::default();
            let id = begin(&mut captures, StreamId(1), mode, false);
            let outcome = match own {
                true => captures.refuse_unsafe(caller),
                false => std::thread::scope(|scope| {
                    scope.spawn(|| captures.refuse_unsafe(caller)).join().unwrap()
                }),
            };
            assert_eq!(outcome.is_err(), refused, "{mode:?} {caller:?} {own}");
            assert_eq!(captures.get(id).is_some_and(|capture| capture.invalidated), refused);
            captures.end(front(), id);
        }
    }

    #[test]
    fn the_legacy_stream_minds_blocking_streams_only() {
        let mut captures = Captures::default();
        let id = begin(&mut captures, StreamId(1), Mode::Relaxed, false);
        assert!(captures.refuse_legacy(CTX).is_ok());
        let blocking = begin(&mut captures, StreamId(2), Mode::Relaxed, true);
        assert!(captures.refuse_legacy(ContextId(2)).is_ok(), "another context");
        assert_eq!(captures.refuse_legacy(CTX), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
        assert!(captures.get(blocking).is_some_and(|capture| capture.invalidated));
        assert!(captures.get(id).is_some_and(|capture| !capture.invalidated));
        assert_eq!(
            captures.refuse(StreamId(1)),
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        );
        assert_eq!(
            captures.refuse(StreamId(1)),
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        );
        assert_eq!(captures.forget_context(front(), CTX).len(), 2);
        assert!(captures.refuse(StreamId(1)).is_ok() && captures.refuse_context(CTX).is_ok());
    }

    #[test]
    fn a_capture_outlives_the_streams_that_joined_it() {
        let mut world = World::default();
        let graph = world.new_graph(crate::graph::model::Role::Own);
        let add = |world: &mut World, before: &[Edge]| {
            let nothing = crate::graph::model::Given::Nothing;
            world.add(graph, before, outboard_wire::graph::NodeParams::Empty, nothing).unwrap()
        };
        let edge = |node| Edge { node, ports: [0; 3] };
        let id = begin(&mut world.captures, StreamId(1), Mode::Global, false);
        let first = add(&mut world, &[]);
        let forked = add(&mut world, &[edge(first)]);
        let shown = (Vec::new(), Vec::new());
        let behind = vec![edge(forked)];
        world
            .captures
            .members
            .insert(StreamId(2), Member { capture: id, behind, ctx: CTX, blocking: false, shown });
        assert!(world.captures.forget_stream(front(), StreamId(2)).is_none());
        assert!(world.captures.get(id).is_some_and(|capture| !capture.invalidated));
        if let Some(origin) = world.captures.members.get_mut(&StreamId(1)) {
            origin.behind = vec![edge(first)];
        }
        assert!(
            !world.is_joined(id, StreamId(1)),
            "what the stream left behind has not been joined"
        );
        if let Some(origin) = world.captures.members.get_mut(&StreamId(1)) {
            join(&mut origin.behind, &[edge(forked)]);
        }
        assert!(world.is_joined(id, StreamId(1)));
        assert!(
            world.captures.forget_stream(front(), StreamId(1)).is_some(),
            "nobody can end it any more"
        );
    }
}
