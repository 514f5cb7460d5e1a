//! Graphs: nodes and edges, and executables made of them.
//!
//! The object model is here ([`model`]); questions about a graph and changes to it need no device.
//! Before an executable is made or updated, the front sends the changes to the device ([`mirror`]).

pub(crate) mod build;
pub(crate) mod exec;
pub(crate) mod exec_set;
pub(crate) mod memory;
pub(crate) mod mirror;
pub(crate) mod model;
pub(crate) mod node;
pub(crate) mod object;
pub(crate) mod params;
pub(crate) mod site;

use outboard_abi::{CUgraphEdgeData, CUgraphNode, CUresult};
use outboard_wire::graph::Edge;

use crate::backend::Result;
use crate::border::{require, slice};

/// The nodes that a call names, and the data of the edges to them if it gives any.
///
/// # Safety
/// The pointers are null or have `count` elements.
pub(crate) unsafe fn named_edges<'a>(
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<(&'a [CUgraphNode], Option<&'a [CUgraphEdgeData]>)> {
    // SAFETY: by the contract above.
    unsafe {
        let nodes = slice(nodes, count)?;
        let data = if data.is_null() { None } else { Some(slice(data, count)?) };
        Ok((nodes, data))
    }
}

/// Edges to nodes; without data, full dependencies.
pub(crate) fn edges_of(
    nodes: &[CUgraphNode],
    data: Option<&[CUgraphEdgeData]>,
) -> Result<Vec<Edge>> {
    let edges = nodes.iter().enumerate().map(|(index, node)| {
        let ports = match data.and_then(|data| data.get(index)) {
            None => [0; 3],
            Some(data) => {
                require(
                    data.reserved == [0; 5]
                        && data.to_port == 0
                        && data.from_port <= 2
                        && data.type_ <= 1,
                )?;
                [data.from_port, data.to_port, data.type_]
            }
        };
        Ok(Edge { node: *node as u64, ports })
    });
    edges.collect()
}

/// Edge data as C has it.
pub(crate) fn edge_data([from, to, kind]: [u8; 3]) -> [u8; 8] {
    [from, to, kind, 0, 0, 0, 0, 0]
}

/// Gives a list to a program that asks for its length (null `out`), or for as much of it as it has
/// room for; what is left of the room is zeroed.
///
/// # Safety
/// `out` is null or has `*count` elements; `count` is null or valid.
pub(crate) unsafe fn give<T: Copy>(
    list: &[T],
    zero: T,
    out: *mut T,
    count: *mut usize,
) -> Result<()> {
    require(!count.is_null())?;
    // SAFETY: not null, by the contract above valid.
    let room = unsafe { count.read() };
    if !out.is_null() {
        for index in 0..room {
            // SAFETY: by the contract above.
            unsafe { out.add(index).write(list.get(index).copied().unwrap_or(zero)) };
        }
    }
    let given = if out.is_null() { list.len() } else { list.len().min(room) };
    // SAFETY: as above.
    unsafe { count.write(given) };
    Ok(())
}

/// Refuses edges with data, for a call that has no room to return it.
pub(crate) fn check_lossless(edges: &[Edge]) -> Result<()> {
    let plain = edges.iter().all(|edge| edge.ports == [0; 3]);
    if plain { Ok(()) } else { Err(CUresult::CUDA_ERROR_LOSSY_QUERY) }
}
