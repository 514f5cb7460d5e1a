//! Changes of a graph that have not been sent to the device yet.

use std::collections::BTreeSet;

use outboard_wire::graph::{Edge, GraphEdit, NodeParams};

use super::model::{Role, World, world};
use super::site::of_graph;
use crate::backend::{Backend, ObjectId, Result, ServerId};
use crate::context::{self, Here};
use crate::process::Process;
use crate::several::one_server;

pub(crate) use crate::parts::graph::mirror::Mirror;

/// Edits that travel in one message take about this many bytes at most.
const BATCH_BYTES: usize = 256 << 10;

/// The changes, in order.
#[derive(Debug)]
pub(crate) enum Step {
    Create(ObjectId),
    Edit(ObjectId, Vec<GraphEdit>),
}

impl World {
    /// Collects what a server must be told of a graph and of those inside it. True if there is
    /// anything.
    pub(crate) fn flush(
        &mut self,
        server: ServerId,
        handle: ObjectId,
        steps: &mut Vec<Step>,
    ) -> bool {
        let Some(graph) = self.graphs.get_mut(&handle) else { return false };
        let news = Mirror { known: Some(server), ..Mirror::default() };
        let Mirror { known, fresh, log, mut changed } = std::mem::replace(&mut graph.mirror, news);
        let nodes: Vec<u64> = graph.nodes.iter().copied().collect();
        if known.is_none() && !matches!(graph.role, Role::Body(_)) {
            steps.push(Step::Create(handle));
        }

        // Child graphs first: a node takes its graph along as it is, unless that has been moved
        // there.
        let mut inside = false;
        for node in nodes {
            let Some(NodeParams::Child { graph, moved }) =
                self.nodes.get(&node).map(|node| &node.params)
            else {
                continue;
            };
            let (graph, moved) = (*graph, *moved);
            let news = self.flush(server, graph, steps);
            inside |= news;
            if news && !moved && self.nodes.get(&node).is_some_and(|node| node.sent) {
                changed.insert(node);
            }
        }

        let mut edits = Vec::new();
        let (mut later, mut bodies) = (Vec::new(), Vec::new());
        for node in fresh {
            let Some(found) = self.nodes.get(&node) else { continue };
            if let NodeParams::Conditional(node) = &found.params {
                bodies.extend(node.bodies.iter().copied());
            }
            let is_known =
                |edge: &&Edge| self.nodes.get(&edge.node).is_some_and(|first| first.sent);
            let (dependencies, unknown): (Vec<&Edge>, Vec<&Edge>) =
                found.dependencies.iter().partition(is_known);
            later.extend(
                unknown.into_iter().map(|from| GraphEdit::Connect { from: *from, to: node }),
            );
            let dependencies = dependencies.into_iter().copied().collect();
            edits.push(GraphEdit::Add { node, dependencies, params: found.params.clone() });
            if let Some(found) = self.nodes.get_mut(&node) {
                found.sent = true;
            }
        }
        edits.extend(later);
        edits.extend(log);
        for node in changed {
            if let Some(found) = self.nodes.get(&node) {
                edits.push(GraphEdit::Set { node, params: found.params.clone() });
            }
        }
        let mut any = inside || !edits.is_empty() || known.is_none();
        batch(handle, edits, steps);

        // The bodies exist once the node does.
        let known_bodies: Vec<ObjectId> = self.bodies(handle);
        bodies.extend(known_bodies);
        bodies.sort_unstable();
        bodies.dedup();
        for body in bodies {
            any |= self.flush(server, body, steps);
        }
        any
    }
}

impl World {
    /// Collects what a server must be told of a part of a graph, and of graphs inside its nodes. It
    /// hears of no other nodes; those that it knows are all of the part.
    pub(crate) fn flush_part(
        &mut self,
        server: ServerId,
        handle: ObjectId,
        part: &BTreeSet<u64>,
        steps: &mut Vec<Step>,
    ) {
        let Some(graph) = self.graphs.get_mut(&handle) else { return };
        let mirror = &mut graph.mirror;
        if mirror.known.replace(server).is_none() {
            steps.push(Step::Create(handle));
        }
        let of_part = |edit: &GraphEdit| match edit {
            GraphEdit::Connect { from, to } | GraphEdit::Disconnect { from, to } => {
                part.contains(&from.node) && part.contains(to)
            }
            _ => true,
        };
        let (fresh, others) = std::mem::take(&mut mirror.fresh)
            .into_iter()
            .partition::<Vec<u64>, _>(|node| part.contains(node));
        let (log, mut later) =
            std::mem::take(&mut mirror.log).into_iter().partition::<Vec<GraphEdit>, _>(of_part);
        let changed = std::mem::take(&mut mirror.changed);
        let (mut edits, mut connects) = (Vec::new(), Vec::new());
        for node in fresh {
            let Some(found) = self.nodes.get(&node) else { continue };
            let mut dependencies = Vec::new();
            for edge in &found.dependencies {
                let connect = GraphEdit::Connect { from: *edge, to: node };
                match self.nodes.get(&edge.node) {
                    _ if !part.contains(&edge.node) => later.push(connect),
                    Some(first) if first.sent => dependencies.push(*edge),
                    _ => connects.push(connect),
                }
            }
            edits.push(GraphEdit::Add { node, dependencies, params: found.params.clone() });
            if let Some(found) = self.nodes.get_mut(&node) {
                found.sent = true;
            }
        }
        edits.extend(connects);
        edits.extend(log);
        for node in changed {
            if let Some(found) = self.nodes.get(&node) {
                edits.push(GraphEdit::Set { node, params: found.params.clone() });
            }
        }
        batch(handle, edits, steps);
        if let Some(graph) = self.graphs.get_mut(&handle) {
            (graph.mirror.fresh, graph.mirror.log) = (others, later);
        }
        for body in self.bodies(handle) {
            self.flush(server, body, steps);
        }
    }
}

