//! Makes executables that several servers have, and forgets them.

use std::collections::BTreeMap;

use outboard_abi::{CUgraphInstantiate_flags_enum as Flags, CUresult};
use parking_lot::Mutex;

use super::plan::{Names, Plan};
use super::split::TrackOf;
use crate::backend::{Backend, ContextId, ObjectId, Result, StreamId};
use crate::context::{self, Here};
use crate::event::DISABLE_TIMING;
use crate::graph::exec::{Failure, Whole};
use crate::graph::mirror::{flush, flush_part, sweep};
use crate::graph::model::world;
use crate::logs::because;
use crate::parts::graph::spread::{CopyStep, Origin, Piece, Spread, Step, Track, Work};
use crate::process::Process;
use crate::stream::{self, NON_BLOCKING};

/// The context, if it can be worked in.
pub(super) fn live<B: Backend>(process: &'static Process<B>, ctx: ContextId) -> Result<Here> {
    context::by_id(process, ctx).ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)?.live()
}

/// Makes an executable of a graph whose nodes are on several servers.
pub(crate) fn make<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    graph: ObjectId,
    flags: u64,
) -> std::result::Result<Spread, Failure> {
    if flags & u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0) != 0 {
        because(
            "a graph with work on several servers cannot be launched by kernels: each server has \
             a part of it only",
        );
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED.into());
    }
    let plan = Plan::of(process, graph, here.id.server())?;
    let mut spread = Spread::default();
    match fill(process, &plan, flags, &mut spread) {
        Ok(()) => Ok(spread),
        Err(failure) => {
            forget(process, &spread);
            Err(failure)
        }
    }
}

/// Makes what the steps of a plan need.
fn fill<B: Backend>(
    process: &'static Process<B>,
    plan: &Plan,
    flags: u64,
    spread: &mut Spread,
) -> std::result::Result<(), Failure> {
    // Uploading needs a stream, and is done once all is there.
    let flags = flags & !u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0);
    let mut tracks: BTreeMap<TrackOf, (usize, Here)> = BTreeMap::new();
    for (of, ctx) in plan.contexts(process)? {
        let here = live(process, ctx)?;
        spread.tracks.push(track(process, &here, matches!(of, TrackOf::Pieces(_)))?);
        tracks.insert(of, (spread.tracks.len() - 1, here));
    }
    for step in &plan.steps {
        let Some((track, here)) = tracks.get(&step.track) else { continue };
        let at = spread.steps.len();
        let (work, names) = match plan.copy(step) {
            Some(copy) => {
                let names = step.nodes.iter().map(|node| (plan.nodes[*node].node, 0)).collect();
                (Work::Copy(Mutex::new(CopyStep { copy, is_enabled: true })), names)
            }
            None => {
                let (piece, names) = piece(process, here, (plan, at), flags)?;
                (Work::Piece(piece), names)
            }
        };
        spread.nodes.extend(names.into_iter().map(|(node, name)| (node, (at, name))));
        let (waits, begins, ends) = (step.waits.clone(), step.begins, step.ends);
        spread.steps.push(Step { track: *track, work, waits, begins, ends, event: None });
        if step.is_awaited || step.ends {
            let event = crate::event::create(process, here, DISABLE_TIMING)?;
            spread.steps[at].event = Some(event.id());
        }
    }
    Ok(())
}

/// Has a server make a piece; gives its nodes' names for the program and for the server, too.
fn piece<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    (plan, step): (&Plan, usize),
    flags: u64,
) -> std::result::Result<(Piece, Names), Failure> {
    let (origin, graph, names) = match &plan.home {
        Some(home) if home.step == step => (Origin::Program, home.graph, home.names.clone()),
        _ => {
            let (graph, names) = plan.piece(&mut world(process), &plan.steps[step]);
            (Origin::Cut(graph), graph, names)
        }
    };
    let told = match origin {
        Origin::Cut(_) => flush(process, here, graph),
        _ => flush_part(process, here, graph, &names.iter().map(|(_, name)| *name).collect()),
    };
    let made = told.map_err(Failure::from);
    match made.and_then(|()| instantiate(process, here, graph, flags)) {
        Ok(exec) => Ok((Piece { exec, origin }, names)),
        Err(failure) => {
            drop_graph(process, origin);
            let blamed = names.iter().find(|(_, name)| *name == failure.node);
            Err(Failure { node: blamed.map_or(0, |(node, _)| *node), ..failure })
        }
    }
}

