//! Arrays and mipmapped arrays: handles, descriptions, copies of bytes of a row.

use core::ffi::{c_uint, c_void};
use std::sync::Arc;

use outboard_abi::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES,
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray, CUarray_format, CUdevice, CUdeviceptr,
    CUdeviceptr_v1, CUmipmappedArray, CUresult, CUstream,
};
use parking_lot::Mutex;

use crate::Driver;
use crate::backend::{ArrayDescriptor, ContextId, Extent, Layout, ObjectId, Result, SparseProperties};
use crate::border::{put, require};
use crate::context::{self, Context, Here};
use crate::copy::{Copy, End, Operand, queue, queue_default};
use crate::handles::{Kind, Table};
use crate::stream::DefaultStream;

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

fn of_three(d: &CUDA_ARRAY3D_DESCRIPTOR) -> ArrayDescriptor {
    ArrayDescriptor {
        width: d.Width as u64,
        height: d.Height as u64,
        depth: d.Depth as u64,
        format: d.Format.0,
        channels: d.NumChannels,
        flags: d.Flags,
    }
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

pub(crate) unsafe fn cuArrayGetDescriptor_v2<D: Driver>(out: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray) -> Result<()> {
    let d = resolve(array)?.descriptor;
    let descriptor = CUDA_ARRAY_DESCRIPTOR {
        Width: d.width as usize,
        Height: d.height as usize,
        Format: outboard_abi::CUarray_format_enum(d.format),
        NumChannels: d.channels,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, descriptor) }
}

pub(crate) unsafe fn cuArrayGetDescriptor<D: Driver>(out: *mut CUDA_ARRAY_DESCRIPTOR_v1, array: CUarray) -> Result<()> {
    let d = resolve(array)?.descriptor;
    let descriptor = CUDA_ARRAY_DESCRIPTOR_v1 {
        Width: d.width as c_uint,
        Height: d.height as c_uint,
        Format: outboard_abi::CUarray_format_enum(d.format),
        NumChannels: d.channels,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, descriptor) }
}

pub(crate) unsafe fn cuArray3DGetDescriptor_v2<D: Driver>(
    out: *mut CUDA_ARRAY3D_DESCRIPTOR,
    array: CUarray,
) -> Result<()> {
    let d = resolve(array)?.descriptor;
    let format: CUarray_format = outboard_abi::CUarray_format_enum(d.format);
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: d.width as usize,
        Height: d.height as usize,
        Depth: d.depth as usize,
        Format: format,
        NumChannels: d.channels,
        Flags: d.flags,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, descriptor) }
}

pub(crate) unsafe fn cuArray3DGetDescriptor<D: Driver>(
    out: *mut CUDA_ARRAY3D_DESCRIPTOR_v1,
    array: CUarray,
) -> Result<()> {
    let d = resolve(array)?.descriptor;
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR_v1 {
        Width: d.width as c_uint,
        Height: d.height as c_uint,
        Depth: d.depth as c_uint,
        Format: outboard_abi::CUarray_format_enum(d.format),
        NumChannels: d.channels,
        Flags: d.flags,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, descriptor) }
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

/// What memory an array or mipmapped array needs on a device.
///
/// # Safety
/// `out` is null or the program's out parameter.
unsafe fn memory_requirements<D: Driver>(
    out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    context: &'static Context,
    handle: u64,
    mipmapped: bool,
    device: CUdevice,
) -> Result<()> {
    let here = context.live()?;
    require(!out.is_null())?;
    let (_, device) = crate::state::device(device)?;
    let outcome = D::get().array_memory_requirements(here.id, ObjectId(handle), mipmapped, device.ordinal);
    let (bytes, alignment) = here.note(outcome)?;
    let needs =
        CUDA_ARRAY_MEMORY_REQUIREMENTS { size: bytes as usize, alignment: alignment as usize, reserved: [0; 4] };
    // SAFETY: by the contract above.
    unsafe { put(out, needs) }
}