/// Cuts edits into messages.
fn batch(graph: ObjectId, edits: Vec<GraphEdit>, steps: &mut Vec<Step>) {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for edit in edits {
        let size = edit.size();
        if bytes + size > BATCH_BYTES && !part.is_empty() {
            steps.push(Step::Edit(graph, std::mem::take(&mut part)));
            bytes = 0;
        }
        bytes += size;
        part.push(edit);
    }
    if !part.is_empty() {
        steps.push(Step::Edit(graph, part));
    }
}

/// Tells the device all that has changed in a graph, which stays with one server.
pub(crate) fn flush<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    graph: ObjectId,
) -> Result<()> {
    let mut steps = Vec::new();
    let server = here.id.server();
    {
        let mut world = world(process);
        one_server(server, of_graph(process, &world, graph))?;
        world.flush(server, graph, &mut steps);
    }
    send(process, here, steps)
}

/// As [`flush`], of some nodes alone.
pub(crate) fn flush_part<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    graph: ObjectId,
    part: &BTreeSet<u64>,
) -> Result<()> {
    let mut steps = Vec::new();
    world(process).flush_part(here.id.server(), graph, part, &mut steps);
    send(process, here, steps)
}

fn send<B: Backend>(process: &'static Process<B>, here: &Here, steps: Vec<Step>) -> Result<()> {
    steps.into_iter().try_for_each(|step| {
        here.note(match step {
            Step::Create(graph) => process.backend.graph_create(here.id, graph),
            Step::Edit(graph, edits) => process.backend.graph_edit(here.id, graph, edits),
        })
    })
}

