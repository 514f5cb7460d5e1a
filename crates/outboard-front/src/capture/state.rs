//! Captures under way: which streams take part, behind which nodes they stand, and which events carry that from one to another.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::thread::ThreadId;

use outboard_abi::CUresult;
use outboard_wire::graph::Edge;

use crate::backend::{ContextId, Result};
use crate::graph::model::World;
use crate::process::Front;

/// How strict a capture is about other calls: `CUstreamCaptureMode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Global = 0,
    ThreadLocal = 1,
    Relaxed = 2,
}

impl Mode {
    pub(crate) fn new(mode: u32) -> Option<Mode> {
        [Mode::Global, Mode::ThreadLocal, Mode::Relaxed].into_iter().find(|known| *known as u32 == mode)
    }
}

/// A capture.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) graph: u64,
    pub(crate) mode: Mode,
    /// The thread that began it.
    pub(crate) thread: ThreadId,
    /// The stream in which it began and must end.
    pub(crate) origin: u64,
    pub(crate) invalidated: bool,
    /// The graph is the program's, not made for the capture.
    pub(crate) borrowed: bool,
    /// Where streams stood that have been destroyed since: that must have been joined as well.
    pub(crate) left: Vec<u64>,
}

/// A stream that takes part in a capture.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) capture: u64,
    /// What the next node of the stream waits for.
    pub(crate) behind: Vec<Edge>,
    pub(crate) ctx: ContextId,
    /// It would wait for the legacy default stream, and that for it.
    pub(crate) blocking: bool,
    /// What `cuStreamGetCaptureInfo` last gave pointers to.
    pub(crate) shown: (Vec<u64>, Vec<[u8; 8]>),
}

/// What an event was last recorded behind, in a capture.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) capture: u64,
    pub(crate) behind: Vec<Edge>,
}

/// All captures.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    all: HashMap<u64, Capture>,
    pub(crate) members: HashMap<u64, Member>,
    pub(crate) marks: HashMap<u64, Mark>,
    ids: u64,
}

/// Whether anything captures.
#[inline]
pub(crate) fn active(front: &'static Front) -> bool {
    front.graphs.captures.load(Ordering::Relaxed) != 0
}

impl Captures {
    /// Begins a capture; `member` is its first stream.
    pub(crate) fn begin(&mut self, front: &'static Front, capture: Capture, member: impl FnOnce(u64) -> Member) -> u64 {
        self.ids += 1;
        let (id, origin) = (self.ids, capture.origin);
        self.all.insert(id, capture);
        self.members.insert(origin, member(id));
        front.graphs.captures.fetch_add(1, Ordering::Relaxed);
        id
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Capture> {
        self.all.get(&id)
    }

    /// The capture of a stream.
    pub(crate) fn of(&self, stream: u64) -> Option<(u64, &Capture)> {
        let id = self.members.get(&stream)?.capture;
        Some((id, self.all.get(&id)?))
    }

    /// Ends a capture: its streams are as before. Events stay marked until they are recorded again.
    pub(crate) fn end(&mut self, front: &'static Front, id: u64) -> Option<Capture> {
        let capture = self.all.remove(&id)?;
        self.members.retain(|_, member| member.capture != id);
        front.graphs.captures.fetch_sub(1, Ordering::Relaxed);
        Some(capture)
    }

    /// Spoils a capture: nothing can come of it, and it must still be ended.
    pub(crate) fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.all.get_mut(&id) {
            capture.invalidated = true;
        }
    }

