//! Executables that several servers run together, each of them pieces of the graph.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::backend::{ContextId, CrossingCopy, ObjectId, StreamId};

/// What a launch does, step by step.
#[derive(Default)]
pub(crate) struct Spread {
    pub(crate) tracks: Vec<Track>,
    /// In an order in which each comes behind those that it waits for.
    pub(crate) steps: Vec<Step>,
    /// By node of the graph: its step, and the name by which the piece's server knows it.
    pub(crate) nodes: HashMap<u64, (usize, u64)>,
    /// Held during a launch.
    pub(crate) launches: Mutex<Launches>,
}

/// A stream of the executable's own. Steps in one track follow each other.
pub(crate) struct Track {
    pub(crate) ctx: ContextId,
    pub(crate) stream: StreamId,
    /// A launch in a stream of the same context uses that instead.
    pub(crate) is_for_pieces: bool,
}

/// A part of a launch.
pub(crate) struct Step {
    pub(crate) track: usize,
    pub(crate) work: Work,
    /// Steps in other tracks.
    pub(crate) waits: Vec<usize>,
    /// Whether nothing else has it wait for what the launching stream did before.
    pub(crate) begins: bool,
    /// Whether the launching stream goes on behind it.
    pub(crate) ends: bool,
    /// Is recorded behind it, if another track or stream waits for it.
    pub(crate) event: Option<ObjectId>,
}

/// What is done in a step.
pub(crate) enum Work {
    Piece(Piece),
    Copy(Mutex<CopyStep>),
}

/// Nodes that one server runs as a graph.
pub(crate) struct Piece {
    /// The backend's name for what is launched.
    pub(crate) exec: ObjectId,
    pub(crate) origin: Origin,
}

/// What a piece was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A graph of its own.
    Cut(ObjectId),
    /// The program's graph, of which the server knows this piece alone.
    Program,
    /// An executable that is all of the graph, and has its own life.
    Whole,
}

/// A node that copies from one server to another.
pub(crate) struct CopyStep {
    pub(crate) copy: CrossingCopy,
    pub(crate) is_enabled: bool,
}

/// What later launches must know of earlier ones.
#[derive(Default)]
pub(crate) struct Launches {
    /// The stream of the last one.
    pub(crate) last: Option<(ContextId, StreamId)>,
    /// An event for each context in whose streams there were launches: what they did before.
    pub(crate) begins: HashMap<ContextId, ObjectId>,
}
