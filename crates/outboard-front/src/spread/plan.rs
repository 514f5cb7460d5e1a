//! What is to be made of a graph whose nodes are on several servers.

use std::collections::{BTreeMap, HashMap};

use outboard_abi::CUresult;
use outboard_wire::graph::Edge;

use super::flat::{Flat, flat};
use super::home::{self, Home, release_allocations};
use super::site::{Placed, Site, site};
use super::split::{self, TrackOf, Where, split};
use crate::backend::{Backend, ContextId, CrossingCopy, ObjectId, Result, ServerId};
use crate::context;
use crate::graph::exec::Failure;
use crate::graph::model::{Given, Node, Role, World, world};
use crate::process::Process;

/// A graph whose parts are known.
pub(super) struct Plan {
    pub(super) nodes: Vec<Placed>,
    pub(super) steps: Vec<split::Step>,
    pub(super) home: Option<Home>,
}

impl Plan {
    /// Cuts a graph into steps; nodes that could be anywhere go to the `default` server.
    pub(super) fn of<B: Backend>(
        process: &'static Process<B>,
        graph: ObjectId,
        default: ServerId,
    ) -> std::result::Result<Plan, Failure> {
        let mut all = flat(&world(process), graph);
        release_allocations(&mut all);
        let bound = home::bound(&all);
        let place = |Flat { node, params, before }| {
            let refused = |error| Failure { node, ..Failure::from(error) };
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
        let steps = split(&known, default);
        let home = match bound.is_empty() {
            true => None,
            false => Some(Home::of(process, graph, &nodes, &steps, &bound)?),
        };
        Ok(Plan { nodes, steps, home })
    }

    /// The copy that a step makes, if it is one.
    pub(super) fn copy(&self, step: &split::Step) -> Option<CrossingCopy> {
        match (step.track, &self.nodes.get(*step.nodes.first()?)?.site) {
            (TrackOf::Copies(_), Site::Between(_, copy)) => Some(*copy),
            _ => None,
        }
    }

    /// A graph of the nodes of a step, and their names in it.
    pub(super) fn piece(&self, world: &mut World, step: &split::Step) -> (ObjectId, Names) {
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
    pub(super) fn contexts<B: Backend>(&self, process: &'static Process<B>) -> Result<Contexts> {
        let mut contexts = BTreeMap::new();
        for step in &self.steps {
            let ctx = match step.track {
                TrackOf::Copies(ctx) => Some(ctx),
                TrackOf::Pieces(server) => {
                    let of = |node: &usize| match &self.nodes[*node].site {
                        Site::On(_, params) => params.context(),
                        _ => None,
                    };
                    step.nodes.iter().find_map(of).or_else(|| context::any(process, server))
                }
            };
            let ctx = ctx.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
            contexts.entry(step.track).or_insert(ctx);
        }
        Ok(contexts)
    }
}

/// Nodes of a piece: by the program's name and by the server's.
pub(super) type Names = Vec<(u64, u64)>;

type Contexts = BTreeMap<TrackOf, ContextId>;
