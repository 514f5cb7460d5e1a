//! Arrays and mipmapped arrays: their handles and parts.

mod copy;
mod describe;

use core::ffi::c_uint;
use std::sync::Arc;

use outboard_abi::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray,
    CUmipmappedArray, CUresult,
};
use parking_lot::Mutex;

use crate::Driver;
use crate::backend::{ArrayDescriptor, ContextId, ObjectId, Result};
use crate::border::{put, require};
use crate::context::{self, Context, Here};
use crate::handles::{Kind, Table};

pub(crate) use copy::*;
pub(crate) use describe::*;

/// An array: one of its own, a level of a mipmapped one, or a plane of another.
pub(crate) struct Array {
    pub(crate) handle: u64,
    context: &'static Context,
    id: ContextId,
    pub(crate) descriptor: ArrayDescriptor,
    /// The mipmapped array or array that it is part of, and which part.
    part_of: Option<(u64, u32)>,
}

/// A mipmapped array.
pub(crate) struct Mipmap {
    pub(crate) handle: u64,
    context: &'static Context,
    id: ContextId,
}

static ARRAYS: Table<Array> = Table::new(Kind::Array);
static MIPMAPS: Table<Mipmap> = Table::new(Kind::MipmappedArray);
/// Held while a level or plane gets its name, so that each has one.
static PARTS: Mutex<()> = Mutex::new(());

