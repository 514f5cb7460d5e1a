//! User objects.

use core::ffi::{c_uint, c_void};

use outboard_abi::{CUgraph, CUhostFn, CUresult, CUuserObject};

use crate::backend::{Backend, ObjectId, Result};
use crate::border::{put, require};
use crate::graph::model::{INVALID, world};
use crate::graph::object::{Object, release, release_all, run_destructors};
use crate::process::Process;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: required.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: u32 = 1;

/// Handles of user objects, apart from those of graphs and nodes.
const FIRST_HANDLE: u64 = 0x7c00_0000_0000;

pub unsafe fn cuUserObjectCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUuserObject,
    data: *mut c_void,
    destroy: CUhostFn,
    count: c_uint,
    flags: c_uint,
) -> Result<()> {
    crate::state::ready(process)?;
    let destroy = destroy.ok_or(INVALID)?;
    require(
        !out.is_null() && count > 0 && count <= i32::MAX as u32 && flags == NO_DESTRUCTOR_SYNC,
    )?;
    let handle = {
        let mut objects = process.graphs.objects.lock();
        objects.next += 1;
        let handle = FIRST_HANDLE + (objects.next << 4);
        objects
            .all
            .insert(handle, Object { destroy, data: data as usize, count: u64::from(count) });
        handle
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUuserObject) }
}

pub unsafe fn cuUserObjectRetain<B: Backend>(
    process: &'static Process<B>,
    object: CUuserObject,
    count: c_uint,
) -> Result<()> {
    crate::state::ready(process)?;
    require(count > 0 && count <= i32::MAX as u32)?;
    let mut objects = process.graphs.objects.lock();
    let object = objects.all.get_mut(&(object as u64)).ok_or(INVALID)?;
    object.count += u64::from(count);
    Ok(())
}

pub unsafe fn cuUserObjectRelease<B: Backend>(
    process: &'static Process<B>,
    object: CUuserObject,
    count: c_uint,
) -> Result<()> {
    crate::state::ready(process)?;
    require(count > 0 && count <= i32::MAX as u32)?;
    release(&mut process.graphs.objects.lock(), object as u64, count)?;
    run_destructors(process);
    Ok(())
}

pub unsafe fn cuGraphRetainUserObject<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    object: CUuserObject,
    count: c_uint,
    flags: c_uint,
) -> Result<()> {
    crate::state::ready(process)?;
    require(count > 0 && count <= i32::MAX as u32 && flags & !MOVE == 0)?;
    let mut world = world(process);
    let graph = world.graph_mut(ObjectId(graph as u64))?;
    let object = object as u64;
    {
        let mut objects = process.graphs.objects.lock();
        let found = objects.all.get_mut(&object).ok_or(INVALID)?;
        // Moved, the program's references become the graph's.
        if flags & MOVE == 0 {
            found.count += u64::from(count);
        }
    }
    match graph.objects.iter_mut().find(|(known, _)| *known == object) {
        Some((_, held)) => {
            *held = held.checked_add(count).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?
        }
        None => graph.objects.push((object, count)),
    }
    Ok(())
}

pub unsafe fn cuGraphReleaseUserObject<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    object: CUuserObject,
    count: c_uint,
) -> Result<()> {
    crate::state::ready(process)?;
    require(count > 0 && count <= i32::MAX as u32)?;
    {
        let mut world = world(process);
        let graph = world.graph_mut(ObjectId(graph as u64))?;
        let object = object as u64;
        let at = graph.objects.iter().position(|(known, _)| *known == object).ok_or(INVALID)?;
        let held = graph.objects[at].1.checked_sub(count).ok_or(INVALID)?;
        if held == 0 {
            graph.objects.remove(at);
        } else {
            graph.objects[at].1 = held;
        }
        release_all(process, &[(object, count)]);
    }
    run_destructors(process);
    Ok(())
}
