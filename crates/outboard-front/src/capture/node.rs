//! Operations that become nodes.
//!
//! The entry point of an operation calls its function here after its checks. The function returns
//! `None` if the stream does not capture, which costs one load of a counter.

use core::ffi::c_void;

use outboard_abi::{
    CUgraphDependencyType_enum as Dependency, CUhostFn, CUlaunchAttributeID_enum as Attribute,
    CUresult, CUstream,
};
use outboard_wire::graph::{Edge, FillNode, HostNode, KernelNode, NodeParams};
use outboard_wire::launch::names_event;

use super::state::{Mark, Member, active, join};
use crate::backend::{
    Backend, ContextId, DevicePtr, Fill, Launch, MemoryOperation, ObjectId, Result, StreamId,
};
use crate::context::Here;
use crate::copy::Sides;
use crate::event::Object;
use crate::graph::model::{Given, Plain, World, world};
use crate::graph::node::ATTRIBUTES;
use crate::graph::params;
use crate::handles::{self, Kind};
use crate::process::{Front, Process};

/// `CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC`.
const PROGRAMMATIC_PORT: u8 = 1;
/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

/// The name of a stream that captures, and its graph. An error for one that must not be used.
fn capturing(
    world: &mut World,
    here: &Here,
    stream: StreamId,
) -> Option<Result<(StreamId, ObjectId)>> {
    match stream {
        StreamId::LEGACY => world.captures.refuse_legacy(here.id).err().map(Err),
        stream => {
            let (_, capture) = world.captures.of(stream)?;
            Some(match capture.invalidated {
                true => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
                false => Ok((stream, capture.graph)),
            })
        }
    }
}

/// Makes a node of what is queued in a stream that captures.
fn take(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    make: impl FnOnce() -> Result<(NodeParams, Given)>,
) -> Option<Result<()>> {
    if !active(front) {
        return None;
    }
    let mut world = world(front);
    let (name, graph) = match capturing(&mut world, here, stream)? {
        Ok(found) => found,
        Err(error) => return Some(Err(error)),
    };
    Some(make().and_then(|(params, given)| append(&mut world, name, graph, params, given)))
}

/// Adds the next node of a stream.
fn append(
    world: &mut World,
    name: StreamId,
    graph: ObjectId,
    params: NodeParams,
    given: Given,
) -> Result<()> {
    let behind =
        world.captures.members.get(&name).map_or(Vec::new(), |member| member.behind.clone());
    let node = world.add(graph, &behind, params, given)?;
    moved(world, name, node);
    Ok(())
}

/// Moves a stream's position behind a new node.
pub(super) fn moved(world: &mut World, name: StreamId, node: u64) {
    if let Some(member) = world.captures.members.get_mut(&name) {
        member.behind = vec![Edge { node, ports: [0; 3] }];
    }
}

/// A launch of a function that the program calls `function`.
#[inline]
pub(crate) fn kernel(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    function: u64,
    launch: &Launch<'_>,
) -> Option<Result<()>> {
    if !active(front) {
        return None;
    }
    kernel_node(front, here, stream, function, launch)
}

