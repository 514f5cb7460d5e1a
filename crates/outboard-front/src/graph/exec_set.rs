//! Other parameters for single nodes of an executable; its graph stays as it is.

use outboard_abi::{CUgraphExec, CUgraphNode};
use outboard_wire::graph::{CopyNode, NodeParams, Place};

use super::exec::resolve;
use super::model::world;
use crate::backend::{Backend, ContextId, Result};
use crate::border::require;
use crate::context;
use crate::process::Process;
use crate::several::one_server;

/// Gives a node of an executable other parameters, if they are of a kind that it can take.
pub(crate) fn set<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: NodeParams,
) -> Result<()> {
    let exec = resolve(process, exec)?;
    {
        let world = world(process);
        let found = world.node(node as u64)?;
        require(world.is_within(found.graph, exec.graph) && fits(&found.params, &params))?;
    }
    let here = context::on(process, context::current(process)?, exec.server)?;
    one_server(exec.server, params.context().map(ContextId::server))?;
    here.note(process.backend.graph_exec_set(here.id, exec.id, node as u64, params))
}

/// These properties of an executable cannot change: kinds, contexts, and where a copy's sides are.
fn fits(old: &NodeParams, new: &NodeParams) -> bool {
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
