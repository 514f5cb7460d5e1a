//! Executables.

use core::ffi::{c_char, c_uint, c_ulonglong};
use std::sync::{Arc, OnceLock};

use outboard_abi::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResult_enum, CUgraphExecUpdateResultInfo,
    CUgraphInstantiate_flags_enum as Flags, CUgraphInstantiateResult_enum as Outcome, CUgraphNode,
    CUresult, CUstream, cuuint64_t,
};
use outboard_wire::graph::NodeParams;
use parking_lot::Mutex;

use crate::backend::{Backend, ObjectId, Result, StreamId};
use crate::border::{put, put_if, require};
use crate::context::{self, Here};
use crate::graph::exec::{Exec, FLAGS, Failure, Made, Whole, resolve};
use crate::graph::mirror::flush;
use crate::graph::model::{INVALID, world};
use crate::graph::site::of_graph;
use crate::parts::graph::spread::Spread;
use crate::process::{Front, Process};
use crate::spread;
use crate::stream::{self, DefaultStream};

fn make<B: Backend>(
    process: &'static Process<B>,
    graph: ObjectId,
    flags: u64,
    upload: Option<(Here, StreamId)>,
) -> std::result::Result<u64, Failure> {
    let known = flags & !FLAGS == 0;
    require(known)?;
    crate::capture::refuse_unsafe(process)?;
    let here = match &upload {
        Some((here, _)) => here.clone(),
        None => context::current(process)?,
    };
    world(process).to_be_copied(graph)?;
    let servers = of_graph(process, &world(process), graph);
    let is_elsewhere =
        |(here, _): &(Here, StreamId)| servers.iter().any(|of| *of != here.id.server());
    let (made, handle) = if servers.len() > 1 || upload.as_ref().is_some_and(is_elsewhere) {
        let pieces = spread::make(process, &here, graph, flags)?;
        if upload.is_some()
            && let Err(error) = spread::upload(process, &pieces)
        {
            spread::forget(process, &pieces);
            return Err(error.into());
        }
        (Made::Spread(pieces), world(process).handle())
    } else {
        // Whichever device is current, the executable is made where the nodes are.
        let server = servers.first().copied().unwrap_or(here.id.server());
        let here = context::on(process, here, server)?;
        make_whole(process, &here, graph, flags, upload.map(|(_, stream)| stream))?
    };
    let (objects, memory) = {
        let mut world = world(process);
        let memory = world.allocates(graph);
        world.memory.hold(&memory);
        let objects = world.graph(graph)?.objects.clone();
        crate::graph::object::retain_all(process, &objects);
        (objects, memory)
    };
    let exec = Exec { made, flags, graph, disabled: Mutex::default(), objects, memory };
    process.graphs.execs.write().insert(handle, Arc::new(exec));
    Ok(handle)
}

/// Makes an executable of a graph of one server; gives what the program calls it by, too.
fn make_whole<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    graph: ObjectId,
    flags: u64,
    upload: Option<StreamId>,
) -> std::result::Result<(Made, u64), Failure> {
    flush(process, here, graph)?;
    let id = ObjectId(world(process).handle());
    let stream = upload.unwrap_or(StreamId::LEGACY);
    let made = here.note(process.backend.graph_instantiate(here.id, graph, id, flags, stream))?;
    let made = Failure::check(made)?;
    // Kernels launch it by the device's handle, so that is the program's too.
    let handle = if made.handle == 0 { id.0 } else { made.handle };
    Ok((Made::Whole(Whole { id, server: here.id.server(), elsewhere: OnceLock::new() }), handle))
}

pub unsafe fn cuGraphInstantiateWithFlags<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null())?;
    let upload = u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0);
    // An upload needs a stream, which this form has not.
    require(flags & upload == 0)?;
    let exec =
        make(process, ObjectId(graph as u64), flags, None).map_err(|failure| failure.error)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, exec as CUgraphExec) }
}

