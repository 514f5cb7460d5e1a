//! Collectives in streams that capture: each server makes a graph of its part of the group, and a
//! node of the capture's graph runs it.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_wire::collectives::CommCall;

use super::group::{Entry, by_server};
use super::running::{self, Running};
use super::{Failure, Outcome};
use crate::backend::{Backend, ContextId, ObjectId, StreamId};
use crate::capture::{self, CapturedNode};
use crate::graph::mirror;
use crate::graph::model::world;
use crate::parts::collectives::Comm;
use crate::process::{Front, Process};

/// The capture in which the calls take part, all of them or none.
pub(super) fn of(front: &'static Front, entries: &[Entry]) -> Outcome<Option<u64>> {
    if !capture::active(front) {
        return Ok(None);
    }
    let mut found = None;
    for entry in entries {
        let capture = match &entry.call {
            CommCall::Collective(call) => capture::of(front, call.stream)?,
            _ => None,
        };
        if *found.get_or_insert(capture) != capture {
            return Err(Failure::usage(
                "a group has calls that are captured into a graph and others that are not",
            ));
        }
    }
    Ok(found.flatten())
}

/// One server's part of a group.
struct Part {
    ctx: ContextId,
    graph: ObjectId,
    streams: Vec<StreamId>,
    comms: Vec<Arc<Comm>>,
    calls: Vec<CommCall>,
}

impl Part {
    fn new(front: &'static Front, ctx: ContextId, entries: Vec<Entry>) -> Part {
        let graph = ObjectId(world(front).handle());
        let mut part =
            Part { ctx, graph, streams: Vec::new(), comms: Vec::new(), calls: Vec::new() };
        for Entry { comm, call, .. } in entries {
            if let CommCall::Collective(call) = &call
                && !part.streams.contains(&call.stream)
            {
                part.streams.push(call.stream);
            }
            if !part.comms.iter().any(|known| Arc::ptr_eq(known, &comm)) {
                part.comms.push(comm);
            }
            part.calls.push(call);
        }
        part
    }

    /// Adds the node that runs what the server has captured. Collectives of one communicator follow
    /// each other, in whichever streams the program has queued them.
    fn add(&self, front: &'static Front, capture: u64) -> Result<(), CUresult> {
        let last = self.comms.iter().filter_map(|comm| *comm.captured.lock()).collect();
        let node = CapturedNode {
            capture,
            ctx: self.ctx,
            captured: self.graph,
            streams: &self.streams,
            behind: last,
        };
        let added = node.add(front)?;
        self.comms.iter().for_each(|comm| *comm.captured.lock() = Some(added));
        Ok(())
    }
}

/// Has each server make a graph of its part, before any is waited for, and adds the nodes.
pub(super) fn run<B: Backend>(
    process: &'static Process<B>,
    capture: u64,
    entries: Vec<Entry>,
) -> Outcome<()> {
    let parts = by_server(entries).map(|(ctx, entries)| Part::new(process, ctx, entries));
    let parts: Vec<(Part, Outcome<Running>)> = parts
        .collect::<Vec<Part>>()
        .into_iter()
        .map(|mut part| {
            let calls = std::mem::take(&mut part.calls);
            let running = running::begin_capture(process, part.ctx, part.graph, calls);
            (part, running)
        })
        .collect();
    let mut outcome = Ok(());
    for (part, running) in parts {
        let made = running.and_then(|running| running.wait(process, &part.comms, None));
        let added = made.and_then(|_| Ok(part.add(process, capture)?));
        if added.is_err() {
            world(process).gone.push((part.ctx.server(), part.graph));
        }
        outcome = outcome.and(added);
    }
    mirror::sweep(process);
    outcome
}