/// The array of a handle.
pub(crate) fn resolve(array: CUarray) -> Result<Arc<Array>> {
    crate::state::ready()?;
    ARRAYS.get(array as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// The mipmapped array of a handle.
pub(crate) fn resolve_mipmap(mipmap: CUmipmappedArray) -> Result<Arc<Mipmap>> {
    crate::state::ready()?;
    MIPMAPS.get(mipmap as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// Forgets the arrays of a context that has ended.
pub(crate) fn forget(id: ContextId) {
    ARRAYS.remove_where(|array| array.id == id);
    MIPMAPS.remove_where(|mipmap| mipmap.id == id);
}

/// Makes an array that the backend describes, under a new name.
fn insert(
    here: &Here,
    part_of: Option<(u64, u32)>,
    make: impl FnOnce(ObjectId) -> Result<ArrayDescriptor>,
) -> Result<u64> {
    let handle = ARRAYS.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    match here.note(make(ObjectId(handle))) {
        Ok(descriptor) => {
            let array = Array { handle, context: here.context, id: here.id, descriptor, part_of };
            ARRAYS.fill(handle, Arc::new(array));
            Ok(handle)
        }
        Err(error) => {
            ARRAYS.release(handle);
            Err(error)
        }
    }
}

/// The name of a part, the same whenever it is asked for.
fn part(here: &Here, of: u64, index: u32, make: impl FnOnce(ObjectId) -> Result<ArrayDescriptor>) -> Result<CUarray> {
    let _one_at_a_time = PARTS.lock();
    if let Some(array) = ARRAYS.find(|array| array.part_of == Some((of, index))) {
        return Ok(array.handle as CUarray);
    }
    insert(here, Some((of, index)), make).map(|handle| handle as CUarray)
}

fn create<D: Driver>(out: *mut CUarray, descriptor: &ArrayDescriptor) -> Result<()> {
    let here = context::current()?;
    require(!out.is_null() && descriptor.width > 0)?;
    crate::capture::refuse_unsafe()?;
    let handle = insert(&here, None, |id| D::get().array_create(here.id, id, descriptor))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUarray) }
}

pub(crate) unsafe fn cuArrayCreate_v2<D: Driver>(
    out: *mut CUarray,
    wanted: *const CUDA_ARRAY_DESCRIPTOR,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let d = unsafe { wanted.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (width, height) = (d.Width as u64, d.Height as u64);
    let (format, channels) = (d.Format.0, d.NumChannels);
    create::<D>(out, &ArrayDescriptor { width, height, depth: 0, format, channels, flags: 0 })
}

pub(crate) unsafe fn cuArrayCreate<D: Driver>(
    out: *mut CUarray,
    wanted: *const CUDA_ARRAY_DESCRIPTOR_v1,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let d = unsafe { wanted.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (width, height) = (d.Width.into(), d.Height.into());
    let (format, channels) = (d.Format.0, d.NumChannels);
    create::<D>(out, &ArrayDescriptor { width, height, depth: 0, format, channels, flags: 0 })
}

pub(crate) unsafe fn cuArray3DCreate_v2<D: Driver>(
    out: *mut CUarray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let d = unsafe { wanted.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    create::<D>(out, &of_three(d))
}

pub(crate) unsafe fn cuArray3DCreate<D: Driver>(
    out: *mut CUarray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR_v1,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let d = unsafe { wanted.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (width, height, depth) = (d.Width.into(), d.Height.into(), d.Depth.into());
    let (format, channels) = (d.Format.0, d.NumChannels);
    create::<D>(out, &ArrayDescriptor { width, height, depth, format, channels, flags: d.Flags })
}

pub(crate) unsafe fn cuArrayDestroy<D: Driver>(array: CUarray) -> Result<()> {
    let array = resolve(array)?;
    let here = array.context.live()?;
    // A level goes with its mipmapped array, a plane with its array: only the handle ends.
    ARRAYS.remove(array.handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    forget_parts::<D>(&here, array.handle);
    here.note(D::get().array_destroy(here.id, ObjectId(array.handle)))
}

/// Forgets the names of the parts of what is destroyed.
fn forget_parts<D: Driver>(here: &Here, of: u64) {
    let is_part = |array: &Array| array.part_of.is_some_and(|(whole, _)| whole == of);
    while let Some(part) = ARRAYS.find(is_part) {
        ARRAYS.remove(part.handle);
        // What it was part of is gone for the program in any case.
        let _ = D::get().array_destroy(here.id, ObjectId(part.handle));
    }
}

pub(crate) unsafe fn cuArrayGetPlane<D: Driver>(out: *mut CUarray, array: CUarray, plane: c_uint) -> Result<()> {
    let array = resolve(array)?;
    let here = array.context.live()?;
    require(!out.is_null() && array.part_of.is_none())?;
    let make = |id| D::get().array_plane(here.id, ObjectId(array.handle), plane, id);
    let plane = part(&here, array.handle, plane, make)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, plane) }
}

pub(crate) unsafe fn cuMipmappedArrayCreate<D: Driver>(
    out: *mut CUmipmappedArray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> Result<()> {
    let here = context::current()?;
    // SAFETY: null or the program's structure.
    let d = unsafe { wanted.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(!out.is_null() && d.Width > 0)?;
    crate::capture::refuse_unsafe()?;
    let handle = MIPMAPS.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Err(error) = here.note(D::get().mipmap_create(here.id, ObjectId(handle), &of_three(d), levels)) {
        MIPMAPS.release(handle);
        return Err(error);
    }
    MIPMAPS.fill(handle, Arc::new(Mipmap { handle, context: here.context, id: here.id }));
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUmipmappedArray) }
}

pub(crate) unsafe fn cuMipmappedArrayDestroy<D: Driver>(mipmap: CUmipmappedArray) -> Result<()> {
    let mipmap = resolve_mipmap(mipmap)?;
    let here = mipmap.context.live()?;
    MIPMAPS.remove(mipmap.handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    forget_parts::<D>(&here, mipmap.handle);
    here.note(D::get().mipmap_destroy(here.id, ObjectId(mipmap.handle)))
}

pub(crate) unsafe fn cuMipmappedArrayGetLevel<D: Driver>(
    out: *mut CUarray,
    mipmap: CUmipmappedArray,
    level: c_uint,
) -> Result<()> {
    let mipmap = resolve_mipmap(mipmap)?;
    let here = mipmap.context.live()?;
    require(!out.is_null())?;
    let make = |id| D::get().mipmap_level(here.id, ObjectId(mipmap.handle), level, id);
    let level = part(&here, mipmap.handle, level, make)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, level) }
}
