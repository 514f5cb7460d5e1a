//! Texture and surface references, which kernels name in their image in place of getting an object as a parameter.
//!
//! What a reference is set to is the device's to know and to tell; which array a handle stands for is known here.

use core::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use outboard_abi::{
    CUDA_ARRAY_DESCRIPTOR, CUaddress_mode, CUaddress_mode_enum, CUarray, CUarray_format, CUarray_format_enum,
    CUdeviceptr, CUfilter_mode, CUfilter_mode_enum, CUfunction, CUmipmappedArray, CUmodule, CUresult, CUsurfref,
    CUtexref,
};
use parking_lot::Mutex;

use crate::Driver;
use crate::array;
use crate::backend::{ArrayDescriptor, ContextId, ObjectId, ReferenceSetting as S, Result};
use crate::border::{put, put_if, require, text};
use crate::context::{self, Context, Here};
use crate::handles::{Kind, Table};
use crate::module::{self, Module};

/// `CU_PARAM_TR_DEFAULT`: the image says which texture unit.
const DEFAULT_UNIT: c_int = -1;

/// What a reference reads or writes.
#[derive(Clone, Copy)]
enum Bound {
    Nothing,
    Array(u64),
    Mipmap(u64),
    Memory,
}

/// A texture or surface reference.
pub(crate) struct Reference {
    handle: u64,
    context: &'static Context,
    id: ContextId,
    /// The module it is of, and its name there; nothing for one that the program made.
    of: Option<(u64, String)>,
    bound: Mutex<Bound>,
}

static TEXTURES: Table<Reference> = Table::new(Kind::TextureReference);
static SURFACES: Table<Reference> = Table::new(Kind::SurfaceReference);
/// Held while a module's reference gets its handle, so that each has one.
static NAMING: Mutex<()> = Mutex::new(());

/// Forgets the references of a context that has ended.
pub(crate) fn forget(id: ContextId) {
    TEXTURES.remove_where(|reference| reference.id == id);
    SURFACES.remove_where(|reference| reference.id == id);
}

/// Forgets the references of a module that is unloaded.
pub(crate) fn forget_module(module: u64) {
    let of = |reference: &Reference| reference.of.as_ref().is_some_and(|(of, _)| *of == module);
    TEXTURES.remove_where(of);
    SURFACES.remove_where(of);
}

fn resolve(table: &Table<Reference>, handle: u64) -> Result<(Here, Arc<Reference>)> {
    crate::state::ready()?;
    let reference = table.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    Ok((reference.context.live()?, reference))
}

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
    table.fill(handle, Arc::new(Reference { handle, context: here.context, id: here.id, of, bound }));
    Ok(handle)
}

/// The reference of that name in a module, the same whenever it is asked for.
///
/// # Safety
/// `name` is null or a string.
unsafe fn find(
    table: &Table<Reference>,
    module: CUmodule,
    name: *const c_char,
    ask: impl FnOnce(&Here, &Module, &str, ObjectId) -> Result<()>,
) -> Result<u64> {
    let (here, module) = module::resolve(module)?;
    // SAFETY: by the contract above.
    let name = unsafe { text(name) }?;
    let of = (module.handle, name.to_owned());
    let _one_at_a_time = NAMING.lock();
    if let Some(known) = table.find(|reference| reference.of.as_ref() == Some(&of)) {
        return Ok(known.handle);
    }
    insert(table, &here, Some(of), |id| ask(&here, &module, name, id))
}

pub(crate) unsafe fn cuModuleGetTexRef<D: Driver>(
    out: *mut CUtexref,
    module: CUmodule,
    name: *const c_char,
) -> Result<()> {
    require(!out.is_null())?;
    let ask = |here: &Here, of: &Module, name: &str, id| D::get().reference_find(here.id, of.id(), name, id);
    // SAFETY: the program's string and out parameter.
    unsafe { put(out, find(&TEXTURES, module, name, ask)? as CUtexref) }
}