pub unsafe fn cuGraphInstantiate_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    bytes: usize,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null())?;
    let outcome = make(process, ObjectId(graph as u64), 0, None);
    // SAFETY: the program's out parameters; the log has `bytes`.
    unsafe {
        if bytes > 0 {
            put_if(log, 0);
        }
        match outcome {
            Ok(exec) => put(out, exec as CUgraphExec),
            Err(failure) => {
                put_if(node, failure.node as CUgraphNode);
                Err(failure.error)
            }
        }
    }
}

pub unsafe fn cuGraphInstantiate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    bytes: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuGraphInstantiate_v2(process, out, graph, node, log, bytes) }
}

pub unsafe fn cuGraphInstantiateWithParams<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    default: DefaultStream,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null())?;
    // SAFETY: null or the program's structure.
    let params = unsafe { params.as_mut() }.ok_or(INVALID)?;
    let wants_upload = params.flags & u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0) != 0;
    let upload = match (wants_upload, default) {
        (false, _) => None,
        (true, DefaultStream::Legacy) => Some(stream::resolve(process, params.hUploadStream)?),
        (true, DefaultStream::PerThread) => {
            Some(stream::resolve(process, stream::or_per_thread(params.hUploadStream))?)
        }
    };
    match make(process, ObjectId(graph as u64), params.flags, upload) {
        Ok(exec) => {
            params.result_out = Outcome::CUDA_GRAPH_INSTANTIATE_SUCCESS;
            params.hErrNode_out = core::ptr::null_mut();
            // SAFETY: the program's out parameter.
            unsafe { put(out, exec as CUgraphExec) }
        }
        Err(failure) => {
            params.result_out = outboard_abi::CUgraphInstantiateResult_enum(failure.result);
            params.hErrNode_out = failure.node as CUgraphNode;
            Err(failure.error)
        }
    }
}

pub unsafe fn cuGraphExecGetFlags<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    out: *mut cuuint64_t,
) -> Result<()> {
    // Uploading is done once and no property of what was made.
    let flags =
        resolve(process, exec)?.flags & !u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0);
    // SAFETY: the program's out parameter.
    unsafe { put(out, flags) }
}

pub unsafe fn cuGraphUpload<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    stream: CUstream,
) -> Result<()> {
    let exec = resolve(process, exec)?;
    let (here, stream) = stream::resolve(process, stream)?;
    match &exec.made {
        Made::Whole(whole) if whole.server == here.id.server() => {
            here.note(process.backend.graph_upload(here.id, whole.id, stream))
        }
        made => spread::upload(process, pieces(process, made)?),
    }
}

/// How an executable is launched in streams of whichever server.
fn pieces<'a, B: Backend>(process: &'static Process<B>, made: &'a Made) -> Result<&'a Spread> {
    match made {
        Made::Whole(whole) => spread::elsewhere(process, whole),
        Made::Spread(pieces) => Ok(pieces),
    }
}

pub unsafe fn cuGraphLaunch<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    stream: CUstream,
) -> Result<()> {
    let exec = resolve(process, exec)?;
    // Not even a relaxed capture takes a launch of an executable.
    let (here, stream) = stream::resolve(process, stream)?;
    match &exec.made {
        Made::Whole(whole) if whole.server == here.id.server() => {
            here.note(process.backend.graph_launch(here.id, whole.id, stream))
        }
        made => launch_across(process, made, here, stream),
    }
}

/// A launch that is about several servers.
#[cold]
#[inline(never)]
fn launch_across<B: Backend>(
    process: &'static Process<B>,
    made: &Made,
    here: Here,
    stream: StreamId,
) -> Result<()> {
    spread::launch(process, pieces(process, made)?, here, stream)
}

pub unsafe fn cuGraphExecDestroy<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
) -> Result<()> {
    crate::state::ready(process)?;
    crate::capture::refuse_unsafe(process)?;
    let gone = process.graphs.execs.write().remove(&(exec as u64)).ok_or(INVALID)?;
    world(process).memory.let_go(process, &gone.memory);
    let contexts = match &gone.made {
        Made::Whole(whole) => {
            let ctx = context::any(process, whole.server);
            if let Some(ctx) = ctx {
                let _ = process.backend.graph_exec_destroy(ctx, whole.id);
            }
            if let Some(pieces) = whole.elsewhere.get() {
                spread::forget(process, pieces);
            }
            ctx.into_iter().collect()
        }
        Made::Spread(pieces) => {
            spread::forget(process, pieces);
            spread::contexts(process, pieces)
        }
    };
    if !gone.objects.is_empty() {
        // Launches that still run may use them.
        for ctx in contexts {
            let _ = process.backend.context_synchronize(ctx);
        }
        crate::graph::object::release_all(process, &gone.objects);
        crate::graph::object::run_destructors(process);
    }
    Ok(())
}

