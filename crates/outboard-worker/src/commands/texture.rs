//! Texture and surface objects.

use outboard_abi::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_DESC_st__bindgen_ty_1 as Union, CUDA_RESOURCE_VIEW_DESC,
    CUDA_TEXTURE_DESC, CUresourcetype, CUresult,
};
use outboard_driver::call;
use outboard_wire::DevicePtr;
use outboard_wire::messages::*;
use outboard_wire::types::{Resource, Sampler, View};

use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::TextureCommands;
use crate::worker::Worker;

impl Worker {
    /// `Ok` if memory of the session begins at `address`. Where it ends is not asked: drivers take
    /// resources that reach beyond their allocation, programs make them, and a kernel that reads
    /// there is stopped by the device as with any other address.
    pub(super) fn is_ours(&self, address: DevicePtr) -> Result<(), CUresult> {
        self.memory.allocations.check(address, 1)
    }

    /// The driver's description of a resource, whose names are looked up and whose memory begins in
    /// the session's.
    fn resource(&self, resource: &Resource) -> Result<CUDA_RESOURCE_DESC, CUresult> {
        let reserved =
            outboard_abi::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_5 { reserved: [0; 32] };
        let mut d = CUDA_RESOURCE_DESC {
            resType: CUresourcetype::CU_RESOURCE_TYPE_ARRAY,
            res: Union { reserved },
            flags: 0,
        };
        match *resource {
            Resource::Array(name) => d.res.array.hArray = self.textures.array(name)?.get(),
            Resource::Mipmap(name) => {
                d.resType = CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
                d.res.mipmap.hMipmappedArray = self.textures.mipmap(name)?;
            }
            Resource::Linear { address, format, channels, bytes } => {
                self.is_ours(address)?;
                d.resType = CUresourcetype::CU_RESOURCE_TYPE_LINEAR;
                d.res.linear = outboard_abi::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3 {
                    devPtr: address.0,
                    format: outboard_abi::CUarray_format_enum(format),
                    numChannels: channels,
                    sizeInBytes: bytes as usize,
                };
            }
            Resource::Pitched { address, format, channels, size: (width, height, pitch) } => {
                self.is_ours(address)?;
                d.resType = CUresourcetype::CU_RESOURCE_TYPE_PITCH2D;
                d.res.pitch2D = outboard_abi::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
                    devPtr: address.0,
                    format: outboard_abi::CUarray_format_enum(format),
                    numChannels: channels,
                    width: width as usize,
                    height: height as usize,
                    pitchInBytes: pitch as usize,
                };
            }
        }
        Ok(d)
    }

    fn create_texture(&mut self, m: &TextureCreate) -> Result<u64, CUresult> {
        self.enter()?;
        self.textures.check_texture_room()?;
        let (resource, sampler) = (self.resource(&m.resource)?, sampler(&m.sampler));
        let view = m.view.first().map(view);
        let view = view.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let mut texture = 0;
        call!(
            self.table,
            cuTexObjectCreate(&raw mut texture, &raw const resource, &raw const sampler, view)
        )?;
        self.textures.add_texture(self.contexts.here(), texture);
        Ok(texture)
    }

    fn create_surface(&mut self, m: &SurfaceCreate) -> Result<u64, CUresult> {
        self.enter()?;
        self.textures.check_surface_room()?;
        let resource = self.resource(&m.resource)?;
        let mut surface = 0;
        call!(self.table, cuSurfObjectCreate(&raw mut surface, &raw const resource))?;
        self.textures.add_surface(self.contexts.here(), surface);
        Ok(surface)
    }
}

fn sampler(s: &Sampler) -> CUDA_TEXTURE_DESC {
    let mode = outboard_abi::CUaddress_mode_enum;
    let ((red, green), (blue, alpha)) = s.border;
    CUDA_TEXTURE_DESC {
        addressMode: [mode(s.address.0), mode(s.address.1), mode(s.address.2)],
        filterMode: outboard_abi::CUfilter_mode_enum(s.filter),
        flags: s.flags,
        maxAnisotropy: s.anisotropy,
        mipmapFilterMode: outboard_abi::CUfilter_mode_enum(s.mipmap_filter),
        mipmapLevelBias: s.mipmap.0,
        minMipmapLevelClamp: s.mipmap.1,
        maxMipmapLevelClamp: s.mipmap.2,
        borderColor: [red, green, blue, alpha],
        reserved: [0; 12],
    }
}

fn view(v: &View) -> CUDA_RESOURCE_VIEW_DESC {
    CUDA_RESOURCE_VIEW_DESC {
        format: outboard_abi::CUresourceViewFormat_enum(v.format),
        width: v.size.0 as usize,
        height: v.size.1 as usize,
        depth: v.size.2 as usize,
        firstMipmapLevel: v.levels.0,
        lastMipmapLevel: v.levels.1,
        firstLayer: v.layers.0,
        lastLayer: v.layers.1,
        reserved: [0; 16],
    }
}

impl TextureCommands for Worker {
    fn texture_create(&mut self, m: TextureCreate, answer: Answer<TextureCreate>) {
        let outcome = self.create_texture(&m);
        answer.result(outcome.map(|value| TextureCreateReply { value }));
    }

    fn texture_destroy(&mut self, m: TextureDestroy) -> Outcome {
        self.enter()?;
        self.textures.remove_texture(self.contexts.here(), m.texture)?;
        call!(self.table, cuTexObjectDestroy(m.texture))
    }

    fn surface_create(&mut self, m: SurfaceCreate, answer: Answer<SurfaceCreate>) {
        let outcome = self.create_surface(&m);
        answer.result(outcome.map(|value| SurfaceCreateReply { value }));
    }

    fn surface_destroy(&mut self, m: SurfaceDestroy) -> Outcome {
        self.enter()?;
        self.textures.remove_surface(self.contexts.here(), m.surface)?;
        call!(self.table, cuSurfObjectDestroy(m.surface))
    }
}
