//! User objects: something of the program's that graphs keep alive, counted.

use core::ffi::{c_uint, c_void};
use std::collections::HashMap;

use outboard_abi::{CUgraph, CUhostFn, CUresult, CUuserObject};

use super::model::{INVALID, world};
use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::process::{Front, Process};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: required.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: u32 = 1;

pub(super) struct Object {
    destroy: unsafe extern "C" fn(*mut c_void),
    data: usize,
    /// References of the program and of graphs together.
    count: u64,
}

#[derive(Default)]
pub(super) struct Objects {
    all: HashMap<u64, Object>,
    next: u64,
    /// Destructors to be called when no lock is held.
    doomed: Vec<(unsafe extern "C" fn(*mut c_void), usize)>,
}

/// Handles of user objects, apart from those of graphs and nodes.
const FIRST_HANDLE: u64 = 0x7c00_0000_0000;

/// Adds references.
pub(crate) fn retain_all(front: &'static Front, references: &[(u64, u32)]) {
    if references.is_empty() {
        return;
    }
    let mut objects = front.graphs.objects.lock();
    for (object, count) in references {
        if let Some(object) = objects.all.get_mut(object) {
            object.count += u64::from(*count);
        }
    }
}

/// Takes references away. [`run_destructors`] must follow once no lock is held.
pub(crate) fn release_all(front: &'static Front, references: &[(u64, u32)]) {
    if references.is_empty() {
        return;
    }
    let mut objects = front.graphs.objects.lock();
    for (object, count) in references {
        // More than there are is the program's mistake, found where it made it.
        let _ = release(&mut objects, *object, *count);
    }
}

fn release(objects: &mut Objects, handle: u64, count: u32) -> Result<()> {
    let object = objects.all.get_mut(&handle).ok_or(INVALID)?;
    object.count = object.count.checked_sub(u64::from(count)).ok_or(INVALID)?;
    if object.count == 0
        && let Some(object) = objects.all.remove(&handle)
    {
        objects.doomed.push((object.destroy, object.data));
    }
    Ok(())
}

/// Calls the destructors of objects that nobody refers to any more, on a thread of its own: they may take their time.
pub(crate) fn run_destructors(front: &'static Front) {
    let doomed = std::mem::take(&mut front.graphs.objects.lock().doomed);
    if doomed.is_empty() {
        return;
    }
    let call = move || {
        for (destroy, data) in doomed {
            // SAFETY: the program gave function and argument for this.
            unsafe { destroy(data as *mut c_void) };
        }
    };
    // Without a thread they are left out: the program may be ending.
    let _ = std::thread::Builder::new().name("outboard-objects".into()).spawn(call);
}

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
    require(!out.is_null() && count > 0 && count <= i32::MAX as u32 && flags == NO_DESTRUCTOR_SYNC)?;
    let handle = {
        let mut objects = process.graphs.objects.lock();
        objects.next += 1;
        let handle = FIRST_HANDLE + (objects.next << 4);
        objects.all.insert(handle, Object { destroy, data: data as usize, count: u64::from(count) });
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
    let graph = world.graph_mut(graph as u64)?;
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
        Some((_, held)) => *held = held.checked_add(count).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?,
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
        let graph = world.graph_mut(graph as u64)?;
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
