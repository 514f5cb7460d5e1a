//! Arrays and mipmapped arrays.

mod copy;
mod describe;

use core::ffi::c_uint;
use std::sync::Arc;

use outboard_abi::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray, CUmipmappedArray, CUresult,
};

use crate::array::{Array, Mipmap, insert, resolve, resolve_mipmap};
use crate::backend::{ArrayDescriptor, Backend, ObjectId, Result};
use crate::border::{put, require};
use crate::context::{self, Here};
use crate::process::{Front, Process};
use describe::of_three;

pub use copy::*;
pub use describe::*;

fn create<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUarray,
    descriptor: &ArrayDescriptor,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && descriptor.width > 0)?;
    crate::capture::refuse_unsafe(process)?;
    let handle =
        insert(process, &here, None, |id| process.backend.array_create(here.id, id, descriptor))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUarray) }
}

/// The name of a part, the same whenever it is asked for.
fn part(
    front: &'static Front,
    here: &Here,
    of: u64,
    index: u32,
    make: impl FnOnce(ObjectId) -> Result<ArrayDescriptor>,
) -> Result<CUarray> {
    let _one_at_a_time = front.arrays.parts.lock();
    if let Some(array) = front.arrays.table.find(|array| array.part_of == Some((of, index))) {
        return Ok(array.handle as CUarray);
    }
    insert(front, here, Some((of, index)), make).map(|handle| handle as CUarray)
}

pub unsafe fn cuArrayCreate_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUarray,
    wanted: *const CUDA_ARRAY_DESCRIPTOR,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let d = unsafe { wanted.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (width, height) = (d.Width as u64, d.Height as u64);
    let (format, channels) = (d.Format.0, d.NumChannels);
    create(process, out, &ArrayDescriptor { width, height, depth: 0, format, channels, flags: 0 })
}

pub unsafe fn cuArrayCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUarray,
    wanted: *const CUDA_ARRAY_DESCRIPTOR_v1,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let d = unsafe { wanted.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (width, height) = (d.Width.into(), d.Height.into());
    let (format, channels) = (d.Format.0, d.NumChannels);
    create(process, out, &ArrayDescriptor { width, height, depth: 0, format, channels, flags: 0 })
}

pub unsafe fn cuArray3DCreate_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUarray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let d = unsafe { wanted.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    create(process, out, &of_three(d))
}

pub unsafe fn cuArray3DCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUarray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR_v1,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let d = unsafe { wanted.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (width, height, depth) = (d.Width.into(), d.Height.into(), d.Depth.into());
    let (format, channels) = (d.Format.0, d.NumChannels);
    create(
        process,
        out,
        &ArrayDescriptor { width, height, depth, format, channels, flags: d.Flags },
    )
}

pub unsafe fn cuArrayDestroy<B: Backend>(
    process: &'static Process<B>,
    array: CUarray,
) -> Result<()> {
    let array = resolve(process, array)?;
    let here = array.context.live()?;
    // A level goes with its mipmapped array, a plane with its array: only the handle ends.
    process.arrays.table.remove(array.handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    forget_parts(process, &here, array.handle);
    here.note(process.backend.array_destroy(here.id, ObjectId(array.handle)))
}

/// Forgets the names of the parts of what is destroyed.
fn forget_parts<B: Backend>(process: &'static Process<B>, here: &Here, of: u64) {
    let is_part = |array: &Array| array.part_of.is_some_and(|(whole, _)| whole == of);
    while let Some(part) = process.arrays.table.find(is_part) {
        process.arrays.table.remove(part.handle);
        // For the program, the mipmapped array that it belonged to is gone in any case.
        let _ = process.backend.array_destroy(here.id, ObjectId(part.handle));
    }
}

pub unsafe fn cuArrayGetPlane<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUarray,
    array: CUarray,
    plane: c_uint,
) -> Result<()> {
    let array = resolve(process, array)?;
    let here = array.context.live()?;
    require(!out.is_null() && array.part_of.is_none())?;
    let make = |id| process.backend.array_plane(here.id, ObjectId(array.handle), plane, id);
    let plane = part(process, &here, array.handle, plane, make)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, plane) }
}

pub unsafe fn cuMipmappedArrayCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmipmappedArray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> Result<()> {
    let here = context::current(process)?;
    // SAFETY: null or the program's structure.
    let d = unsafe { wanted.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(!out.is_null() && d.Width > 0)?;
    crate::capture::refuse_unsafe(process)?;
    let handle = process.arrays.mipmaps.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Err(error) =
        here.note(process.backend.mipmap_create(here.id, ObjectId(handle), &of_three(d), levels))
    {
        process.arrays.mipmaps.release(handle);
        return Err(error);
    }
    process
        .arrays
        .mipmaps
        .fill(handle, Arc::new(Mipmap { handle, context: here.context, id: here.id }));
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUmipmappedArray) }
}

pub unsafe fn cuMipmappedArrayDestroy<B: Backend>(
    process: &'static Process<B>,
    mipmap: CUmipmappedArray,
) -> Result<()> {
    let mipmap = resolve_mipmap(process, mipmap)?;
    let here = mipmap.context.live()?;
    process.arrays.mipmaps.remove(mipmap.handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    forget_parts(process, &here, mipmap.handle);
    here.note(process.backend.mipmap_destroy(here.id, ObjectId(mipmap.handle)))
}

pub unsafe fn cuMipmappedArrayGetLevel<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUarray,
    mipmap: CUmipmappedArray,
    level: c_uint,
) -> Result<()> {
    let mipmap = resolve_mipmap(process, mipmap)?;
    let here = mipmap.context.live()?;
    require(!out.is_null())?;
    let make = |id| process.backend.mipmap_level(here.id, ObjectId(mipmap.handle), level, id);
    let level = part(process, &here, mipmap.handle, level, make)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, level) }
}
