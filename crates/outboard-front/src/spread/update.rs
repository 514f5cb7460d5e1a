//! Changes of executables that several servers have.

use outboard_abi::{CUgraphExecUpdateResult_enum as Outcome, CUresult};
use outboard_wire::graph::NodeParams;

use super::flat::flat;
use super::make::live;
use super::plan::Plan;
use super::site::{Site, site};
use super::split::{self, TrackOf};
use crate::backend::{Backend, CrossingCopy, ObjectId, Result, Updated};
use crate::border::require;
use crate::graph::exec_set::fits;
use crate::graph::mirror::{flush, sweep};
use crate::graph::model::{INVALID, world};
use crate::logs::because;
use crate::parts::graph::spread::{Piece, Spread, Step, Track, Work};
use crate::process::Process;
use crate::several::one_server;

/// The step that has a node, its track, and the name by which the track's server knows the node.
fn step_of(spread: &Spread, node: u64) -> Result<(&Step, &Track, u64)> {
    let (step, name) = spread.nodes.get(&node).ok_or(INVALID)?;
    let step = spread.steps.get(*step).ok_or(INVALID)?;
    Ok((step, spread.tracks.get(step.track).ok_or(INVALID)?, *name))
}

/// Refuses a copy whose sides are on other servers than before.
fn stays(before: &CrossingCopy, copy: &CrossingCopy) -> Result<()> {
    one_server(before.dst.1.server(), [copy.dst.1.server()])?;
    one_server(before.src.1.server(), [copy.src.1.server()])
}

/// Gives a node other parameters of the kind that it has. It stays on its server.
pub(crate) fn set<B: Backend>(
    process: &'static Process<B>,
    spread: &Spread,
    node: u64,
    params: NodeParams,
) -> Result<()> {
    let (step, track, name) = step_of(spread, node)?;
    match (&step.work, site(process, params)?) {
        (Work::Copy(step), Site::Between(_, copy)) => {
            let mut step = step.lock();
            stays(&step.copy, &copy)?;
            step.copy = copy;
            Ok(())
        }
        (Work::Copy(step), Site::On(server, _)) => {
            let copy = step.lock().copy;
            one_server(server, [copy.dst.1.server(), copy.src.1.server()]).and(Err(INVALID))
        }
        (Work::Piece(_), Site::Between(_, copy)) => {
            let sides = [copy.dst.1.server(), copy.src.1.server()];
            one_server(track.ctx.server(), sides).and(Err(INVALID))
        }
        (Work::Piece(piece), Site::On(_, params) | Site::Anywhere(params)) => {
            let here = live(process, track.ctx)?;
            one_server(here.id.server(), params.context().map(|ctx| ctx.server()))?;
            here.note(process.backend.graph_exec_set(here.id, piece.exec, name, params))
        }
        (Work::Copy(_), Site::Anywhere(_)) => Err(INVALID),
    }
}

/// Gives the nodes of the graph inside a node the parameters of another graph of the same shape.
pub(crate) fn set_child<B: Backend>(
    process: &'static Process<B>,
    spread: &Spread,
    node: u64,
    child: ObjectId,
) -> Result<()> {
    let pairs: Vec<(u64, NodeParams)> = {
        let world = world(process);
        let NodeParams::Child { graph, .. } = world.node(node)?.params else { return Err(INVALID) };
        let (old, new) = (flat(&world, graph), flat(&world, child));
        require(old.len() == new.len())?;
        for (old, new) in old.iter().zip(&new) {
            require(old.before == new.before && fits(&old.params, &new.params))?;
        }
        old.iter().zip(new).map(|(old, new)| (old.node, new.params)).collect()
    };
    pairs.into_iter().try_for_each(|(node, params)| set(process, spread, node, params))
}

/// Has a node do something, or nothing.
pub(crate) fn enable<B: Backend>(
    process: &'static Process<B>,
    spread: &Spread,
    node: u64,
    enabled: bool,
) -> Result<()> {
    let (step, track, name) = step_of(spread, node)?;
    match &step.work {
        Work::Copy(step) => {
            step.lock().is_enabled = enabled;
            Ok(())
        }
        Work::Piece(piece) => {
            let here = live(process, track.ctx)?;
            here.note(process.backend.graph_exec_enable(here.id, piece.exec, name, enabled))
        }
    }
}

/// Gives all nodes the parameters of a graph of the same shape whose nodes are on the same servers.
pub(crate) fn update<B: Backend>(
    process: &'static Process<B>,
    spread: &Spread,
    graph: ObjectId,
) -> Result<Updated> {
    let default = spread.tracks.first().ok_or(INVALID)?.ctx.server();
    let plan = Plan::of(process, graph, default).map_err(|failure| failure.error)?;
    if plan.home.is_some() {
        because(
            "a graph with work on several servers that allocates memory or has conditional nodes \
             cannot update an executable: make a new one",
        );
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    if !is_alike(spread, &plan) {
        return Ok(refusal(Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED));
    }
    for (step, planned) in spread.steps.iter().zip(&plan.steps) {
        let (Work::Copy(step), Some(copy)) = (&step.work, plan.copy(planned)) else { continue };
        if stays(&step.lock().copy, &copy).is_err() {
            return Ok(refusal(Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED));
        }
    }
    for (step, planned) in spread.steps.iter().zip(&plan.steps) {
        if let Work::Piece(piece) = &step.work {
            let updated =
                update_piece(process, (&spread.tracks[step.track], piece), &plan, planned)?;
            if updated.status != CUresult::CUDA_SUCCESS {
                return Ok(updated);
            }
        }
    }
    for (step, planned) in spread.steps.iter().zip(&plan.steps) {
        if let (Work::Copy(step), Some(copy)) = (&step.work, plan.copy(planned)) {
            let mut step = step.lock();
            (step.copy, step.is_enabled) = (copy, true);
        }
    }
    Ok(Updated {
        status: CUresult::CUDA_SUCCESS,
        result: Outcome::CU_GRAPH_EXEC_UPDATE_SUCCESS.0,
        node: 0,
        from: 0,
    })
}

fn refusal(result: Outcome) -> Updated {
    let status = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    Updated { status, result: result.0, node: 0, from: 0 }
}

/// Whether a graph has the steps of an executable.
fn is_alike(spread: &Spread, plan: &Plan) -> bool {
    let matches = |(step, planned): (&Step, &split::Step)| {
        let track = &spread.tracks[step.track];
        let is_there = match (planned.track, &step.work) {
            (TrackOf::Pieces(server), Work::Piece(_)) => track.ctx.server() == server,
            (TrackOf::Copies(ctx), Work::Copy(_)) => track.ctx.server() == ctx.server(),
            _ => false,
        };
        is_there && step.waits == planned.waits && step.begins == planned.begins
    };
    spread.steps.len() == plan.steps.len() && spread.steps.iter().zip(&plan.steps).all(matches)
}

fn update_piece<B: Backend>(
    process: &'static Process<B>,
    (track, piece): (&Track, &Piece),
    plan: &Plan,
    planned: &split::Step,
) -> Result<Updated> {
    let here = live(process, track.ctx)?;
    let (graph, names) = plan.piece(&mut world(process), planned);
    let updated = flush(process, &here, graph)
        .and_then(|()| here.note(process.backend.graph_exec_update(here.id, piece.exec, graph)));
    world(process).drop_graph(process, graph);
    sweep(process);
    // The server's names of nodes are not the program's.
    let own = |name: u64| names.iter().find(|(_, of)| *of == name).map_or(0, |(node, _)| *node);
    updated.map(|updated| Updated { node: own(updated.node), from: own(updated.from), ..updated })
}
