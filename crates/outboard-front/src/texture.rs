//! Texture and surface objects. The device chooses their values; the front keeps their
//! descriptions.

use outboard_abi::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresourcetype, CUresult,
};

use crate::array;
use crate::backend::{ContextId, DevicePtr, ObjectId, Resource, Result, Sampler, View};
use crate::border::require;
use crate::process::Front;

pub(crate) use crate::parts::texture::{Objects, Plain, Texture};

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
pub(crate) fn resource(front: &'static Front, d: &CUDA_RESOURCE_DESC) -> Result<Resource> {
    require(d.flags == 0)?;
    // SAFETY: the type says which member of the union holds; all members are plain numbers.
    unsafe {
        Ok(match d.resType {
            CUresourcetype::CU_RESOURCE_TYPE_ARRAY => {
                Resource::Array(ObjectId(array::resolve(front, d.res.array.hArray)?.handle))
            }
            CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => Resource::Mipmap(ObjectId(
                array::resolve_mipmap(front, d.res.mipmap.hMipmappedArray)?.handle,
            )),
            CUresourcetype::CU_RESOURCE_TYPE_LINEAR => {
                let linear = d.res.linear;
                Resource::Linear {
                    address: DevicePtr(linear.devPtr),
                    format: linear.format.0,
                    channels: linear.numChannels,
                    bytes: linear.sizeInBytes as u64,
                }
            }
            CUresourcetype::CU_RESOURCE_TYPE_PITCH2D => {
                let pitched = d.res.pitch2D;
                Resource::Pitched {
                    address: DevicePtr(pitched.devPtr),
                    format: pitched.format.0,
                    channels: pitched.numChannels,
                    size: (
                        pitched.width as u64,
                        pitched.height as u64,
                        pitched.pitchInBytes as u64,
                    ),
                }
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }
}

pub(crate) fn sampler(d: &CUDA_TEXTURE_DESC) -> Sampler {
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

pub(crate) fn view(d: &CUDA_RESOURCE_VIEW_DESC) -> View {
    View {
        format: d.format.0,
        size: (d.width as u64, d.height as u64, d.depth as u64),
        levels: (d.firstMipmapLevel, d.lastMipmapLevel),
        layers: (d.firstLayer, d.lastLayer),
    }
}