pub(crate) unsafe fn cuModuleGetSurfRef<D: Driver>(
    out: *mut CUsurfref,
    module: CUmodule,
    name: *const c_char,
) -> Result<()> {
    require(!out.is_null())?;
    let ask = |here: &Here, of: &Module, name: &str, id| D::get().surface_reference_find(here.id, of.id(), name, id);
    // SAFETY: the program's string and out parameter.
    unsafe { put(out, find(&SURFACES, module, name, ask)? as CUsurfref) }
}

pub(crate) unsafe fn cuSurfRefSetArray<D: Driver>(reference: CUsurfref, array: CUarray, flags: c_uint) -> Result<()> {
    let (here, reference) = resolve(&SURFACES, reference as u64)?;
    let array = array::resolve(array)?.handle;
    let id = ObjectId(reference.handle);
    here.note(D::get().surface_reference_set(here.id, id, ObjectId(array), flags))?;
    *reference.bound.lock() = Bound::Array(array);
    Ok(())
}

pub(crate) unsafe fn cuSurfRefGetArray<D: Driver>(out: *mut CUarray, reference: CUsurfref) -> Result<()> {
    let (_, reference) = resolve(&SURFACES, reference as u64)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, bound_array(&reference)?) }
}

fn bound_array(reference: &Reference) -> Result<CUarray> {
    match *reference.bound.lock() {
        Bound::Array(array) => Ok(array as CUarray),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuTexRefCreate<D: Driver>(out: *mut CUtexref) -> Result<()> {
    let here = context::current()?;
    require(!out.is_null())?;
    let handle = insert(&TEXTURES, &here, None, |id| D::get().reference_create(here.id, id))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUtexref) }
}

pub(crate) unsafe fn cuTexRefDestroy<D: Driver>(reference: CUtexref) -> Result<()> {
    let (here, reference) = resolve(&TEXTURES, reference as u64)?;
    // Those of a module end with it.
    require(reference.of.is_none())?;
    TEXTURES.remove(reference.handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    here.note(D::get().reference_destroy(here.id, ObjectId(reference.handle)))
}

/// Sets one thing; the offset matters to memory alone.
fn set<D: Driver>(reference: CUtexref, setting: S) -> Result<u64> {
    let (here, reference) = resolve(&TEXTURES, reference as u64)?;
    let offset = here.note(D::get().reference_set(here.id, ObjectId(reference.handle), &setting))?;
    match setting {
        S::Array(array, _) => *reference.bound.lock() = Bound::Array(array),
        S::Mipmap(mipmap, _) => *reference.bound.lock() = Bound::Mipmap(mipmap),
        S::Memory(..) | S::Rows(..) => *reference.bound.lock() = Bound::Memory,
        _ => {}
    }
    Ok(offset)
}

/// What is set, in the way of `like`.
fn get<D: Driver>(reference: CUtexref, like: S) -> Result<S> {
    let (here, reference) = resolve(&TEXTURES, reference as u64)?;
    here.note(D::get().reference_get(here.id, ObjectId(reference.handle), &like))
}

/// A device that answers another question than it was asked.
const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

fn dimension(dimension: c_int) -> Result<u32> {
    u32::try_from(dimension).ok().filter(|dimension| *dimension < 3).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn cuTexRefSetArray<D: Driver>(reference: CUtexref, array: CUarray, flags: c_uint) -> Result<()> {
    set::<D>(reference, S::Array(array::resolve(array)?.handle, flags)).map(drop)
}

pub(crate) unsafe fn cuTexRefGetArray<D: Driver>(out: *mut CUarray, reference: CUtexref) -> Result<()> {
    let (_, reference) = resolve(&TEXTURES, reference as u64)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, bound_array(&reference)?) }
}

pub(crate) unsafe fn cuTexRefSetMipmappedArray<D: Driver>(
    reference: CUtexref,
    mipmap: CUmipmappedArray,
    flags: c_uint,
) -> Result<()> {
    set::<D>(reference, S::Mipmap(array::resolve_mipmap(mipmap)?.handle, flags)).map(drop)
}

pub(crate) unsafe fn cuTexRefGetMipmappedArray<D: Driver>(
    out: *mut CUmipmappedArray,
    reference: CUtexref,
) -> Result<()> {
    let (_, reference) = resolve(&TEXTURES, reference as u64)?;
    let Bound::Mipmap(mipmap) = *reference.bound.lock() else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
    // SAFETY: the program's out parameter.
    unsafe { put(out, mipmap as CUmipmappedArray) }
}