pub(crate) unsafe fn cuArrayGetMemoryRequirements<D: Driver>(
    out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    array: CUarray,
    device: CUdevice,
) -> Result<()> {
    let array = resolve(array)?;
    // SAFETY: the program's out parameter.
    unsafe { memory_requirements::<D>(out, array.context, array.handle, false, device) }
}

pub(crate) unsafe fn cuMipmappedArrayGetMemoryRequirements<D: Driver>(
    out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    mipmap: CUmipmappedArray,
    device: CUdevice,
) -> Result<()> {
    let mipmap = resolve_mipmap(mipmap)?;
    // SAFETY: the program's out parameter.
    unsafe { memory_requirements::<D>(out, mipmap.context, mipmap.handle, true, device) }
}

fn sparse(properties: &SparseProperties) -> CUDA_ARRAY_SPARSE_PROPERTIES {
    let (width, height, depth) = properties.tile;
    CUDA_ARRAY_SPARSE_PROPERTIES {
        tileExtent: outboard_abi::CUDA_ARRAY_SPARSE_PROPERTIES_st__bindgen_ty_1 { width, height, depth },
        miptailFirstLevel: properties.tail_level,
        miptailSize: properties.tail_bytes,
        flags: properties.flags,
        reserved: [0; 4],
    }
}

pub(crate) unsafe fn cuArrayGetSparseProperties<D: Driver>(
    out: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
    array: CUarray,
) -> Result<()> {
    let array = resolve(array)?;
    let here = array.context.live()?;
    let properties = here.note(D::get().array_sparse_properties(here.id, ObjectId(array.handle), false))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, sparse(&properties)) }
}

pub(crate) unsafe fn cuMipmappedArrayGetSparseProperties<D: Driver>(
    out: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
    mipmap: CUmipmappedArray,
) -> Result<()> {
    let mipmap = resolve_mipmap(mipmap)?;
    let here = mipmap.context.live()?;
    let properties = here.note(D::get().array_sparse_properties(here.id, ObjectId(mipmap.handle), true))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, sparse(&properties)) }
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

/// A side of a copy in an array of one dimension.
fn row_of(array: CUarray, offset: usize) -> Result<End> {
    let operand = Operand::Array(resolve(array)?);
    Ok(End { operand, layout: Layout::default(), at: (offset as u64, 0, 0) })
}

/// A side of a copy in memory.
fn row_in(operand: Operand, bytes: usize) -> End {
    End { operand, layout: Layout::packed(Extent::row(bytes as u64)), at: (0, 0, 0) }
}

fn copy(dst: End, src: End, bytes: usize) -> Copy {
    Copy { dst, src, extent: Extent::row(bytes as u64) }
}

pub(crate) unsafe fn cuMemcpyAtoA_v2<D: Driver>(
    dst: CUarray,
    dst_offset: usize,
    src: CUarray,
    src_offset: usize,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    let copy = copy(row_of(dst, dst_offset)?, row_of(src, src_offset)?, bytes);
    // SAFETY: names no host memory.
    unsafe { queue_default::<D>(default, &copy) }
}

pub(crate) unsafe fn cuMemcpyAtoD_v2<D: Driver>(
    dst: CUdeviceptr,
    src: CUarray,
    offset: usize,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    let copy = copy(row_in(Operand::Device(dst), bytes), row_of(src, offset)?, bytes);
    // SAFETY: page-locked memory may stand in for device memory.
    unsafe { queue_default::<D>(default, &copy) }
}

pub(crate) unsafe fn cuMemcpyDtoA_v2<D: Driver>(
    dst: CUarray,
    offset: usize,
    src: CUdeviceptr,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    let copy = copy(row_of(dst, offset)?, row_in(Operand::Device(src), bytes), bytes);
    // SAFETY: page-locked memory may stand in for device memory.
    unsafe { queue_default::<D>(default, &copy) }
}

