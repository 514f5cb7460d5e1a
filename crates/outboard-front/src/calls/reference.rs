//! Texture and surface references, which kernels name in their image in place of getting an object
//! as a parameter.

mod sampling;

use core::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use outboard_abi::{
    CUDA_ARRAY_DESCRIPTOR, CUarray, CUarray_format, CUarray_format_enum, CUdeviceptr, CUfunction,
    CUmipmappedArray, CUmodule, CUresult, CUsurfref, CUtexref,
};
use parking_lot::Mutex;

use crate::array;
use crate::backend::{
    ArrayDescriptor, Backend, DevicePtr, ObjectId, ReferenceSetting as S, Result,
};
use crate::border::{put, put_if, require, text};
use crate::context::{self, Here};
use crate::handles::Table;
use crate::module::{self, Module};
use crate::process::{Front, Process};
use crate::reference::{Bound, Reference, resolve};

pub use sampling::*;

/// `CU_PARAM_TR_DEFAULT`: the image says which texture unit.
const DEFAULT_UNIT: c_int = -1;

/// Makes a reference under a new handle.
fn insert(
    table: &Table<Reference>,
    here: &Here,
    of: Option<(u64, String)>,
    make: impl FnOnce(ObjectId) -> Result<()>,
) -> Result<u64> {
    let handle = table.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Err(error) = here.note(make(ObjectId(handle))) {
        table.release(handle);
        return Err(error);
    }
    let bound = Mutex::new(Bound::Nothing);
    table.fill(
        handle,
        Arc::new(Reference { handle, context: here.context, id: here.id, of, bound }),
    );
    Ok(handle)
}

/// The reference of that name in a module, the same whenever it is asked for.
///
/// # Safety
/// `name` is null or a string.
unsafe fn find(
    front: &'static Front,
    table: &Table<Reference>,
    module: CUmodule,
    name: *const c_char,
    ask: impl FnOnce(&Here, &Module, &str, ObjectId) -> Result<()>,
) -> Result<u64> {
    let (here, module) = module::resolve(front, module)?;
    // SAFETY: by the contract above.
    let name = unsafe { text(name) }?;
    let of = (module.handle, name.to_owned());
    let _one_at_a_time = front.references.naming.lock();
    if let Some(known) = table.find(|reference| reference.of.as_ref() == Some(&of)) {
        return Ok(known.handle);
    }
    insert(table, &here, Some(of), |id| ask(&here, &module, name, id))
}

pub unsafe fn cuModuleGetTexRef<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUtexref,
    module: CUmodule,
    name: *const c_char,
) -> Result<()> {
    require(!out.is_null())?;
    let ask = |here: &Here, of: &Module, name: &str, id| {
        process.backend.reference_find(here.id, of.id(), name, id)
    };
    // SAFETY: the program's string and out parameter.
    unsafe { put(out, find(process, &process.references.textures, module, name, ask)? as CUtexref) }
}

pub unsafe fn cuModuleGetSurfRef<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUsurfref,
    module: CUmodule,
    name: *const c_char,
) -> Result<()> {
    require(!out.is_null())?;
    let ask = |here: &Here, of: &Module, name: &str, id| {
        process.backend.surface_reference_find(here.id, of.id(), name, id)
    };
    // SAFETY: the program's string and out parameter.
    unsafe {
        put(out, find(process, &process.references.surfaces, module, name, ask)? as CUsurfref)
    }
}

pub unsafe fn cuSurfRefSetArray<B: Backend>(
    process: &'static Process<B>,
    reference: CUsurfref,
    array: CUarray,
    flags: c_uint,
) -> Result<()> {
    let (here, reference) = resolve(process, &process.references.surfaces, reference as u64)?;
    let array = ObjectId(array::resolve(process, array)?.handle);
    let id = ObjectId(reference.handle);
    here.note(process.backend.surface_reference_set(here.id, id, array, flags))?;
    *reference.bound.lock() = Bound::Array(array);
    Ok(())
}

pub unsafe fn cuSurfRefGetArray<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUarray,
    reference: CUsurfref,
) -> Result<()> {
    let (_, reference) = resolve(process, &process.references.surfaces, reference as u64)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, bound_array(&reference)?) }
}

fn bound_array(reference: &Reference) -> Result<CUarray> {
    match *reference.bound.lock() {
        Bound::Array(array) => Ok(array.0 as CUarray),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub unsafe fn cuTexRefCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUtexref,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null())?;
    let handle = insert(&process.references.textures, &here, None, |id| {
        process.backend.reference_create(here.id, id)
    })?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUtexref) }
}

pub unsafe fn cuTexRefDestroy<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
) -> Result<()> {
    let (here, reference) = resolve(process, &process.references.textures, reference as u64)?;
    // Those of a module end with it.
    require(reference.of.is_none())?;
    process
        .references
        .textures
        .remove(reference.handle)
        .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    here.note(process.backend.reference_destroy(here.id, ObjectId(reference.handle)))
}

