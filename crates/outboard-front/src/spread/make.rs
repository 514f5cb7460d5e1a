//! Makes executables that several servers have, and forgets them.

use std::collections::{BTreeMap, HashMap};

use outboard_abi::{CUgraphInstantiate_flags_enum as Flags, CUresult};
use outboard_wire::graph::{Edge, NodeParams};
use parking_lot::Mutex;

use super::flat::{Flat, flat};
use super::site::{Site, site};
use super::split::{self, LaneOf, Where, split};
use crate::backend::{Backend, ContextId, CrossingCopy, ObjectId, Result, ServerId, StreamId};
use crate::context::{self, Here};
use crate::event::DISABLE_TIMING;
use crate::graph::exec::{Failure, Whole};
use crate::graph::mirror::{flush, sweep};
use crate::graph::model::{Given, Node, Role, World, world};
use crate::logs::because;
use crate::parts::graph::spread::{CopyStep, Lane, Piece, Spread, Step, Work};
use crate::process::Process;
use crate::stream::{self, NON_BLOCKING};

/// A node and where it is.
pub(super) struct Placed {
    pub(super) node: u64,
    before: Vec<(usize, [u8; 3])>,
    pub(super) site: Site,
}

/// A graph whose parts are known.
pub(super) struct Plan {
    pub(super) nodes: Vec<Placed>,
    pub(super) steps: Vec<split::Step>,
}

impl Plan {
    /// Cuts a graph into steps; nodes that could be anywhere go to the `default` server.
    pub(super) fn of<B: Backend>(
        process: &'static Process<B>,
        graph: ObjectId,
        default: ServerId,
    ) -> std::result::Result<Plan, Failure> {
        let all = flat(&world(process), graph);
        let place = |Flat { node, params, before }| {
            let refused = |error| Failure { node, ..Failure::from(error) };
            check(&params).map_err(refused)?;
            Ok(Placed { node, before, site: site(process, params).map_err(refused)? })
        };
        let nodes = all.into_iter().map(place).collect::<std::result::Result<Vec<_>, Failure>>()?;
        let known = |placed: &Placed| {
            let site = match &placed.site {
                Site::Anywhere(_) => Where::Anywhere,
                Site::On(server, _) => Where::On(*server),
                Site::Between(ctx, copy) => {
                    let ((_, dst), (_, src)) = (copy.dst, copy.src);
                    Where::Between { ctx: *ctx, dst: dst.server(), src: src.server() }
                }
            };
            (site, placed.before.iter().map(|(first, _)| *first).collect())
        };
        let known: Vec<_> = nodes.iter().map(known).collect();
        Ok(Plan { steps: split(&known, default), nodes })
    }

    /// The copy that a step makes, if it is one.
    pub(super) fn copy(&self, step: &split::Step) -> Option<CrossingCopy> {
        match (step.lane, &self.nodes.get(*step.nodes.first()?)?.site) {
            (LaneOf::Copies(_), Site::Between(_, copy)) => Some(*copy),
            _ => None,
        }
    }

    /// A graph of the nodes of a step, and their names in it.
    pub(super) fn piece(
        &self,
        world: &mut World,
        step: &split::Step,
    ) -> (ObjectId, Vec<(u64, u64)>) {
        let graph = world.new_graph(Role::Piece);
        let mut names: HashMap<usize, u64> = HashMap::new();
        let mut pairs = Vec::new();
        for at in &step.nodes {
            let Placed { node, before, site } = &self.nodes[*at];
            let (Site::Anywhere(params) | Site::On(_, params)) = site else { continue };
            let within = |(first, ports): &(usize, [u8; 3])| {
                Some(Edge { node: *names.get(first)?, ports: *ports })
            };
            let edges: Vec<Edge> = before.iter().filter_map(within).collect();
            let handle = world.handle();
            let mut fresh = Node::new(graph, params.clone(), Given::Nothing);
            fresh.origin = *node;
            world.insert(handle, fresh, &edges);
            names.insert(*at, handle);
            pairs.push((*node, handle));
        }
        (graph, pairs)
    }

    /// The contexts in which servers are told of their steps: ones that their nodes name, or any.
    fn contexts<B: Backend>(&self, process: &'static Process<B>) -> Result<Contexts> {
        let mut contexts = BTreeMap::new();
        for step in &self.steps {
            let ctx = match step.lane {
                LaneOf::Copies(ctx) => Some(ctx),
                LaneOf::Pieces(server) => {
                    let of = |node: &usize| match &self.nodes[*node].site {
                        Site::On(_, params) => params.context(),
                        _ => None,
                    };
                    step.nodes.iter().find_map(of).or_else(|| context::any(process, server))
                }
            };
            let ctx = ctx.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
            contexts.entry(step.lane).or_insert(ctx);
        }
        Ok(contexts)
    }
}

