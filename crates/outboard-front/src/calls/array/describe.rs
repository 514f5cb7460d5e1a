//! Descriptions of arrays: their properties and their memory requirements.

use core::ffi::c_uint;

use outboard_abi::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_ARRAY_SPARSE_PROPERTIES, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray,
    CUarray_format, CUdevice, CUmipmappedArray,
};

use crate::array::{resolve, resolve_mipmap};
use crate::backend::{ArrayDescriptor, Backend, ObjectId, Result, SparseProperties};
use crate::border::{put, require};
use crate::context::Context;
use crate::process::Process;

pub(super) fn of_three(d: &CUDA_ARRAY3D_DESCRIPTOR) -> ArrayDescriptor {
    ArrayDescriptor {
        width: d.Width as u64,
        height: d.Height as u64,
        depth: d.Depth as u64,
        format: d.Format.0,
        channels: d.NumChannels,
        flags: d.Flags,
    }
}

pub unsafe fn cuArrayGetDescriptor_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_ARRAY_DESCRIPTOR,
    array: CUarray,
) -> Result<()> {
    let d = resolve(process, array)?.descriptor;
    let descriptor = CUDA_ARRAY_DESCRIPTOR {
        Width: d.width as usize,
        Height: d.height as usize,
        Format: outboard_abi::CUarray_format_enum(d.format),
        NumChannels: d.channels,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, descriptor) }
}

pub unsafe fn cuArrayGetDescriptor<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_ARRAY_DESCRIPTOR_v1,
    array: CUarray,
) -> Result<()> {
    let d = resolve(process, array)?.descriptor;
    let descriptor = CUDA_ARRAY_DESCRIPTOR_v1 {
        Width: d.width as c_uint,
        Height: d.height as c_uint,
        Format: outboard_abi::CUarray_format_enum(d.format),
        NumChannels: d.channels,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, descriptor) }
}

pub unsafe fn cuArray3DGetDescriptor_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_ARRAY3D_DESCRIPTOR,
    array: CUarray,
) -> Result<()> {
    let d = resolve(process, array)?.descriptor;
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

pub unsafe fn cuArray3DGetDescriptor<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_ARRAY3D_DESCRIPTOR_v1,
    array: CUarray,
) -> Result<()> {
    let d = resolve(process, array)?.descriptor;
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

/// The memory that an array or mipmapped array needs on a device.
///
/// # Safety
/// `out` is null or the program's out parameter.
unsafe fn memory_requirements<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    context: &'static Context,
    handle: u64,
    mipmapped: bool,
    device: CUdevice,
) -> Result<()> {
    let here = context.live()?;
    require(!out.is_null())?;
    let (_, device) = crate::state::device(process, device)?;
    let outcome =
        process.backend.array_memory_requirements(here.id, ObjectId(handle), mipmapped, device.id);
    let (bytes, alignment) = here.note(outcome)?;
    let needs = CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: bytes as usize,
        alignment: alignment as usize,
        reserved: [0; 4],
    };
    // SAFETY: by the contract above.
    unsafe { put(out, needs) }
}

pub unsafe fn cuArrayGetMemoryRequirements<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    array: CUarray,
    device: CUdevice,
) -> Result<()> {
    let array = resolve(process, array)?;
    // SAFETY: the program's out parameter.
    unsafe { memory_requirements(process, out, array.context, array.handle, false, device) }
}

pub unsafe fn cuMipmappedArrayGetMemoryRequirements<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    mipmap: CUmipmappedArray,
    device: CUdevice,
) -> Result<()> {
    let mipmap = resolve_mipmap(process, mipmap)?;
    // SAFETY: the program's out parameter.
    unsafe { memory_requirements(process, out, mipmap.context, mipmap.handle, true, device) }
}

fn sparse(properties: &SparseProperties) -> CUDA_ARRAY_SPARSE_PROPERTIES {
    let (width, height, depth) = properties.tile;
    CUDA_ARRAY_SPARSE_PROPERTIES {
        tileExtent: outboard_abi::CUDA_ARRAY_SPARSE_PROPERTIES_st__bindgen_ty_1 {
            width,
            height,
            depth,
        },
        miptailFirstLevel: properties.tail_level,
        miptailSize: properties.tail_bytes,
        flags: properties.flags,
        reserved: [0; 4],
    }
}

pub unsafe fn cuArrayGetSparseProperties<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
    array: CUarray,
) -> Result<()> {
    let array = resolve(process, array)?;
    let here = array.context.live()?;
    let properties =
        here.note(process.backend.array_sparse_properties(here.id, ObjectId(array.handle), false))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, sparse(&properties)) }
}

pub unsafe fn cuMipmappedArrayGetSparseProperties<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
    mipmap: CUmipmappedArray,
) -> Result<()> {
    let mipmap = resolve_mipmap(process, mipmap)?;
    let here = mipmap.context.live()?;
    let properties =
        here.note(process.backend.array_sparse_properties(here.id, ObjectId(mipmap.handle), true))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, sparse(&properties)) }
}