/// Sets one thing; the offset matters to memory alone.
fn set<B: Backend>(process: &'static Process<B>, reference: CUtexref, setting: S) -> Result<u64> {
    let (here, reference) = resolve(process, &process.references.textures, reference as u64)?;
    let offset =
        here.note(process.backend.reference_set(here.id, ObjectId(reference.handle), &setting))?;
    match setting {
        S::Array(array, _) => *reference.bound.lock() = Bound::Array(array),
        S::Mipmap(mipmap, _) => *reference.bound.lock() = Bound::Mipmap(mipmap),
        S::Memory(..) | S::Rows(..) => *reference.bound.lock() = Bound::Memory,
        _ => {}
    }
    Ok(offset)
}

/// The present setting, of the same kind as `like`.
fn get<B: Backend>(process: &'static Process<B>, reference: CUtexref, like: S) -> Result<S> {
    let (here, reference) = resolve(process, &process.references.textures, reference as u64)?;
    here.note(process.backend.reference_get(here.id, ObjectId(reference.handle), &like))
}

/// A device that answers another question than it was asked.
const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

pub unsafe fn cuTexRefSetArray<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    array: CUarray,
    flags: c_uint,
) -> Result<()> {
    set(process, reference, S::Array(ObjectId(array::resolve(process, array)?.handle), flags))
        .map(drop)
}

pub unsafe fn cuTexRefGetArray<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUarray,
    reference: CUtexref,
) -> Result<()> {
    let (_, reference) = resolve(process, &process.references.textures, reference as u64)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, bound_array(&reference)?) }
}

pub unsafe fn cuTexRefSetMipmappedArray<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    mipmap: CUmipmappedArray,
    flags: c_uint,
) -> Result<()> {
    set(
        process,
        reference,
        S::Mipmap(ObjectId(array::resolve_mipmap(process, mipmap)?.handle), flags),
    )
    .map(drop)
}

pub unsafe fn cuTexRefGetMipmappedArray<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmipmappedArray,
    reference: CUtexref,
) -> Result<()> {
    let (_, reference) = resolve(process, &process.references.textures, reference as u64)?;
    let Bound::Mipmap(mipmap) = *reference.bound.lock() else {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, mipmap.0 as CUmipmappedArray) }
}

pub unsafe fn cuTexRefSetAddress_v2<B: Backend>(
    process: &'static Process<B>,
    offset: *mut usize,
    reference: CUtexref,
    address: CUdeviceptr,
    bytes: usize,
) -> Result<()> {
    let found = set(process, reference, S::Memory(DevicePtr(address), bytes as u64))?;
    // A caller without room for the offset must pass memory that needs none.
    require(!offset.is_null() || found == 0)?;
    // SAFETY: the program's out parameter.
    unsafe { put_if(offset, found as usize) };
    Ok(())
}

pub unsafe fn cuTexRefSetAddress2D_v3<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR,
    address: CUdeviceptr,
    pitch: usize,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let d = unsafe { descriptor.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (width, height) = (d.Width as u64, d.Height as u64);
    let rows = ArrayDescriptor {
        width,
        height,
        depth: 0,
        format: d.Format.0,
        channels: d.NumChannels,
        flags: 0,
    };
    set(process, reference, S::Rows(rows, DevicePtr(address), pitch as u64)).map(drop)
}

pub unsafe fn cuTexRefSetAddress2D_v2<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR,
    address: CUdeviceptr,
    pitch: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuTexRefSetAddress2D_v3(process, reference, descriptor, address, pitch) }
}

pub unsafe fn cuTexRefGetAddress_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    reference: CUtexref,
) -> Result<()> {
    let S::Memory(address, _) = get(process, reference, S::Memory(DevicePtr::NULL, 0))? else {
        return Err(UNKNOWN);
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, address.0) }
}

pub unsafe fn cuTexRefSetFormat<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    format: CUarray_format,
    channels: c_int,
) -> Result<()> {
    set(process, reference, S::Format(format.0, channels as u32)).map(drop)
}

pub unsafe fn cuTexRefGetFormat<B: Backend>(
    process: &'static Process<B>,
    format: *mut CUarray_format,
    channels: *mut c_int,
    reference: CUtexref,
) -> Result<()> {
    let S::Format(found, count) = get(process, reference, S::Format(0, 0))? else {
        return Err(UNKNOWN);
    };
    // SAFETY: the program's out parameters.
    unsafe {
        put_if(format, CUarray_format_enum(found));
        put_if(channels, count as c_int);
    }
    Ok(())
}

pub unsafe fn cuTexRefSetFlags<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    flags: c_uint,
) -> Result<()> {
    set(process, reference, S::Flags(flags)).map(drop)
}

pub unsafe fn cuTexRefGetFlags<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_uint,
    reference: CUtexref,
) -> Result<()> {
    let S::Flags(flags) = get(process, reference, S::Flags(0))? else { return Err(UNKNOWN) };
    // SAFETY: the program's out parameter.
    unsafe { put(out, flags) }
}

/// Kernels get at the references of their image by themselves; only the check remains.
pub unsafe fn cuParamSetTexRef<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    unit: c_int,
    reference: CUtexref,
) -> Result<()> {
    crate::library::function(process, function)?;
    let (_, reference) = resolve(process, &process.references.textures, reference as u64)?;
    require(unit == DEFAULT_UNIT && reference.of.is_some())
}
