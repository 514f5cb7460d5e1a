//! Texture and surface objects. Their values are the device's; what they were made from is kept here.

use std::collections::HashMap;

use outboard_abi::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresourcetype, CUresult, CUsurfObject, CUtexObject,
};
use parking_lot::RwLock;

use crate::Driver;
use crate::array;
use crate::backend::{ContextId, Resource, Result, Sampler, View};
use crate::border::{put, require};
use crate::context;

/// What a texture object was made from.
struct Texture {
    resource: Plain<CUDA_RESOURCE_DESC>,
    sampler: CUDA_TEXTURE_DESC,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

/// A structure of the program, kept to be given back. Its handles and addresses are numbers to us.
struct Plain<T>(T);

// SAFETY: only ever copied back to the program; nothing here follows its pointers.
unsafe impl<T> Send for Plain<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Plain<T> {}

/// Objects by their values, which are the device's and so differ only within a context.
type Objects<T> = RwLock<Option<HashMap<(ContextId, u64), T>>>;

static TEXTURES: Objects<Texture> = RwLock::new(None);
static SURFACES: Objects<Plain<CUDA_RESOURCE_DESC>> = RwLock::new(None);

/// Forgets the objects of a context that has ended.
pub(crate) fn forget(id: ContextId) {
    fn clear<T>(objects: &Objects<T>, id: ContextId) {
        if let Some(objects) = objects.write().as_mut() {
            objects.retain(|(ctx, _), _| *ctx != id);
        }
    }
    clear(&TEXTURES, id);
    clear(&SURFACES, id);
}

/// What a resource description names.
fn resource(d: &CUDA_RESOURCE_DESC) -> Result<Resource> {
    require(d.flags == 0)?;
    // SAFETY: the type says which member of the union holds; all members are plain numbers.
    unsafe {
        Ok(match d.resType {
            CUresourcetype::CU_RESOURCE_TYPE_ARRAY => Resource::Array(array::resolve(d.res.array.hArray)?.handle),
            CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                Resource::Mipmap(array::resolve_mipmap(d.res.mipmap.hMipmappedArray)?.handle)
            }
            CUresourcetype::CU_RESOURCE_TYPE_LINEAR => {
                let linear = d.res.linear;
                Resource::Linear {
                    address: linear.devPtr,
                    format: linear.format.0,
                    channels: linear.numChannels,
                    bytes: linear.sizeInBytes as u64,
                }
            }
            CUresourcetype::CU_RESOURCE_TYPE_PITCH2D => {
                let pitched = d.res.pitch2D;
                Resource::Pitched {
                    address: pitched.devPtr,
                    format: pitched.format.0,
                    channels: pitched.numChannels,
                    size: (pitched.width as u64, pitched.height as u64, pitched.pitchInBytes as u64),
                }
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }
}

fn sampler(d: &CUDA_TEXTURE_DESC) -> Sampler {
    let [x, y, z] = d.addressMode.map(|mode| mode.0);
    let [red, green, blue, alpha] = d.borderColor;
    Sampler {
        address: (x, y, z),
        filter: d.filterMode.0,
        flags: d.flags,
        anisotropy: d.maxAnisotropy,
        mipmap_filter: d.mipmapFilterMode.0,
        mipmap: (d.mipmapLevelBias, d.minMipmapLevelClamp, d.maxMipmapLevelClamp),
        border: ((red, green), (blue, alpha)),
    }
}

fn view(d: &CUDA_RESOURCE_VIEW_DESC) -> View {
    View {
        format: d.format.0,
        size: (d.width as u64, d.height as u64, d.depth as u64),
        levels: (d.firstMipmapLevel, d.lastMipmapLevel),
        layers: (d.firstLayer, d.lastLayer),
    }
}

pub(crate) unsafe fn cuTexObjectCreate<D: Driver>(
    out: *mut CUtexObject,
    res_desc: *const CUDA_RESOURCE_DESC,
    tex_desc: *const CUDA_TEXTURE_DESC,
    view_desc: *const CUDA_RESOURCE_VIEW_DESC,
) -> Result<()> {
    let here = context::current()?;
    // SAFETY: null or the program's structures.
    let (res, tex, part) = unsafe { (res_desc.as_ref(), tex_desc.as_ref(), view_desc.as_ref()) };
    let (Some(res), Some(tex)) = (res, tex) else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
    require(!out.is_null())?;
    crate::capture::refuse_unsafe()?;
    let (resource, sampler, seen) = (resource(res)?, sampler(tex), part.map(view));
    let value = here.note(D::get().texture_create(here.id, &resource, &sampler, seen.as_ref()))?;
    let texture = Texture { resource: Plain(*res), sampler: *tex, view: part.copied() };
    TEXTURES.write().get_or_insert_default().insert((here.id, value), texture);
    // SAFETY: the program's out parameter.
    unsafe { put(out, value) }
}

pub(crate) unsafe fn cuTexObjectDestroy<D: Driver>(texture: CUtexObject) -> Result<()> {
    let here = context::current()?;
    let known = TEXTURES.write().as_mut().and_then(|textures| textures.remove(&(here.id, texture)));
    require(known.is_some())?;
    here.note(D::get().texture_destroy(here.id, texture))
}

/// Gives back a part of what a texture was made from.
fn texture<T>(texture: CUtexObject, part: impl FnOnce(&Texture) -> T) -> Result<T> {
    let here = context::current()?;
    let textures = TEXTURES.read();
    let found = textures.as_ref().and_then(|textures| textures.get(&(here.id, texture)));
    found.map(part).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn cuTexObjectGetResourceDesc<D: Driver>(
    out: *mut CUDA_RESOURCE_DESC,
    object: CUtexObject,
) -> Result<()> {
    let resource = texture(object, |texture| texture.resource.0)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, resource) }
}

pub(crate) unsafe fn cuTexObjectGetTextureDesc<D: Driver>(
    out: *mut CUDA_TEXTURE_DESC,
    object: CUtexObject,
) -> Result<()> {
    let sampler = texture(object, |texture| texture.sampler)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, sampler) }
}