fn track<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    is_for_pieces: bool,
) -> Result<Track> {
    let stream = StreamId::created(ObjectId(stream::create(process, here, NON_BLOCKING, 0)?));
    Ok(Track { ctx: here.id, stream, is_for_pieces })
}

fn instantiate<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    graph: ObjectId,
    flags: u64,
) -> std::result::Result<ObjectId, Failure> {
    let id = ObjectId(world(process).handle());
    let backend = process.backend;
    let made = backend.graph_instantiate(here.id, graph, id, flags, StreamId::LEGACY);
    Failure::check(here.note(made)?)?;
    Ok(id)
}

/// How streams of other servers launch an executable that one server has.
pub(crate) fn elsewhere<'a, B: Backend>(
    process: &'static Process<B>,
    whole: &'a Whole,
) -> Result<&'a Spread> {
    if let Some(known) = whole.elsewhere.get() {
        return Ok(known);
    }
    let ctx = context::any(process, whole.server).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    let here = live(process, ctx)?;
    let mut spread = Spread::default();
    spread.tracks.push(track(process, &here, true)?);
    let event = match crate::event::create(process, &here, DISABLE_TIMING) {
        Ok(event) => Some(event.id()),
        Err(error) => {
            forget(process, &spread);
            return Err(error);
        }
    };
    let work = Work::Piece(Piece { exec: whole.id, origin: Origin::Whole });
    spread.steps.push(Step { track: 0, work, waits: Vec::new(), begins: true, ends: true, event });
    if let Err(second) = whole.elsewhere.set(spread) {
        // Another thread was faster.
        forget(process, &second);
    }
    whole.elsewhere.get().ok_or(CUresult::CUDA_ERROR_UNKNOWN)
}

/// The contexts in which it works that are still there.
pub(crate) fn contexts<B: Backend>(
    process: &'static Process<B>,
    spread: &Spread,
) -> Vec<ContextId> {
    let is_there = |ctx: &ContextId| context::by_id(process, *ctx).is_some();
    spread.tracks.iter().map(|track| track.ctx).filter(is_there).collect()
}

/// Forgets all that a spread executable has. Launches under way still run.
pub(crate) fn forget<B: Backend>(process: &'static Process<B>, spread: &Spread) {
    for step in &spread.steps {
        let Some(track) = spread.tracks.get(step.track) else { continue };
        if let Some(event) = step.event {
            forget_event(process, track.ctx, event);
        }
        if let Work::Piece(Piece { exec, origin }) = &step.work
            && *origin != Origin::Whole
        {
            // Any context of the server will do. Without one, the server has forgotten it.
            if let Some(ctx) = context::any(process, track.ctx.server()) {
                let _ = process.backend.graph_exec_destroy(ctx, *exec);
            }
            drop_graph(process, *origin);
        }
    }
    for (ctx, event) in spread.launches.lock().begins.drain() {
        forget_event(process, ctx, event);
    }
    for track in &spread.tracks {
        // It may have gone with its context.
        if let Some(stream) = track.stream.object() {
            let _ = stream::destroy(process, stream.0);
        }
    }
    sweep(process);
}

/// A piece is gone, and its graph with it, if that was its own.
fn drop_graph<B: Backend>(process: &'static Process<B>, origin: Origin) {
    if let Origin::Cut(graph) = origin {
        world(process).drop_graph(process, graph);
    }
}

fn forget_event<B: Backend>(process: &'static Process<B>, ctx: ContextId, event: ObjectId) {
    if process.events.table.remove(event.0).is_some() {
        let _ = process.backend.event_destroy(ctx, event);
    }
}
