//! A graph as text that Graphviz draws.

use core::ffi::{c_char, c_uint};
use std::fmt::Write;

use outboard_abi::{CUgraph, CUgraphDebugDot_flags_enum as Flags, CUresult};
use outboard_wire::graph::{NodeParams, Place};

use crate::backend::{Backend, ObjectId, Result};
use crate::border::text;
use crate::graph::model::{World, world};
use crate::process::{Front, Process};

pub unsafe fn cuGraphDebugDotPrint<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    path: *const c_char,
    flags: c_uint,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's string.
    let path = unsafe { text(path) }?;
    let drawn = {
        let world = world(process);
        world.graph(ObjectId(graph as u64))?;
        let mut out = String::from("digraph dot {\n");
        draw(process, &world, ObjectId(graph as u64), flags, &mut out);
        out.push_str("}\n");
        out
    };
    outboard_threads::writing(|| std::fs::write(path, drawn))
        .map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
}

/// Draws a graph and those inside its nodes, each as a cluster.
fn draw(front: &'static Front, world: &World, handle: ObjectId, flags: u32, out: &mut String) {
    let Ok(graph) = world.graph(handle) else { return };
    let serial = graph.serial;
    let name = |node: u64| format!("\"graph_{serial}_node_{}\"", graph.nodes.range(..node).count());
    let _ = writeln!(out, "subgraph cluster_{serial} {{\nlabel=\"graph_{serial}\"");
    for &node in &graph.nodes {
        let Ok(found) = world.node(node) else { continue };
        let _ =
            writeln!(out, "{}[label=\"{}\"]", name(node), label(front, &found.params, node, flags));
        for edge in &found.dependencies {
            let style = if edge.ports == [0; 3] { "" } else { " [style=dashed]" };
            let _ = writeln!(out, "{} -> {}{style}", name(edge.node), name(node));
        }
    }
    out.push_str("}\n");
    for &node in &graph.nodes {
        match world.node(node).map(|found| &found.params) {
            Ok(NodeParams::Child { graph, .. }) => draw(front, world, *graph, flags, out),
            Ok(NodeParams::Conditional(node)) => {
                node.bodies.iter().for_each(|body| draw(front, world, *body, flags, out))
            }
            _ => {}
        }
    }
}

/// A node's operation, in words; with numbers if they are asked for.
fn label(front: &'static Front, params: &NodeParams, node: u64, flags: u32) -> String {
    let has = |flag: Flags| flags & (flag.0 | Flags::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE.0) != 0;
    let handle = if has(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES) {
        format!("\\n{node:#x}")
    } else {
        String::new()
    };
    let side = |place: &Place| match place {
        Place::Device(rows) => format!("device {:#x}", rows.address.0),
        Place::Host(rows) => format!("host {:#x}", rows.address.0),
        Place::Array { array, .. } => format!("array {:#x}", array.0),
    };
    let words = match params {
        NodeParams::Empty => "EMPTY".to_owned(),
        NodeParams::Kernel(kernel) => {
            let function = crate::function::by_id(front, kernel.function.0);
            let name = function
                .map_or_else(|_| "?".to_owned(), |f| f.name().to_string_lossy().into_owned());
            match has(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS) {
                true => {
                    format!("KERNEL\\n{name}\\ngrid {:?} block {:?}", kernel.grid, kernel.block)
                }
                false => format!("KERNEL\\n{name}"),
            }
        }
        NodeParams::Copy(copy) if has(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS) => {
            format!("MEMCPY\\n{} to {}\\n{:?}", side(&copy.src), side(&copy.dst), copy.extent)
        }
        NodeParams::Copy(_) => "MEMCPY".to_owned(),
        NodeParams::Fill(fill) if has(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS) => {
            format!(
                "MEMSET\\n{:#x}\\n{} by {} of {}",
                fill.dst.0, fill.width, fill.height, fill.value
            )
        }
        NodeParams::Fill(_) => "MEMSET".to_owned(),
        NodeParams::Host(_) => "HOST".to_owned(),
        NodeParams::Child { .. } | NodeParams::Captured { .. } => "GRAPH".to_owned(),
        NodeParams::EventRecord { .. } => "EVENT_RECORD".to_owned(),
        NodeParams::EventWait { .. } => "EVENT_WAIT".to_owned(),
        NodeParams::Allocate(allocate) => format!("MEM_ALLOC\\n{} bytes", allocate.bytes),
        NodeParams::Free { .. } => "MEM_FREE".to_owned(),
        NodeParams::Batch(_) => "BATCH_MEM_OP".to_owned(),
        NodeParams::Conditional(_) => "CONDITIONAL".to_owned(),
    };
    words + &handle
}
