//! Access between devices.

use core::ffi::{c_int, c_uint};

use outboard_abi::{CUatomicOperation, CUcontext, CUdevice, CUdevice_P2PAttribute, CUresult};

use crate::backend::{Backend, DeviceId, Result};
use crate::border::{put, require, slice};
use crate::context::{self, Here};
use crate::process::{Front, Process};
use crate::state::{device, ready};

/// Two devices that are not the same.
fn two(front: &'static Front, from: CUdevice, to: CUdevice) -> Result<(DeviceId, DeviceId)> {
    let ((_, from), (_, to)) = (device(front, from)?, device(front, to)?);
    if from.id == to.id { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) } else { Ok((from.id, to.id)) }
}

pub unsafe fn cuDeviceCanAccessPeer<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    dev: CUdevice,
    peer: CUdevice,
) -> Result<()> {
    let ((_, dev), (_, peer)) = (device(process, dev)?, device(process, peer)?);
    // SAFETY: the program's out parameter.
    unsafe { put(out, c_int::from(dev.peers.contains(&peer.id))) }
}

pub unsafe fn cuDeviceGetP2PAttribute<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    attribute: CUdevice_P2PAttribute,
    src: CUdevice,
    dst: CUdevice,
) -> Result<()> {
    ready(process)?;
    require(!out.is_null())?;
    let (from, to) = two(process, src, dst)?;
    // Between servers there is no way that kernels could use.
    let value = if from.server() == to.server() {
        process.backend.peer_attribute(from, to, attribute.0)?
    } else {
        0
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, value) }
}

pub unsafe fn cuDeviceGetP2PAtomicCapabilities<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_uint,
    operations: *const CUatomicOperation,
    count: c_uint,
    src: CUdevice,
    dst: CUdevice,
) -> Result<()> {
    let (from, to) = two(process, src, dst)?;
    require(!out.is_null() && count > 0)?;
    // SAFETY: the program gives `count` of them.
    let operations: Vec<u32> =
        unsafe { slice(operations, count as usize) }?.iter().map(|op| op.0).collect();
    let capabilities = match from.server() == to.server() {
        true => process.backend.peer_atomics(from, to, &operations)?,
        false => vec![0; operations.len()],
    };
    for (index, capability) in capabilities.into_iter().take(operations.len()).enumerate() {
        // SAFETY: the program has room for `count` of them.
        unsafe { put(out.add(index), capability)? };
    }
    Ok(())
}

/// The current context and another device's, whose memory it may use by nature.
fn pair(front: &'static Front, peer: CUcontext) -> Result<(Here, Here)> {
    let here = context::current(front)?;
    if peer.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let peer = context::named(front, peer)?.live()?;
    if peer.id == here.id {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    Ok((here, peer))
}

pub unsafe fn cuCtxEnablePeerAccess<B: Backend>(
    process: &'static Process<B>,
    peer: CUcontext,
    flags: c_uint,
) -> Result<()> {
    let (here, peer) = pair(process, peer)?;
    require(flags == 0)?;
    if !here.device()?.peers.contains(&peer.device()?.id) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    let mut enabled = process.peers.enabled.lock();
    if enabled.contains(&(here.id, peer.id)) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    here.note(process.backend.peer_enable(here.id, peer.id))?;
    enabled.push((here.id, peer.id));
    Ok(())
}

pub unsafe fn cuCtxDisablePeerAccess<B: Backend>(
    process: &'static Process<B>,
    peer: CUcontext,
) -> Result<()> {
    let (here, peer) = pair(process, peer)?;
    let mut enabled = process.peers.enabled.lock();
    let at = enabled.iter().position(|pair| *pair == (here.id, peer.id));
    let at = at.ok_or(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)?;
    here.note(process.backend.peer_disable(here.id, peer.id))?;
    enabled.swap_remove(at);
    Ok(())
}
