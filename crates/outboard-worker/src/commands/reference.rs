//! Texture and surface references.

use std::ffi::CString;

use outboard_abi::{
    CUDA_ARRAY_DESCRIPTOR, CUaddress_mode_enum, CUarray_format_enum, CUfilter_mode_enum, CUresult,
    CUtexref,
};
use outboard_driver::call;
use outboard_wire::messages::*;
use outboard_wire::references::ReferenceSetting as S;
use outboard_wire::{DevicePtr, ObjectId};

use crate::answer::Answer;
use crate::generated::dispatch::ReferenceCommands;
use crate::worker::Worker;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Dimensions of a texture: drivers index by it.
const DIMENSIONS: u32 = 3;

impl Worker {
    /// The driver's reference; of a module, which is then alive, or created.
    fn reference(&mut self, name: ObjectId) -> Result<CUtexref, CUresult> {
        self.enter()?;
        self.code.reference(name)
    }

    fn create_reference(&mut self, name: ObjectId) -> Result<(), CUresult> {
        self.enter()?;
        self.code.check_new_reference(name)?;
        let mut reference = core::ptr::null_mut();
        call!(self.table, cuTexRefCreate(&raw mut reference))?;
        self.code.add_reference(self.contexts.here(), name, (reference, ObjectId::NONE));
        Ok(())
    }

    fn destroy_reference(&mut self, name: ObjectId) -> Result<(), CUresult> {
        self.enter()?;
        let reference = self.code.remove_reference(name)?;
        call!(self.table, cuTexRefDestroy(reference))
    }

    fn find_reference(&mut self, m: &ReferenceFind<'_>) -> Result<(), CUresult> {
        self.enter()?;
        self.code.check_new_reference(m.reference)?;
        let (module, name) =
            (self.code.module(m.module)?, CString::new(m.name).map_err(|_| INVALID)?);
        let mut reference = core::ptr::null_mut();
        call!(self.table, cuModuleGetTexRef(&raw mut reference, module, name.as_ptr()))?;
        self.code.add_reference(self.contexts.here(), m.reference, (reference, m.module));
        Ok(())
    }

    /// Sets one thing, and gives the offset of memory that is bound.
    fn set_reference(&mut self, m: &ReferenceSet) -> Result<u64, CUresult> {
        let r = self.reference(m.reference)?;
        let mut offset = 0usize;
        match m.setting {
            S::Array(name, flags) => {
                let array = self.textures.array(name)?.get();
                call!(self.table, cuTexRefSetArray(r, array, flags))
            }
            S::Mipmap(name, flags) => {
                let mipmap = self.textures.mipmap(name)?;
                call!(self.table, cuTexRefSetMipmappedArray(r, mipmap, flags))
            }
            S::Memory(address, bytes) => {
                self.is_ours(address)?;
                call!(
                    self.table,
                    cuTexRefSetAddress_v2(&raw mut offset, r, address.0, bytes as usize)
                )
            }
            S::Rows(d, address, pitch) => {
                self.is_ours(address)?;
                let rows = CUDA_ARRAY_DESCRIPTOR {
                    Width: d.width as usize,
                    Height: d.height as usize,
                    Format: CUarray_format_enum(d.format),
                    NumChannels: d.channels,
                };
                call!(
                    self.table,
                    cuTexRefSetAddress2D_v3(r, &raw const rows, address.0, pitch as usize)
                )
            }
            S::Format(format, channels) => {
                call!(
                    self.table,
                    cuTexRefSetFormat(r, CUarray_format_enum(format), channels as i32)
                )
            }
            S::AddressMode(dimension, mode) if dimension < DIMENSIONS => {
                call!(
                    self.table,
                    cuTexRefSetAddressMode(r, dimension as i32, CUaddress_mode_enum(mode))
                )
            }
            S::AddressMode(..) => Err(INVALID),
            S::Filter(mode) => {
                call!(self.table, cuTexRefSetFilterMode(r, CUfilter_mode_enum(mode)))
            }
            S::MipmapFilter(mode) => {
                call!(self.table, cuTexRefSetMipmapFilterMode(r, CUfilter_mode_enum(mode)))
            }
            S::MipmapBias(bias) => call!(self.table, cuTexRefSetMipmapLevelBias(r, bias)),
            S::MipmapClamp(least, most) => {
                call!(self.table, cuTexRefSetMipmapLevelClamp(r, least, most))
            }
            S::Anisotropy(most) => call!(self.table, cuTexRefSetMaxAnisotropy(r, most)),
            S::Border((red, green), (blue, alpha)) => {
                let mut colour = [red, green, blue, alpha];
                call!(self.table, cuTexRefSetBorderColor(r, colour.as_mut_ptr()))
            }
            S::Flags(flags) => call!(self.table, cuTexRefSetFlags(r, flags)),
        }?;
        Ok(offset as u64)
    }