    /// Refuses a call that a stream's capture does not allow.
    pub(crate) fn refuse(&mut self, stream: u64) -> Result<()> {
        let Some((id, capture)) = self.of(stream) else { return Ok(()) };
        if capture.invalidated {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        self.invalidate(id);
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// The captures of streams that the legacy default stream of a context would have to wait for.
    fn before_legacy(&self, ctx: ContextId) -> Vec<u64> {
        let of_context = |member: &&Member| member.ctx == ctx && member.blocking;
        self.members.values().filter(of_context).map(|member| member.capture).collect()
    }

    /// Refuses a question about captures of the legacy default stream, which leaves the captures that are in its way as they are.
    pub(crate) fn mind_legacy(&self, ctx: ContextId) -> Result<()> {
        let free = self.before_legacy(ctx).is_empty();
        if free { Ok(()) } else { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) }
    }

    /// Refuses work in the legacy default stream of a context while a stream captures that it would have to wait for.
    pub(crate) fn refuse_legacy(&mut self, ctx: ContextId) -> Result<()> {
        let ids = self.before_legacy(ctx);
        if ids.is_empty() {
            return Ok(());
        }
        ids.into_iter().for_each(|id| self.invalidate(id));
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    /// Refuses to wait for a context in which anything captures.
    pub(crate) fn refuse_context(&mut self, ctx: ContextId) -> Result<()> {
        let ids: Vec<u64> =
            self.members.values().filter(|member| member.ctx == ctx).map(|member| member.capture).collect();
        if ids.is_empty() {
            return Ok(());
        }
        ids.into_iter().for_each(|id| self.invalidate(id));
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Refuses a call that may not be safe while others capture, as the modes of the captures and of the calling thread say.
    pub(crate) fn refuse_unsafe(&mut self, caller: Mode) -> Result<()> {
        let thread = std::thread::current().id();
        let prohibits = |capture: &Capture| match caller {
            Mode::Relaxed => false,
            Mode::ThreadLocal => capture.thread == thread && capture.mode != Mode::Relaxed,
            Mode::Global => {
                capture.mode == Mode::Global || (capture.thread == thread && capture.mode == Mode::ThreadLocal)
            }
        };
        let ids: Vec<u64> = self.all.iter().filter(|(_, capture)| prohibits(capture)).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        ids.into_iter().for_each(|id| self.invalidate(id));
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Refuses a question about an event that was last recorded in a capture.
    pub(crate) fn refuse_event(&mut self, event: u64) -> Result<()> {
        let Some(mark) = self.marks.get(&event) else { return Ok(()) };
        let capture = mark.capture;
        self.invalidate(capture);
        Err(CUresult::CUDA_ERROR_CAPTURED_EVENT)
    }

    /// A stream is destroyed: its capture goes on without it, unless it began there, when nobody can end it any more.
    pub(crate) fn forget_stream(&mut self, front: &'static Front, stream: u64) -> Option<Capture> {
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
        let ids: std::collections::HashSet<u64> =
            self.members.values().filter(|member| member.ctx == ctx).map(|member| member.capture).collect();
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

impl World {
    /// Whether every stream of a capture has been joined to its first one.
    pub(crate) fn is_joined(&self, id: u64, origin: u64) -> bool {
        let members = &self.captures.members;
        let left = self.captures.get(id).map_or(&[][..], |capture| &capture.left);
        let mut others = members
            .iter()
            .filter(|(stream, member)| member.capture == id && **stream != origin)
            .flat_map(|(_, member)| member.behind.iter().map(|edge| edge.node))
            // The program may have removed nodes in the meantime.
            .chain(left.iter().copied().filter(|node| self.nodes.contains_key(node)))
            .peekable();
        if others.peek().is_none() {
            return true;
        }
        let behind: Vec<u64> = members.get(&origin).map_or(Vec::new(), |m| m.behind.iter().map(|e| e.node).collect());
        let before = self.before(&behind);
        others.all(|node| before.contains(&node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::front;

    const CTX: ContextId = ContextId(1);

    fn begin(captures: &mut Captures, stream: u64, mode: Mode, blocking: bool) -> u64 {
        let thread = std::thread::current().id();
        let (borrowed, left) = (false, Vec::new());
        let capture = Capture { graph: 0, mode, thread, origin: stream, invalidated: false, borrowed, left };
        let shown = (Vec::new(), Vec::new());
        captures.begin(front(), capture, |capture| Member { capture, behind: Vec::new(), ctx: CTX, blocking, shown })
    }

    #[test]
    fn modes_say_which_calls_are_safe() {
        // Mode of the capture, mode of the caller, whether the caller's thread began the capture: whether the call is refused.
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
            let id = begin(&mut captures, 1, mode, false);
            let outcome = match own {
                true => captures.refuse_unsafe(caller),
                false => std::thread::scope(|scope| scope.spawn(|| captures.refuse_unsafe(caller)).join().unwrap()),
            };
            assert_eq!(outcome.is_err(), refused, "{mode:?} {caller:?} {own}");
            assert_eq!(captures.get(id).is_some_and(|capture| capture.invalidated), refused);
            captures.end(front(), id);
        }
    }

    #[test]
    fn the_legacy_stream_minds_blocking_streams_only() {
        let mut captures = Captures::default();
        let id = begin(&mut captures, 1, Mode::Relaxed, false);
        assert!(captures.refuse_legacy(CTX).is_ok());
        let blocking = begin(&mut captures, 2, Mode::Relaxed, true);
        assert!(captures.refuse_legacy(ContextId(2)).is_ok(), "another context");
        assert_eq!(captures.refuse_legacy(CTX), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
        assert!(captures.get(blocking).is_some_and(|capture| capture.invalidated));
        assert!(captures.get(id).is_some_and(|capture| !capture.invalidated));
        assert_eq!(captures.refuse(1), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        assert_eq!(captures.refuse(1), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
        assert_eq!(captures.forget_context(front(), CTX).len(), 2);
        assert!(captures.refuse(1).is_ok() && captures.refuse_context(CTX).is_ok());
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
        let id = begin(&mut world.captures, 1, Mode::Global, false);
        let first = add(&mut world, &[]);
        let forked = add(&mut world, &[edge(first)]);
        let shown = (Vec::new(), Vec::new());
        let behind = vec![edge(forked)];
        world.captures.members.insert(2, Member { capture: id, behind, ctx: CTX, blocking: false, shown });
        assert!(world.captures.forget_stream(front(), 2).is_none());
        assert!(world.captures.get(id).is_some_and(|capture| !capture.invalidated));
        if let Some(origin) = world.captures.members.get_mut(&1) {
            origin.behind = vec![edge(first)];
        }
        assert!(!world.is_joined(id, 1), "what the stream left behind has not been joined");
        if let Some(origin) = world.captures.members.get_mut(&1) {
            join(&mut origin.behind, &[edge(forked)]);
        }
        assert!(world.is_joined(id, 1));
        assert!(world.captures.forget_stream(front(), 1).is_some(), "nobody can end it any more");
    }
}