/// Gives the nodes of an executable the parameters of a graph.
fn update<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    graph: CUgraph,
) -> Result<crate::backend::Updated> {
    let exec = resolve(process, exec)?;
    let (graph, here) = (ObjectId(graph as u64), context::current(process)?);
    world(process).to_be_copied(graph)?;
    let updated = match &exec.made {
        Made::Whole(whole) => {
            let here = context::on(process, here, whole.server)?;
            flush(process, &here, graph)?;
            here.note(process.backend.graph_exec_update(here.id, whole.id, graph))?
        }
        Made::Spread(pieces) => spread::update(process, pieces, graph)?,
    };
    if updated.status == CUresult::CUDA_SUCCESS {
        exec.disabled.lock().clear();
    }
    Ok(updated)
}

pub unsafe fn cuGraphExecUpdate<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    result: *mut CUgraphExecUpdateResult,
) -> Result<()> {
    let updated = update(process, exec, graph)?;
    // SAFETY: the program's out parameters.
    unsafe {
        put_if(node, updated.node as CUgraphNode);
        put_if(result, CUgraphExecUpdateResult_enum(updated.result));
    }
    outcome(updated.status)
}

pub unsafe fn cuGraphExecUpdate_v2<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    graph: CUgraph,
    out: *mut CUgraphExecUpdateResultInfo,
) -> Result<()> {
    require(!out.is_null())?;
    let updated = update(process, exec, graph)?;
    let info = CUgraphExecUpdateResultInfo {
        result: CUgraphExecUpdateResult_enum(updated.result),
        errorNode: updated.node as CUgraphNode,
        errorFromNode: updated.from as CUgraphNode,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, info) }?;
    outcome(updated.status)
}

fn outcome(status: CUresult) -> Result<()> {
    if status == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(status) }
}

/// The kinds of nodes that can be switched off.
fn can_be_disabled(params: &NodeParams) -> bool {
    matches!(params, NodeParams::Kernel(_) | NodeParams::Copy(_) | NodeParams::Fill(_))
}

/// Checks that a node is one of the executable's graph that can be switched off.
fn switchable(front: &'static Front, exec: &Exec, node: CUgraphNode) -> Result<()> {
    let world = world(front);
    let found = world.node(node as u64)?;
    require(world.is_within(found.graph, exec.graph) && can_be_disabled(&found.params))
}

pub unsafe fn cuGraphNodeSetEnabled<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    enabled: c_uint,
) -> Result<()> {
    let exec = resolve(process, exec)?;
    switchable(process, &exec, node)?;
    let here = context::current(process)?;
    match &exec.made {
        Made::Whole(whole) => {
            let here = context::on(process, here, whole.server)?;
            let (node, enabled) = (node as u64, enabled != 0);
            here.note(process.backend.graph_exec_enable(here.id, whole.id, node, enabled))?;
        }
        Made::Spread(pieces) => spread::enable(process, pieces, node as u64, enabled != 0)?,
    }
    let mut disabled = exec.disabled.lock();
    if enabled != 0 {
        disabled.remove(&(node as u64))
    } else {
        disabled.insert(node as u64)
    };
    Ok(())
}

pub unsafe fn cuGraphNodeGetEnabled<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    out: *mut c_uint,
) -> Result<()> {
    let exec = resolve(process, exec)?;
    switchable(process, &exec, node)?;
    let enabled = !exec.disabled.lock().contains(&(node as u64));
    // SAFETY: the program's out parameter.
    unsafe { put(out, c_uint::from(enabled)) }
}