type Contexts = BTreeMap<LaneOf, ContextId>;

/// Refuses nodes that a server has as part of the program's graph only.
fn check(params: &NodeParams) -> Result<()> {
    let what = match params {
        NodeParams::Allocate(_) => "allocates memory",
        NodeParams::Conditional(_) => "is conditional",
        _ => return Ok(()),
    };
    because(format!(
        "a node of the graph {what}, and the graph has work on several servers: Outboard does not \
         do this yet. Put the work that is on one server into a graph of its own"
    ));
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

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
    let mut lanes: BTreeMap<LaneOf, (usize, Here)> = BTreeMap::new();
    for (of, ctx) in plan.contexts(process)? {
        let here = live(process, ctx)?;
        spread.lanes.push(lane(process, &here, matches!(of, LaneOf::Pieces(_)))?);
        lanes.insert(of, (spread.lanes.len() - 1, here));
    }
    for step in &plan.steps {
        let Some((lane, here)) = lanes.get(&step.lane) else { continue };
        let at = spread.steps.len();
        let work = match plan.copy(step) {
            Some(copy) => {
                spread
                    .nodes
                    .extend(step.nodes.iter().map(|node| (plan.nodes[*node].node, (at, 0))));
                Work::Copy(Mutex::new(CopyStep { copy, is_enabled: true }))
            }
            None => {
                let (graph, names) = plan.piece(&mut world(process), step);
                spread.nodes.extend(names.iter().map(|(node, name)| (*node, (at, *name))));
                match instantiate(process, here, graph, flags) {
                    Ok(exec) => Work::Piece(Piece { exec, graph: Some(graph) }),
                    Err(mut failure) => {
                        let node = names.iter().find(|(_, name)| *name == failure.node);
                        failure.node = node.map_or(0, |(node, _)| *node);
                        world(process).drop_graph(process, graph);
                        return Err(failure);
                    }
                }
            }
        };
        let (waits, begins, ends) = (step.waits.clone(), step.begins, step.ends);
        spread.steps.push(Step { lane: *lane, work, waits, begins, ends, event: None });
        if step.is_awaited || step.ends {
            let event = crate::event::create(process, here, DISABLE_TIMING)?;
            spread.steps[at].event = Some(event.id());
        }
    }
    Ok(())
}

fn lane<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    is_for_pieces: bool,
) -> Result<Lane> {
    let stream = StreamId::created(ObjectId(stream::create(process, here, NON_BLOCKING, 0)?));
    Ok(Lane { ctx: here.id, stream, is_for_pieces })
}

fn instantiate<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    graph: ObjectId,
    flags: u64,
) -> std::result::Result<ObjectId, Failure> {
    flush(process, here, graph)?;
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
    spread.lanes.push(lane(process, &here, true)?);
    let event = match crate::event::create(process, &here, DISABLE_TIMING) {
        Ok(event) => Some(event.id()),
        Err(error) => {
            forget(process, &spread);
            return Err(error);
        }
    };
    let work = Work::Piece(Piece { exec: whole.id, graph: None });
    spread.steps.push(Step { lane: 0, work, waits: Vec::new(), begins: true, ends: true, event });
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
    spread.lanes.iter().map(|lane| lane.ctx).filter(is_there).collect()
}

/// Forgets all that a spread executable has. Launches under way still run.
pub(crate) fn forget<B: Backend>(process: &'static Process<B>, spread: &Spread) {
    for step in &spread.steps {
        let Some(lane) = spread.lanes.get(step.lane) else { continue };
        if let Some(event) = step.event {
            forget_event(process, lane.ctx, event);
        }
        if let Work::Piece(Piece { exec, graph: Some(graph) }) = &step.work {
            // Any context of the server will do. Without one, the server has forgotten it.
            if let Some(ctx) = context::any(process, lane.ctx.server()) {
                let _ = process.backend.graph_exec_destroy(ctx, *exec);
            }
            world(process).drop_graph(process, *graph);
        }
    }
    for (ctx, event) in spread.launches.lock().begins.drain() {
        forget_event(process, ctx, event);
    }
    for lane in &spread.lanes {
        // It may have gone with its context.
        if let Some(stream) = lane.stream.object() {
            let _ = stream::destroy(process, stream.0);
        }
    }
    sweep(process);
}

fn forget_event<B: Backend>(process: &'static Process<B>, ctx: ContextId, event: ObjectId) {
    if process.events.table.remove(event.0).is_some() {
        let _ = process.backend.event_destroy(ctx, event);
    }
}