    /// The present setting, of the same kind as `like`.
    fn get_reference(&mut self, m: &ReferenceGet) -> Result<S, CUresult> {
        let r = self.reference(m.reference)?;
        let (mut number, mut signed) = (0u32, 0i32);
        let mut mode = CUfilter_mode_enum(0);
        Ok(match m.like {
            // The client knows which array it bound.
            S::Array(..) | S::Mipmap(..) => return Err(INVALID),
            S::Memory(..) | S::Rows(..) => {
                let mut address = 0;
                call!(self.table, cuTexRefGetAddress_v2(&raw mut address, r))?;
                S::Memory(DevicePtr(address), 0)
            }
            S::Format(..) => {
                let mut format = CUarray_format_enum(0);
                call!(self.table, cuTexRefGetFormat(&raw mut format, &raw mut signed, r))?;
                S::Format(format.0, signed as u32)
            }
            S::AddressMode(dimension, _) if dimension < DIMENSIONS => {
                let mut mode = CUaddress_mode_enum(0);
                call!(self.table, cuTexRefGetAddressMode(&raw mut mode, r, dimension as i32))?;
                S::AddressMode(dimension, mode.0)
            }
            S::AddressMode(..) => return Err(INVALID),
            S::Filter(_) => {
                call!(self.table, cuTexRefGetFilterMode(&raw mut mode, r))?;
                S::Filter(mode.0)
            }
            S::MipmapFilter(_) => {
                call!(self.table, cuTexRefGetMipmapFilterMode(&raw mut mode, r))?;
                S::MipmapFilter(mode.0)
            }
            S::MipmapBias(_) => {
                let mut bias = 0.0;
                call!(self.table, cuTexRefGetMipmapLevelBias(&raw mut bias, r))?;
                S::MipmapBias(bias)
            }
            S::MipmapClamp(..) => {
                let (mut least, mut most) = (0.0, 0.0);
                call!(self.table, cuTexRefGetMipmapLevelClamp(&raw mut least, &raw mut most, r))?;
                S::MipmapClamp(least, most)
            }
            S::Anisotropy(_) => {
                call!(self.table, cuTexRefGetMaxAnisotropy(&raw mut signed, r))?;
                S::Anisotropy(signed as u32)
            }
            S::Border(..) => {
                let mut colour = [0.0; 4];
                call!(self.table, cuTexRefGetBorderColor(colour.as_mut_ptr(), r))?;
                S::Border((colour[0], colour[1]), (colour[2], colour[3]))
            }
            S::Flags(_) => {
                call!(self.table, cuTexRefGetFlags(&raw mut number, r))?;
                S::Flags(number)
            }
        })
    }

    fn find_surface_reference(&mut self, m: &SurfaceReferenceFind<'_>) -> Result<(), CUresult> {
        self.enter()?;
        self.code.check_new_surface_reference(m.reference)?;
        let (module, name) =
            (self.code.module(m.module)?, CString::new(m.name).map_err(|_| INVALID)?);
        let mut reference = core::ptr::null_mut();
        call!(self.table, cuModuleGetSurfRef(&raw mut reference, module, name.as_ptr()))?;
        self.code.add_surface_reference(self.contexts.here(), m.reference, (reference, m.module));
        Ok(())
    }

    fn set_surface_reference(&mut self, m: &SurfaceReferenceSet) -> Result<(), CUresult> {
        self.enter()?;
        let reference = self.code.surface_reference(m.reference)?;
        let array = self.textures.array(m.array)?.get();
        call!(self.table, cuSurfRefSetArray(reference, array, m.flags))
    }
}

impl ReferenceCommands for Worker {
    fn reference_create(&mut self, m: ReferenceCreate, answer: Answer<ReferenceCreate>) {
        answer.result(self.create_reference(m.reference).map(|()| ReferenceCreateReply {}));
    }

    fn reference_destroy(&mut self, m: ReferenceDestroy, answer: Answer<ReferenceDestroy>) {
        answer.result(self.destroy_reference(m.reference).map(|()| ReferenceDestroyReply {}));
    }

    fn reference_find(&mut self, m: ReferenceFind<'_>, answer: Answer<ReferenceFind<'static>>) {
        answer.result(self.find_reference(&m).map(|()| ReferenceFindReply {}));
    }

    fn reference_set(&mut self, m: ReferenceSet, answer: Answer<ReferenceSet>) {
        answer.result(self.set_reference(&m).map(|offset| ReferenceSetReply { offset }));
    }

    fn reference_get(&mut self, m: ReferenceGet, answer: Answer<ReferenceGet>) {
        answer.result(self.get_reference(&m).map(|setting| ReferenceGetReply { setting }));
    }

    fn surface_reference_find(
        &mut self,
        m: SurfaceReferenceFind<'_>,
        answer: Answer<SurfaceReferenceFind<'static>>,
    ) {
        answer.result(self.find_surface_reference(&m).map(|()| SurfaceReferenceFindReply {}));
    }

    fn surface_reference_set(
        &mut self,
        m: SurfaceReferenceSet,
        answer: Answer<SurfaceReferenceSet>,
    ) {
        answer.result(self.set_surface_reference(&m).map(|()| SurfaceReferenceSetReply {}));
    }
}
