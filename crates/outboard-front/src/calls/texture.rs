//! Texture and surface objects.

use outboard_abi::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresourcetype, CUresult,
    CUsurfObject, CUtexObject,
};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::context;
use crate::process::{Front, Process};
use crate::texture::{Plain, Texture, resource, sampler, view};

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
    let (resource, sampler) = (resource(process, res)?, sampler(tex));
    let seen = part.filter(|_| has_views(res)).map(view);
    let value =
        here.note(process.backend.texture_create(here.id, &resource, &sampler, seen.as_ref()))?;
    let texture = Texture { resource: Plain(*res), sampler: *tex, view: part.copied() };
    process.textures.textures.write().get_or_insert_default().insert((here.id, value), texture);
    // SAFETY: the program's out parameter.
    unsafe { put(out, value) }
}

/// Whether a view of a resource means anything. NVIDIA's driver takes any view of linear memory,
/// and does as if there were none.
fn has_views(resource: &CUDA_RESOURCE_DESC) -> bool {
    matches!(
        resource.resType,
        CUresourcetype::CU_RESOURCE_TYPE_ARRAY | CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
    )
}

pub unsafe fn cuTexObjectDestroy<B: Backend>(
    process: &'static Process<B>,
    texture: CUtexObject,
) -> Result<()> {
    let here = context::current(process)?;
    let known = process
        .textures
        .textures
        .write()
        .as_mut()
        .and_then(|textures| textures.remove(&(here.id, texture)));
    require(known.is_some())?;
    here.note(process.backend.texture_destroy(here.id, texture))
}

/// Gives back a part of what a texture was made from.
fn texture<T>(
    front: &'static Front,
    texture: CUtexObject,
    part: impl FnOnce(&Texture) -> T,
) -> Result<T> {
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
    let (view, is_told) =
        texture(process, object, |texture| (texture.view, has_views(&texture.resource.0)))?;
    let view = view.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if !is_told {
        // NVIDIA's driver writes nothing then.
        return Ok(());
    }
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

pub unsafe fn cuSurfObjectDestroy<B: Backend>(
    process: &'static Process<B>,
    surface: CUsurfObject,
) -> Result<()> {
    let here = context::current(process)?;
    let known = process
        .textures
        .surfaces
        .write()
        .as_mut()
        .and_then(|surfaces| surfaces.remove(&(here.id, surface)));
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