/// Lets servers forget graphs that are gone here.
pub(crate) fn sweep<B: Backend>(process: &'static Process<B>) {
    let gone = std::mem::take(&mut world(process).gone);
    for (server, graph) in gone {
        // Any context of the server will do: graphs are of none. Without one, the server has
        // forgotten the graph.
        if let Some(ctx) = context::any(process, server) {
            // Nobody can be told of a failure, and there is nothing left to fail.
            let _ = process.backend.graph_destroy(ctx, graph);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Given, World};
    use super::*;
    use crate::process::front;

    fn edge(node: u64) -> Edge {
        Edge { node, ports: [0; 3] }
    }

    fn empty(world: &mut World, graph: ObjectId, before: &[u64]) -> u64 {
        let edges: Vec<Edge> = before.iter().copied().map(edge).collect();
        world.add(graph, &edges, NodeParams::Empty, Given::Nothing).unwrap()
    }

    fn told(world: &mut World, graph: ObjectId) -> Vec<GraphEdit> {
        let mut steps = Vec::new();
        world.flush(ServerId::FIRST, graph, &mut steps);
        let edits = steps
            .into_iter()
            .filter_map(|step| if let Step::Edit(_, edits) = step { Some(edits) } else { None });
        edits.flatten().collect()
    }

    #[test]
    fn only_what_has_changed_is_told() {
        let mut world = World::default();
        let graph = world.new_graph(Role::Own);
        let a = empty(&mut world, graph, &[]);
        let b = empty(&mut world, graph, &[a]);
        assert_eq!(told(&mut world, graph).len(), 2);
        assert!(told(&mut world, graph).is_empty());
        let c = empty(&mut world, graph, &[b]);
        // Edges to nodes that are not known yet travel with those, or behind all of them.
        world.connect(graph, edge(a), c).unwrap();
        world.disconnect(graph, edge(a), b).unwrap();
        let add = GraphEdit::Add {
            node: c,
            dependencies: vec![edge(b), edge(a)],
            params: NodeParams::Empty,
        };
        assert_eq!(told(&mut world, graph), [add, GraphEdit::Disconnect { from: edge(a), to: b }]);
        let d = empty(&mut world, graph, &[c]);
        world.remove(front(), d);
        world.remove(front(), c);
        assert_eq!(told(&mut world, graph), [GraphEdit::Remove { node: c }]);
    }

    #[test]
    fn an_older_node_may_wait_for_a_younger_one() {
        let mut world = World::default();
        let graph = world.new_graph(Role::Own);
        let a = empty(&mut world, graph, &[]);
        let b = empty(&mut world, graph, &[]);
        world.connect(graph, edge(b), a).unwrap();
        assert!(world.connect(graph, edge(a), b).is_err(), "a circle");
        let edits = told(&mut world, graph);
        assert_eq!(edits[2], GraphEdit::Connect { from: edge(b), to: a });
    }

    #[test]
    fn a_captured_graph_is_gone_with_the_last_node_that_runs_it() {
        let mut world = World::default();
        let (graph, captured) = (world.new_graph(Role::Own), ObjectId(7));
        let params = NodeParams::Captured { ctx: crate::backend::ContextId(1), graph: captured };
        let node = world.add(graph, &[], params.clone(), Given::Nothing).unwrap();
        let copy = world.clone_graph(front(), graph, Role::Own).unwrap();
        let again = world.clone_graph(front(), copy, Role::Own).unwrap();
        let copied = *world.graph(copy).unwrap().nodes.first().unwrap();
        let add = GraphEdit::Add { node: copied, dependencies: Vec::new(), params };
        assert_eq!(told(&mut world, copy), [add]);
        world.remove(front(), node);
        world.drop_graph(front(), again);
        assert!(world.gone.is_empty());
        world.drop_graph(front(), copy);
        assert!(world.gone.contains(&(ServerId::FIRST, captured)) && world.captured.is_empty());
    }

    #[test]
    fn a_changed_child_graph_is_told_again() {
        let mut world = World::default();
        let (graph, inner) = (world.new_graph(Role::Own), world.new_graph(Role::Own));
        empty(&mut world, inner, &[]);
        let node = world.handle();
        let copy = world.clone_graph(front(), inner, Role::Child(node)).unwrap();
        let params = NodeParams::Child { graph: copy, moved: false };
        world.insert(
            node,
            super::super::model::Node::new(graph, params.clone(), Given::Nothing),
            &[],
        );
        assert_eq!(told(&mut world, graph).len(), 2);
        empty(&mut world, copy, &[]);
        let edits = told(&mut world, graph);
        assert_eq!(edits.last(), Some(&GraphEdit::Set { node, params }));
        world.drop_graph(front(), graph);
        assert_eq!(world.gone.len(), 2);
        assert_eq!(world.nodes.len(), 1, "only the original's node is left");
    }

    #[test]
    fn a_part_is_told_without_what_is_around_it() {
        let mut world = World::default();
        let graph = world.new_graph(Role::Own);
        let a = empty(&mut world, graph, &[]);
        let b = empty(&mut world, graph, &[a]);
        let c = empty(&mut world, graph, &[a, b]);
        let mut steps = Vec::new();
        world.flush_part(ServerId::FIRST, graph, &[a, c].into(), &mut steps);
        let add = |node, before: &[u64]| GraphEdit::Add {
            node,
            dependencies: before.iter().copied().map(edge).collect(),
            params: NodeParams::Empty,
        };
        assert!(matches!(steps[0], Step::Create(_)));
        let Step::Edit(_, edits) = &steps[1] else { panic!("{steps:?}") };
        assert_eq!(*edits, [add(a, &[]), add(c, &[a])]);
        // The rest comes with the rest, also its edges.
        let connect = GraphEdit::Connect { from: edge(b), to: c };
        assert_eq!(told(&mut world, graph), [add(b, &[a]), connect]);
    }

    #[test]
    fn a_moved_graph_is_told_once() {
        let mut world = World::default();
        let (graph, inner) = (world.new_graph(Role::Own), world.new_graph(Role::Own));
        let first = empty(&mut world, inner, &[]);
        let node = world.handle();
        let params = NodeParams::Child { graph: inner, moved: true };
        world.insert(node, super::super::model::Node::new(graph, params, Given::Nothing), &[]);
        world.graph_mut(inner).unwrap().role = Role::Child(node);
        assert!(world.to_be_copied(inner).is_err() && world.to_be_copied(graph).is_ok());
        assert!(world.is_within(inner, graph));
        assert_eq!(told(&mut world, graph).len(), 2);
        let second = empty(&mut world, inner, &[first]);
        let add = GraphEdit::Add {
            node: second,
            dependencies: vec![edge(first)],
            params: NodeParams::Empty,
        };
        assert_eq!(told(&mut world, graph), [add]);
        world.drop_graph(front(), graph);
        assert!(world.nodes.is_empty() && world.gone.len() == 2);
    }
}