#[cold]
fn kernel_node(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    function: u64,
    launch: &Launch<'_>,
) -> Option<Result<()>> {
    let mut world = world(front);
    let (name, graph) = match capturing(&mut world, here, stream)? {
        Ok(found) => found,
        Err(error) => return Some(Err(error)),
    };
    if launch.attributes.iter().any(|(id, _)| names_event(*id)) {
        // In a graph, such an event would be an edge from the middle of a kernel, which only nodes
        // can have.
        return Some(Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    }
    let early = Attribute::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.0;
    let starts_early =
        launch.attributes.iter().any(|(id, value)| *id == early && value[..4] != [0; 4]);
    if starts_early {
        // An attribute of a launch in a stream becomes data of an edge in a graph.
        let World { captures, nodes, .. } = &mut *world;
        let behind =
            captures.members.get_mut(&name).map_or(&mut [][..], |member| &mut member.behind);
        for edge in behind {
            let is_kernel = nodes
                .get(&edge.node)
                .is_some_and(|node| matches!(node.params, NodeParams::Kernel(_)));
            if is_kernel && edge.ports == [0; 3] {
                let kind = Dependency::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.0 as u8;
                edge.ports = [PROGRAMMATIC_PORT, 0, kind];
            }
        }
    }
    // Some are a stream's or a launch's only.
    let is_of_nodes = |id: u32| ATTRIBUTES.iter().any(|known| known.0 == id);
    let mut attributes: Vec<_> =
        launch.attributes.iter().filter(|(id, _)| is_of_nodes(*id)).copied().collect();
    if launch.cooperative {
        let mut value = [0; 64];
        value[0] = 1;
        attributes.push((Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE.0, value));
    }
    // The stream's priority is the node's, unless the launch has one of its own. A parameter
    // without one is at 0.
    let priority = Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY.0;
    if !attributes.iter().any(|(id, _)| *id == priority)
        && let Some(of_stream) =
            front.streams.priority(name.0 as CUstream).filter(|of_stream| *of_stream != 0)
    {
        let mut value = [0; 64];
        value[..4].copy_from_slice(&of_stream.to_ne_bytes());
        attributes.push((priority, value));
    }
    let node = KernelNode {
        ctx: here.id,
        function: launch.function,
        grid: launch.grid,
        block: launch.block,
        shared: launch.shared,
        params: launch.params.to_vec(),
        attributes,
    };
    // A kernel may stand for a function in launches; a node distinguishes them.
    let (function, kernel) =
        if handles::is(Kind::Kernel, function) { (0, function) } else { (function, 0) };
    let given =
        Given::Kernel { function, kernel, context: here.context.handle, pointers: Vec::new() };
    Some(append(&mut world, name, graph, NodeParams::Kernel(node), given))
}

/// A fill, in a context of the memory's server.
#[inline]
pub(crate) fn fill(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    (ctx, fill): (ContextId, &Fill),
) -> Option<Result<()>> {
    take(front, here, stream, || {
        let Fill { dst, pitch, value, element, width, height } = *fill;
        let node = FillNode { ctx, dst, pitch, value, element, width, height };
        Ok((NodeParams::Fill(node), Given::Context(here.context.handle)))
    })
}

/// A copy.
#[inline]
pub(crate) fn copy(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    sides: &Sides,
) -> Option<Result<()>> {
    take(front, here, stream, || {
        let given =
            Given::Copy(Box::new(Plain(params::structure(&sides.as_box()))), here.context.handle);
        Ok((NodeParams::Copy(params::copy(front, here.id, sides)?), given))
    })
}

/// A call of a function of the program.
#[inline]
pub(crate) fn host(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    function: CUhostFn,
    data: *mut c_void,
) -> Option<Result<()>> {
    take(front, here, stream, || {
        let function = function.map_or(0, |function| function as usize as u64);
        Ok((NodeParams::Host(HostNode { function, data: data as u64 }), Given::Nothing))
    })
}

/// Waits for values in memory, and writes of them.
#[inline]
pub(crate) fn memory_operations(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    operations: &[MemoryOperation],
) -> Option<Result<()>> {
    take(front, here, stream, || {
        let node = params::batch(here.id, operations);
        let given = Given::Batch(Plain(params::batch_structures(&node)), here.context.handle);
        Ok((NodeParams::Batch(node), given))
    })
}

/// One of them.
#[inline]
pub(crate) fn memory_operation(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    operation: impl FnOnce() -> MemoryOperation,
) -> Option<Result<()>> {
    if active(front) { memory_operations(front, here, stream, &[operation()]) } else { None }
}

/// A record of an event. In a stream that captures, the event represents the nodes so far; `marked`
/// is the event's own note of that.
pub(crate) fn record(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    event: ObjectId,
    flags: u32,
    is_marked: bool,
) -> Option<Result<bool>> {
    if !active(front) && !is_marked {
        return None;
    }
    let mut world = world(front);
    let found = capturing(&mut world, here, stream);
    let (name, graph) = match found {
        None => {
            // Recorded outside a capture, it is an ordinary event again.
            world.captures.marks.remove(&event);
            return None;
        }
        Some(Err(error)) => return Some(Err(error)),
        Some(Ok(found)) => found,
    };
    if flags & EXTERNAL != 0 {
        let outcome =
            append(&mut world, name, graph, NodeParams::EventRecord { event }, Given::Nothing);
        return Some(outcome.map(|()| is_marked));
    }
    let Some(member) = world.captures.members.get(&name) else {
        return Some(Err(CUresult::CUDA_ERROR_UNKNOWN));
    };
    let mark = Mark { capture: member.capture, behind: member.behind.clone() };
    world.captures.marks.insert(event, mark);
    Some(Ok(true))
}

/// A wait for an event: it joins a stream to a capture.
#[inline]
pub(crate) fn wait(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    object: &Object,
    flags: u32,
) -> Option<Result<()>> {
    if active(front) || object.is_captured() {
        join_by_event(front, here, stream, object, flags)
    } else {
        None
    }
}

/// The same, while something is captured.
#[inline(never)]
fn join_by_event(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    object: &Object,
    flags: u32,
) -> Option<Result<()>> {
    let (event, is_marked) = (object.id(), object.is_captured());
    let mut world = world(front);
    let mark = world.captures.marks.get(&event).filter(|_| is_marked).cloned();
    let found = match capturing(&mut world, here, stream) {
        Some(Err(error)) => return Some(Err(error)),
        Some(Ok(found)) => Some(found),
        None => None,
    };
    let Some(mark) = mark else {
        let (name, graph) = found?;
        if flags & EXTERNAL != 0 {
            let node = NodeParams::EventWait { event };
            return Some(append(&mut world, name, graph, node, Given::Nothing));
        }
        if !object.may_be_recorded() {
            return Some(Ok(()));
        }
        // It would wait for work outside the capture.
        let capture = world.captures.of(name).map(|(id, _)| id);
        capture.into_iter().for_each(|id| world.captures.invalidate(id));
        return Some(Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
    };
    let Some(capture) = world.captures.get(mark.capture) else {
        return Some(Err(CUresult::CUDA_ERROR_CAPTURED_EVENT));
    };
    if capture.invalidated {
        return Some(Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    }
    if stream == StreamId::LEGACY {
        world.captures.invalidate(mark.capture);
        return Some(Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
    }
    if let Some(member) = world.captures.members.get_mut(&stream) {
        if member.capture != mark.capture {
            let other = member.capture;
            world.captures.invalidate(other);
            world.captures.invalidate(mark.capture);
            return Some(Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE));
        }
        join(&mut member.behind, &mark.behind);
        return Some(Ok(()));
    }
    let member = Member {
        capture: mark.capture,
        behind: mark.behind,
        ctx: here.id,
        blocking: front.streams.is_blocking(stream),
        shown: (Vec::new(), Vec::new()),
    };
    world.captures.members.insert(stream, member);
    Some(Ok(()))
}

/// An allocation in the stream's order: memory of the graph.
pub(crate) fn allocate<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    stream: StreamId,
    bytes: u64,
) -> Option<Result<DevicePtr>> {
    if !active(process) {
        return None;
    }
    let (name, graph, behind) = {
        let mut world = world(process);
        let (name, graph) = match capturing(&mut world, here, stream)? {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let behind =
            world.captures.members.get(&name).map_or(Vec::new(), |member| member.behind.clone());
        (name, graph, behind)
    };
    let device = here.context.device;
    Some(
        crate::graph::memory::allocate(process, here, graph, &behind, device, bytes, Vec::new())
            .map(|(node, address)| {
                moved(&mut world(process), name, node);
                address
            }),
    )
}

/// A free in the stream's order.
pub(crate) fn free(
    front: &'static Front,
    here: &Here,
    stream: StreamId,
    address: DevicePtr,
) -> Option<Result<()>> {
    take(front, here, stream, || {
        crate::graph::memory::check_free(front, address)?;
        Ok((NodeParams::Free { address }, Given::Nothing))
    })
}
