//! Texture and surface objects. Their values are the device's; what they were made from is kept here.

use std::collections::HashMap;

use outboard_abi::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresourcetype, CUresult, CUsurfObject, CUtexObject,
};
use parking_lot::RwLock;

use crate::array;
use crate::backend::{Backend, ContextId, Resource, Result, Sampler, View};
use crate::border::{put, require};
use crate::context;
use crate::process::{Front, Process};

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

/// The texture and surface objects of a process.
pub(crate) struct Textures {
    textures: Objects<Texture>,
    surfaces: Objects<Plain<CUDA_RESOURCE_DESC>>,
}

impl Textures {
    pub(crate) const fn new() -> Textures {
        Textures { textures: RwLock::new(None), surfaces: RwLock::new(None) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let textures = self.textures.read().as_ref().map_or(0, std::collections::HashMap::len);
        textures + self.surfaces.read().as_ref().map_or(0, std::collections::HashMap::len)
    }
}

/// Forgets the objects of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    fn clear<T>(objects: &Objects<T>, id: ContextId) {
        if let Some(objects) = objects.write().as_mut() {
            objects.retain(|(ctx, _), _| *ctx != id);
        }
    }
    clear(&front.textures.textures, id);
    clear(&front.textures.surfaces, id);
}

/// What a resource description names.
fn resource(front: &'static Front, d: &CUDA_RESOURCE_DESC) -> Result<Resource> {
    require(d.flags == 0)?;
    // SAFETY: the type says which member of the union holds; all members are plain numbers.
    unsafe {
        Ok(match d.resType {
            CUresourcetype::CU_RESOURCE_TYPE_ARRAY => {
                Resource::Array(array::resolve(front, d.res.array.hArray)?.handle)
            }
            CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                Resource::Mipmap(array::resolve_mipmap(front, d.res.mipmap.hMipmappedArray)?.handle)
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

pub unsafe fn cuTexObjectCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUtexObject,
    res_desc: *const CUDA_RESOURCE_DESC,
    tex_desc: *const CUDA_TEXTURE_DESC,
    view_desc: *const CUDA_RESOURCE_VIEW_DESC,
) -> Result<()> {
    let here = context::current(process)?;
    // SAFETY: null or the program's structures.
    let (res, tex, part) = unsafe { (res_desc.as_ref(), tex_desc.as_ref(), view_desc.as_ref()) };
    let (Some(res), Some(tex)) = (res, tex) else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
    require(!out.is_null())?;
    crate::capture::refuse_unsafe(process)?;
    let (resource, sampler, seen) = (resource(process, res)?, sampler(tex), part.map(view));
    let value = here.note(process.backend.texture_create(here.id, &resource, &sampler, seen.as_ref()))?;
    let texture = Texture { resource: Plain(*res), sampler: *tex, view: part.copied() };
    process.textures.textures.write().get_or_insert_default().insert((here.id, value), texture);
    // SAFETY: the program's out parameter.
    unsafe { put(out, value) }
}

pub unsafe fn cuTexObjectDestroy<B: Backend>(process: &'static Process<B>, texture: CUtexObject) -> Result<()> {
    let here = context::current(process)?;
    let known = process.textures.textures.write().as_mut().and_then(|textures| textures.remove(&(here.id, texture)));
    require(known.is_some())?;
    here.note(process.backend.texture_destroy(here.id, texture))
}

/// Gives back a part of what a texture was made from.
fn texture<T>(front: &'static Front, texture: CUtexObject, part: impl FnOnce(&Texture) -> T) -> Result<T> {
    let here = context::current(front)?;
    let textures = front.textures.textures.read();
    let found = textures.as_ref().and_then(|textures| textures.get(&(here.id, texture)));
    found.map(part).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub unsafe fn cuTexObjectGetResourceDesc<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_RESOURCE_DESC,
    object: CUtexObject,
) -> Result<()> {
    let resource = texture(process, object, |texture| texture.resource.0)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, resource) }
}

pub unsafe fn cuTexObjectGetTextureDesc<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_TEXTURE_DESC,
    object: CUtexObject,
) -> Result<()> {
    let sampler = texture(process, object, |texture| texture.sampler)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, sampler) }
}

pub unsafe fn cuTexObjectGetResourceViewDesc<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_RESOURCE_VIEW_DESC,
    object: CUtexObject,
) -> Result<()> {
    let view = texture(process, object, |texture| texture.view)?.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, view) }
}

pub unsafe fn cuSurfObjectCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUsurfObject,
    res_desc: *const CUDA_RESOURCE_DESC,
) -> Result<()> {
    let here = context::current(process)?;
    // SAFETY: null or the program's structure.
    let res = unsafe { res_desc.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(!out.is_null() && res.resType == CUresourcetype::CU_RESOURCE_TYPE_ARRAY)?;
    crate::capture::refuse_unsafe(process)?;
    let resource = resource(process, res)?;
    let value = here.note(process.backend.surface_create(here.id, &resource))?;
    process.textures.surfaces.write().get_or_insert_default().insert((here.id, value), Plain(*res));
    // SAFETY: the program's out parameter.
    unsafe { put(out, value) }
}

pub unsafe fn cuSurfObjectDestroy<B: Backend>(process: &'static Process<B>, surface: CUsurfObject) -> Result<()> {
    let here = context::current(process)?;
    let known = process.textures.surfaces.write().as_mut().and_then(|surfaces| surfaces.remove(&(here.id, surface)));
    require(known.is_some())?;
    here.note(process.backend.surface_destroy(here.id, surface))
}

pub unsafe fn cuSurfObjectGetResourceDesc<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUDA_RESOURCE_DESC,
    surface: CUsurfObject,
) -> Result<()> {
    let here = context::current(process)?;
    let found = process
        .textures
        .surfaces
        .read()
        .as_ref()
        .and_then(|surfaces| surfaces.get(&(here.id, surface)).map(|found| found.0));
    // SAFETY: the program's out parameter.
    unsafe { put(out, found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?) }
}