pub(crate) unsafe fn cuTexObjectGetResourceViewDesc<D: Driver>(
    out: *mut CUDA_RESOURCE_VIEW_DESC,
    object: CUtexObject,
) -> Result<()> {
    let view = texture(object, |texture| texture.view)?.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, view) }
}

pub(crate) unsafe fn cuSurfObjectCreate<D: Driver>(
    out: *mut CUsurfObject,
    res_desc: *const CUDA_RESOURCE_DESC,
) -> Result<()> {
    let here = context::current()?;
    // SAFETY: null or the program's structure.
    let res = unsafe { res_desc.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(!out.is_null() && res.resType == CUresourcetype::CU_RESOURCE_TYPE_ARRAY)?;
    crate::capture::refuse_unsafe()?;
    let resource = resource(res)?;
    let value = here.note(D::get().surface_create(here.id, &resource))?;
    SURFACES.write().get_or_insert_default().insert((here.id, value), Plain(*res));
    // SAFETY: the program's out parameter.
    unsafe { put(out, value) }
}

pub(crate) unsafe fn cuSurfObjectDestroy<D: Driver>(surface: CUsurfObject) -> Result<()> {
    let here = context::current()?;
    let known = SURFACES.write().as_mut().and_then(|surfaces| surfaces.remove(&(here.id, surface)));
    require(known.is_some())?;
    here.note(D::get().surface_destroy(here.id, surface))
}

pub(crate) unsafe fn cuSurfObjectGetResourceDesc<D: Driver>(
    out: *mut CUDA_RESOURCE_DESC,
    surface: CUsurfObject,
) -> Result<()> {
    let here = context::current()?;
    let found = SURFACES.read().as_ref().and_then(|surfaces| surfaces.get(&(here.id, surface)).map(|found| found.0));
    // SAFETY: the program's out parameter.
    unsafe { put(out, found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?) }
}