pub(crate) unsafe fn cuTexRefSetAddress_v2<D: Driver>(
    offset: *mut usize,
    reference: CUtexref,
    address: CUdeviceptr,
    bytes: usize,
) -> Result<()> {
    let found = set::<D>(reference, S::Memory(address, bytes as u64))?;
    // Who leaves the offset out must give memory that has none.
    require(!offset.is_null() || found == 0)?;
    // SAFETY: the program's out parameter.
    unsafe { put_if(offset, found as usize) };
    Ok(())
}

pub(crate) unsafe fn cuTexRefSetAddress2D_v3<D: Driver>(
    reference: CUtexref,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR,
    address: CUdeviceptr,
    pitch: usize,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let d = unsafe { descriptor.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (width, height) = (d.Width as u64, d.Height as u64);
    let rows = ArrayDescriptor { width, height, depth: 0, format: d.Format.0, channels: d.NumChannels, flags: 0 };
    set::<D>(reference, S::Rows(rows, address, pitch as u64)).map(drop)
}

pub(crate) unsafe fn cuTexRefSetAddress2D_v2<D: Driver>(
    reference: CUtexref,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR,
    address: CUdeviceptr,
    pitch: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuTexRefSetAddress2D_v3::<D>(reference, descriptor, address, pitch) }
}

pub(crate) unsafe fn cuTexRefGetAddress_v2<D: Driver>(out: *mut CUdeviceptr, reference: CUtexref) -> Result<()> {
    let S::Memory(address, _) = get::<D>(reference, S::Memory(0, 0))? else { return Err(UNKNOWN) };
    // SAFETY: the program's out parameter.
    unsafe { put(out, address) }
}

pub(crate) unsafe fn cuTexRefSetFormat<D: Driver>(
    reference: CUtexref,
    format: CUarray_format,
    channels: c_int,
) -> Result<()> {
    set::<D>(reference, S::Format(format.0, channels as u32)).map(drop)
}

pub(crate) unsafe fn cuTexRefGetFormat<D: Driver>(
    format: *mut CUarray_format,
    channels: *mut c_int,
    reference: CUtexref,
) -> Result<()> {
    let S::Format(found, count) = get::<D>(reference, S::Format(0, 0))? else { return Err(UNKNOWN) };
    // SAFETY: the program's out parameters.
    unsafe {
        put_if(format, CUarray_format_enum(found));
        put_if(channels, count as c_int);
    }
    Ok(())
}

pub(crate) unsafe fn cuTexRefSetAddressMode<D: Driver>(
    reference: CUtexref,
    dim: c_int,
    mode: CUaddress_mode,
) -> Result<()> {
    set::<D>(reference, S::AddressMode(dimension(dim)?, mode.0)).map(drop)
}

pub(crate) unsafe fn cuTexRefGetAddressMode<D: Driver>(
    out: *mut CUaddress_mode,
    reference: CUtexref,
    dim: c_int,
) -> Result<()> {
    let S::AddressMode(_, mode) = get::<D>(reference, S::AddressMode(dimension(dim)?, 0))? else {
        return Err(UNKNOWN);
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUaddress_mode_enum(mode)) }
}

pub(crate) unsafe fn cuTexRefSetFilterMode<D: Driver>(reference: CUtexref, mode: CUfilter_mode) -> Result<()> {
    set::<D>(reference, S::Filter(mode.0)).map(drop)
}

pub(crate) unsafe fn cuTexRefGetFilterMode<D: Driver>(out: *mut CUfilter_mode, reference: CUtexref) -> Result<()> {
    let S::Filter(mode) = get::<D>(reference, S::Filter(0))? else { return Err(UNKNOWN) };
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUfilter_mode_enum(mode)) }
}

pub(crate) unsafe fn cuTexRefSetMipmapFilterMode<D: Driver>(reference: CUtexref, mode: CUfilter_mode) -> Result<()> {
    set::<D>(reference, S::MipmapFilter(mode.0)).map(drop)
}

