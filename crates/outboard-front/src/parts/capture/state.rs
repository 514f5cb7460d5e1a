//! Captures under way: which streams take part, behind which nodes they stand, and which events
//! carry that from one to another.

use std::collections::HashMap;
use std::thread::ThreadId;

use outboard_abi::CUresult;
use outboard_wire::graph::Edge;

use crate::backend::{ContextId, ObjectId, Result, StreamId};
use crate::parts::graph::model::World;

/// How strict a capture is about other calls: `CUstreamCaptureMode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Global = 0,
    ThreadLocal = 1,
    Relaxed = 2,
}

impl Mode {
    pub(crate) fn new(mode: u32) -> Option<Mode> {
        [Mode::Global, Mode::ThreadLocal, Mode::Relaxed]
            .into_iter()
            .find(|known| *known as u32 == mode)
    }
}

/// A capture.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) graph: ObjectId,
    pub(crate) mode: Mode,
    /// The thread that began it.
    pub(crate) thread: ThreadId,
    /// The stream in which it began and must end.
    pub(crate) origin: StreamId,
    pub(crate) invalidated: bool,
    /// The graph is the program's, not made for the capture.
    pub(crate) borrowed: bool,
    /// The positions of streams that have been destroyed since: that must have been joined as well.
    pub(crate) left: Vec<u64>,
}

/// A stream that takes part in a capture.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) capture: u64,
    /// The dependencies of the stream's next node.
    pub(crate) behind: Vec<Edge>,
    pub(crate) ctx: ContextId,
    /// It would wait for the legacy default stream, and that for it.
    pub(crate) blocking: bool,
    /// What `cuStreamGetCaptureInfo` last gave pointers to.
    pub(crate) shown: (Vec<u64>, Vec<[u8; 8]>),
}

/// The nodes after which an event was last recorded, in a capture.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) capture: u64,
    pub(crate) behind: Vec<Edge>,
}

/// All captures.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    pub(crate) all: HashMap<u64, Capture>,
    pub(crate) members: HashMap<StreamId, Member>,
    pub(crate) marks: HashMap<ObjectId, Mark>,
    pub(crate) ids: u64,
}

impl Captures {
    pub(crate) fn get(&self, id: u64) -> Option<&Capture> {
        self.all.get(&id)
    }

    /// The capture of a stream.
    pub(crate) fn of(&self, stream: StreamId) -> Option<(u64, &Capture)> {
        let id = self.members.get(&stream)?.capture;
        Some((id, self.all.get(&id)?))
    }

    /// Spoils a capture: nothing can come of it, and it must still be ended.
    pub(crate) fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.all.get_mut(&id) {
            capture.invalidated = true;
        }
    }

    /// Refuses a call that a stream's capture does not allow.
    pub(crate) fn refuse(&mut self, stream: StreamId) -> Result<()> {
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

    /// Refuses a question about captures of the legacy default stream, which leaves the captures
    /// that are in its way as they are.
    pub(crate) fn mind_legacy(&self, ctx: ContextId) -> Result<()> {
        let free = self.before_legacy(ctx).is_empty();
        if free { Ok(()) } else { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) }
    }

    /// Refuses work in the legacy default stream of a context while a stream captures that it would
    /// have to wait for.
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
        let ids: Vec<u64> = self
            .members
            .values()
            .filter(|member| member.ctx == ctx)
            .map(|member| member.capture)
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        ids.into_iter().for_each(|id| self.invalidate(id));
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Refuses a call that may not be safe while others capture, as the modes of the captures and
    /// of the calling thread say.
    pub(crate) fn refuse_unsafe(&mut self, caller: Mode) -> Result<()> {
        let thread = std::thread::current().id();
        let prohibits = |capture: &Capture| match caller {
            Mode::Relaxed => false,
            Mode::ThreadLocal => capture.thread == thread && capture.mode != Mode::Relaxed,
            Mode::Global => {
                capture.mode == Mode::Global
                    || (capture.thread == thread && capture.mode == Mode::ThreadLocal)
            }
        };
        let ids: Vec<u64> =
            self.all.iter().filter(|(_, capture)| prohibits(capture)).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        ids.into_iter().for_each(|id| self.invalidate(id));
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Refuses a question about an event that was last recorded in a capture.
    pub(crate) fn refuse_event(&mut self, event: ObjectId) -> Result<()> {
        let Some(mark) = self.marks.get(&event) else { return Ok(()) };
        let capture = mark.capture;
        self.invalidate(capture);
        Err(CUresult::CUDA_ERROR_CAPTURED_EVENT)
    }
}

impl World {
    /// Whether every stream of a capture has been joined to its first one.
    pub(crate) fn is_joined(&self, id: u64, origin: StreamId) -> bool {
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
        let behind: Vec<u64> =
            members.get(&origin).map_or(Vec::new(), |m| m.behind.iter().map(|e| e.node).collect());
        let before = self.before(&behind);
        others.all(|node| before.contains(&node))
    }
}