pub(crate) unsafe fn cuMemcpyAtoH_v2<D: Driver>(
    dst: *mut c_void,
    src: CUarray,
    offset: usize,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    let copy = copy(row_in(Operand::Host(dst as u64), bytes), row_of(src, offset)?, bytes);
    // SAFETY: the program's memory.
    unsafe { queue_default::<D>(default, &copy) }
}

pub(crate) unsafe fn cuMemcpyHtoA_v2<D: Driver>(
    dst: CUarray,
    offset: usize,
    src: *const c_void,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    let copy = copy(row_of(dst, offset)?, row_in(Operand::Host(src as u64), bytes), bytes);
    // SAFETY: the program's memory.
    unsafe { queue_default::<D>(default, &copy) }
}

pub(crate) unsafe fn cuMemcpyAtoHAsync_v2<D: Driver>(
    dst: *mut c_void,
    src: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    let copy = copy(row_in(Operand::Host(dst as u64), bytes), row_of(src, offset)?, bytes);
    // SAFETY: the program's memory.
    unsafe { queue::<D>(stream, &copy) }
}

pub(crate) unsafe fn cuMemcpyHtoAAsync_v2<D: Driver>(
    dst: CUarray,
    offset: usize,
    src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    let copy = copy(row_of(dst, offset)?, row_in(Operand::Host(src as u64), bytes), bytes);
    // SAFETY: the program's memory.
    unsafe { queue::<D>(stream, &copy) }
}

// The forms of before CUDA 3.2, with 32-bit sizes.

pub(crate) unsafe fn cuMemcpyAtoA<D: Driver>(
    dst: CUarray,
    dst_offset: c_uint,
    src: CUarray,
    src_offset: c_uint,
    bytes: c_uint,
) -> Result<()> {
    let (dst_offset, src_offset, bytes) = (dst_offset as usize, src_offset as usize, bytes as usize);
    // SAFETY: as this function's.
    unsafe { cuMemcpyAtoA_v2::<D>(dst, dst_offset, src, src_offset, bytes, DefaultStream::Legacy) }
}

pub(crate) unsafe fn cuMemcpyAtoD<D: Driver>(
    dst: CUdeviceptr_v1,
    src: CUarray,
    offset: c_uint,
    bytes: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemcpyAtoD_v2::<D>(dst.into(), src, offset as usize, bytes as usize, DefaultStream::Legacy) }
}

pub(crate) unsafe fn cuMemcpyDtoA<D: Driver>(
    dst: CUarray,
    offset: c_uint,
    src: CUdeviceptr_v1,
    bytes: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemcpyDtoA_v2::<D>(dst, offset as usize, src.into(), bytes as usize, DefaultStream::Legacy) }
}

pub(crate) unsafe fn cuMemcpyAtoH<D: Driver>(
    dst: *mut c_void,
    src: CUarray,
    offset: c_uint,
    bytes: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemcpyAtoH_v2::<D>(dst, src, offset as usize, bytes as usize, DefaultStream::Legacy) }
}

pub(crate) unsafe fn cuMemcpyHtoA<D: Driver>(
    dst: CUarray,
    offset: c_uint,
    src: *const c_void,
    bytes: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemcpyHtoA_v2::<D>(dst, offset as usize, src, bytes as usize, DefaultStream::Legacy) }
}

pub(crate) unsafe fn cuMemcpyAtoHAsync<D: Driver>(
    dst: *mut c_void,
    src: CUarray,
    offset: c_uint,
    bytes: c_uint,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemcpyAtoHAsync_v2::<D>(dst, src, offset as usize, bytes as usize, stream) }
}

pub(crate) unsafe fn cuMemcpyHtoAAsync<D: Driver>(
    dst: CUarray,
    offset: c_uint,
    src: *const c_void,
    bytes: c_uint,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemcpyHtoAAsync_v2::<D>(dst, offset as usize, src, bytes as usize, stream) }
}
