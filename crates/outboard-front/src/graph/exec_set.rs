//! Other parameters for single nodes of an executable; its graph stays as it is.

use outboard_wire::graph::{CopyNode, NodeParams, Place};

use super::exec::{Exec, Whole};
use super::model::world;
use super::site::of_node;
use crate::backend::{Backend, Result};
use crate::border::require;
use crate::context;
use crate::process::{Front, Process};
use crate::several::one_server;

/// Checks that a node is one of the executable's, of a kind that can take the parameters.
pub(crate) fn check(
    front: &'static Front,
    exec: &Exec,
    node: u64,
    params: &NodeParams,
) -> Result<()> {
    let world = world(front);
    let found = world.node(node)?;
    require(world.is_within(found.graph, exec.graph) && fits(&found.params, params))
}

/// Gives a node of an executable that one server has other parameters.
pub(crate) fn set<B: Backend>(
    process: &'static Process<B>,
    exec: &Whole,
    node: u64,
    params: NodeParams,
) -> Result<()> {
    let here = context::on(process, context::current(process)?, exec.server)?;
    one_server(exec.server, of_node(process, &params))?;
    here.note(process.backend.graph_exec_set(here.id, exec.id, node, params))
}

/// These properties of an executable cannot change: kinds, contexts, and where a copy's sides are.
pub(crate) fn fits(old: &NodeParams, new: &NodeParams) -> bool {
    fn side(place: &Place) -> core::mem::Discriminant<Place> {
        core::mem::discriminant(place)
    }
    let rows = |copy: &CopyNode| {
        (copy.extent[1] > 1 || copy.extent[2] > 1, side(&copy.dst), side(&copy.src), copy.ctx)
    };
    match (old, new) {
        (NodeParams::Kernel(old), NodeParams::Kernel(new)) => old.ctx == new.ctx,
        (NodeParams::Copy(old), NodeParams::Copy(new)) => rows(old) == rows(new),
        (NodeParams::Fill(old), NodeParams::Fill(new)) => {
            old.ctx == new.ctx && (old.height > 1) == (new.height > 1)
        }
        (old, new) => core::mem::discriminant(old) == core::mem::discriminant(new),
    }
}