pub(crate) unsafe fn cuTexRefGetMipmapFilterMode<D: Driver>(
    out: *mut CUfilter_mode,
    reference: CUtexref,
) -> Result<()> {
    let S::MipmapFilter(mode) = get::<D>(reference, S::MipmapFilter(0))? else { return Err(UNKNOWN) };
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUfilter_mode_enum(mode)) }
}

pub(crate) unsafe fn cuTexRefSetMipmapLevelBias<D: Driver>(reference: CUtexref, bias: f32) -> Result<()> {
    set::<D>(reference, S::MipmapBias(bias)).map(drop)
}

pub(crate) unsafe fn cuTexRefGetMipmapLevelBias<D: Driver>(out: *mut f32, reference: CUtexref) -> Result<()> {
    let S::MipmapBias(bias) = get::<D>(reference, S::MipmapBias(0.0))? else { return Err(UNKNOWN) };
    // SAFETY: the program's out parameter.
    unsafe { put(out, bias) }
}

pub(crate) unsafe fn cuTexRefSetMipmapLevelClamp<D: Driver>(reference: CUtexref, least: f32, most: f32) -> Result<()> {
    set::<D>(reference, S::MipmapClamp(least, most)).map(drop)
}

pub(crate) unsafe fn cuTexRefGetMipmapLevelClamp<D: Driver>(
    least: *mut f32,
    most: *mut f32,
    reference: CUtexref,
) -> Result<()> {
    let S::MipmapClamp(low, high) = get::<D>(reference, S::MipmapClamp(0.0, 0.0))? else { return Err(UNKNOWN) };
    // SAFETY: the program's out parameters.
    unsafe {
        put(least, low)?;
        put(most, high)
    }
}

pub(crate) unsafe fn cuTexRefSetMaxAnisotropy<D: Driver>(reference: CUtexref, most: c_uint) -> Result<()> {
    set::<D>(reference, S::Anisotropy(most)).map(drop)
}

pub(crate) unsafe fn cuTexRefGetMaxAnisotropy<D: Driver>(out: *mut c_int, reference: CUtexref) -> Result<()> {
    let S::Anisotropy(most) = get::<D>(reference, S::Anisotropy(0))? else { return Err(UNKNOWN) };
    // SAFETY: the program's out parameter.
    unsafe { put(out, most as c_int) }
}

pub(crate) unsafe fn cuTexRefSetBorderColor<D: Driver>(reference: CUtexref, colour: *mut f32) -> Result<()> {
    // SAFETY: null or the program's four numbers.
    let colour = unsafe { colour.cast::<[f32; 4]>().as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    set::<D>(reference, S::Border((colour[0], colour[1]), (colour[2], colour[3]))).map(drop)
}

pub(crate) unsafe fn cuTexRefGetBorderColor<D: Driver>(out: *mut f32, reference: CUtexref) -> Result<()> {
    let S::Border(first, second) = get::<D>(reference, S::Border((0.0, 0.0), (0.0, 0.0)))? else {
        return Err(UNKNOWN);
    };
    // SAFETY: the program's room for four numbers.
    unsafe { put(out.cast(), [first.0, first.1, second.0, second.1]) }
}

pub(crate) unsafe fn cuTexRefSetFlags<D: Driver>(reference: CUtexref, flags: c_uint) -> Result<()> {
    set::<D>(reference, S::Flags(flags)).map(drop)
}

pub(crate) unsafe fn cuTexRefGetFlags<D: Driver>(out: *mut c_uint, reference: CUtexref) -> Result<()> {
    let S::Flags(flags) = get::<D>(reference, S::Flags(0))? else { return Err(UNKNOWN) };
    // SAFETY: the program's out parameter.
    unsafe { put(out, flags) }
}

/// Kernels get at the references of their image by themselves; what is left is to check.
pub(crate) unsafe fn cuParamSetTexRef<D: Driver>(function: CUfunction, unit: c_int, reference: CUtexref) -> Result<()> {
    crate::function::resolve::<D>(function)?;
    let (_, reference) = resolve(&TEXTURES, reference as u64)?;
    require(unit == DEFAULT_UNIT && reference.of.is_some())
}
