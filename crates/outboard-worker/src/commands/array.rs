//! Arrays and mipmapped arrays.

use outboard_abi::{CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUmipmappedArray, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::ObjectId;
use outboard_wire::messages::*;
use outboard_wire::types::{ArrayDescriptor, SparseProperties};

use crate::answer::Answer;
use crate::budget::{What, array_bytes};
use crate::generated::dispatch::ArrayCommands;
use crate::worker::Worker;

fn to_driver(d: &ArrayDescriptor) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: d.width as usize,
        Height: d.height as usize,
        Depth: d.depth as usize,
        Format: outboard_abi::CUarray_format_enum(d.format),
        NumChannels: d.channels,
        Flags: d.flags,
    }
}

/// No device has larger arrays, whatever their kind: they are not a question of memory.
const LONGEST_SIDE: u64 = 1 << 28;

fn check_sides(d: &ArrayDescriptor) -> Result<(), CUresult> {
    let fits = d.width.max(d.height).max(d.depth) <= LONGEST_SIDE;
    if fits { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// Bytes that an array takes.
fn array_size(d: &ArrayDescriptor, levels: u32) -> u64 {
    array_bytes(d.format, d.channels, [d.width, d.height, d.depth], levels)
}

/// An array as the driver describes it.
fn describe(table: &Table, array: CUarray) -> Result<ArrayDescriptor, CUresult> {
    let mut d = to_driver(&ArrayDescriptor::default());
    call!(table, cuArray3DGetDescriptor_v2(&raw mut d, array))?;
    Ok(ArrayDescriptor {
        width: d.Width as u64,
        height: d.Height as u64,
        depth: d.Depth as u64,
        format: d.Format.0,
        channels: d.NumChannels,
        flags: d.Flags,
    })
}

impl Worker {
    fn create_array(&mut self, m: &ArrayCreate) -> Result<ArrayDescriptor, CUresult> {
        let device = self.device_here()?;
        self.textures.check_new_array(m.array)?;
        check_sides(&m.descriptor)?;
        let wanted = to_driver(&m.descriptor);
        let (array, charge) = self.hold(device, array_size(&m.descriptor, 1), |worker| {
            let mut array = core::ptr::null_mut();
            call!(worker.table, cuArray3DCreate_v2(&raw mut array, &raw const wanted))?;
            Ok(array)
        })?;
        self.memory.budget.keep(self.contexts.here(), What::Array(m.array), charge);
        self.textures.add_array(self.contexts.here(), m.array, array, true);
        describe(self.table, array)
    }

    /// Names a part of an array or mipmapped array.
    fn name_part(&mut self, name: ObjectId, part: CUarray) -> Result<ArrayDescriptor, CUresult> {
        self.textures.add_array(self.contexts.here(), name, part, false);
        describe(self.table, part)
    }

    fn plane(&mut self, m: &ArrayPlane) -> Result<ArrayDescriptor, CUresult> {
        self.enter()?;
        self.textures.check_new_array(m.name)?;
        let array = self.textures.array(m.array)?;
        let mut plane = core::ptr::null_mut();
        call!(self.table, cuArrayGetPlane(&raw mut plane, array.get(), m.plane))?;
        self.name_part(m.name, plane)
    }

    fn level(&mut self, m: &MipmapLevel) -> Result<ArrayDescriptor, CUresult> {
        self.enter()?;
        self.textures.check_new_array(m.name)?;
        let mipmap = self.textures.mipmap(m.mipmap)?;
        let mut level = core::ptr::null_mut();
        call!(self.table, cuMipmappedArrayGetLevel(&raw mut level, mipmap, m.level))?;
        self.name_part(m.name, level)
    }

    fn requirements(
        &mut self,
        m: &ArrayMemoryRequirements,
    ) -> Result<ArrayMemoryRequirementsReply, CUresult> {
        self.enter()?;
        let mut needs = outboard_abi::CUDA_ARRAY_MEMORY_REQUIREMENTS {
            size: 0,
            alignment: 0,
            reserved: [0; 4],
        };
        let device = m.device.ordinal() as i32;
        if m.mipmapped {
            let mipmap: CUmipmappedArray = self.textures.mipmap(m.array)?;
            call!(
                self.table,
                cuMipmappedArrayGetMemoryRequirements(&raw mut needs, mipmap, device)
            )?;
        } else {
            let array = self.textures.array(m.array)?.get();
            call!(self.table, cuArrayGetMemoryRequirements(&raw mut needs, array, device))?;
        }
        Ok(ArrayMemoryRequirementsReply {
            bytes: needs.size as u64,
            alignment: needs.alignment as u64,
        })
    }

    fn sparse(&mut self, m: &ArraySparseProperties) -> Result<SparseProperties, CUresult> {
        self.enter()?;
        let tile = outboard_abi::CUDA_ARRAY_SPARSE_PROPERTIES_st__bindgen_ty_1 {
            width: 0,
            height: 0,
            depth: 0,
        };
        let mut found = outboard_abi::CUDA_ARRAY_SPARSE_PROPERTIES {
            tileExtent: tile,
            miptailFirstLevel: 0,
            miptailSize: 0,
            flags: 0,
            reserved: [0; 4],
        };
        if m.mipmapped {
            let mipmap = self.textures.mipmap(m.array)?;
            call!(self.table, cuMipmappedArrayGetSparseProperties(&raw mut found, mipmap))?;
        } else {
            let array = self.textures.array(m.array)?.get();
            call!(self.table, cuArrayGetSparseProperties(&raw mut found, array))?;
        }
        Ok(SparseProperties {
            tile: (found.tileExtent.width, found.tileExtent.height, found.tileExtent.depth),
            tail_level: found.miptailFirstLevel,
            tail_bytes: found.miptailSize,
            flags: found.flags,
        })
    }
}

impl ArrayCommands for Worker {
    fn array_create(&mut self, m: ArrayCreate, answer: Answer<ArrayCreate>) {
        let outcome = self.create_array(&m);
        answer.result(outcome.map(|descriptor| ArrayCreateReply { descriptor }));
    }

    fn array_destroy(&mut self, m: ArrayDestroy, answer: Answer<ArrayDestroy>) {
        let removed =
            self.enter().and_then(|context| Ok((context, self.textures.remove_array(m.array)?)));
        let charge = self.memory.budget.release(self.contexts.here(), What::Array(m.array));
        match removed {
            Ok((_, array)) if !array.whole => answer.ok(&ArrayDestroyReply {}),
            // As freeing memory, it may wait for the device.
            Ok((context, array)) => self.on_helper_when_quiet(
                context,
                answer,
                move |table| {
                    let outcome = call!(table, cuArrayDestroy(array.handle.get()));
                    drop(charge);
                    outcome
                },
                |answer, outcome| answer.result(outcome.map(|()| ArrayDestroyReply {})),
            ),
            Err(error) => answer.error(error),
        }
    }

    fn array_plane(&mut self, m: ArrayPlane, answer: Answer<ArrayPlane>) {
        let outcome = self.plane(&m);
        answer.result(outcome.map(|descriptor| ArrayPlaneReply { descriptor }));
    }

    fn array_memory_requirements(
        &mut self,
        m: ArrayMemoryRequirements,
        answer: Answer<ArrayMemoryRequirements>,
    ) {
        answer.result(self.requirements(&m));
    }

    fn array_sparse_properties(
        &mut self,
        m: ArraySparseProperties,
        answer: Answer<ArraySparseProperties>,
    ) {
        let outcome = self.sparse(&m);
        answer.result(outcome.map(|properties| ArraySparsePropertiesReply { properties }));
    }

    fn mipmap_create(&mut self, m: MipmapCreate, answer: Answer<MipmapCreate>) {
        let outcome = self.device_here().and_then(|device| {
            self.textures.check_new_mipmap(m.mipmap)?;
            check_sides(&m.descriptor)?;
            let wanted = to_driver(&m.descriptor);
            let (mipmap, charge) =
                self.hold(device, array_size(&m.descriptor, m.levels), |worker| {
                    let mut mipmap = core::ptr::null_mut();
                    call!(
                        worker.table,
                        cuMipmappedArrayCreate(&raw mut mipmap, &raw const wanted, m.levels)
                    )?;
                    Ok(mipmap)
                })?;
            self.memory.budget.keep(self.contexts.here(), What::Mipmap(m.mipmap), charge);
            self.textures.add_mipmap(self.contexts.here(), m.mipmap, mipmap);
            Ok(MipmapCreateReply {})
        });
        answer.result(outcome);
    }

    fn mipmap_destroy(&mut self, m: MipmapDestroy, answer: Answer<MipmapDestroy>) {
        let removed =
            self.enter().and_then(|context| Ok((context, self.textures.remove_mipmap(m.mipmap)?)));
        let charge = self.memory.budget.release(self.contexts.here(), What::Mipmap(m.mipmap));
        match removed {
            Ok((context, mipmap)) => self.on_helper_when_quiet(
                context,
                answer,
                move |table| {
                    let outcome = call!(table, cuMipmappedArrayDestroy(mipmap.get()));
                    drop(charge);
                    outcome
                },
                |answer, outcome| answer.result(outcome.map(|()| MipmapDestroyReply {})),
            ),
            Err(error) => answer.error(error),
        }
    }

    fn mipmap_level(&mut self, m: MipmapLevel, answer: Answer<MipmapLevel>) {
        let outcome = self.level(&m);
        answer.result(outcome.map(|descriptor| MipmapLevelReply { descriptor }));
    }
}
