//! Virtual memory.

use outboard_abi::CUresult;
use outboard_front::backend::{
    DeviceId, DevicePtr, MemoryKind, ObjectId, PartChange, Result, VirtualMemory,
};

use super::{GRANULE, INVALID, Mapping, Physical};
use crate::cpu::Cpu;

impl VirtualMemory for Cpu {
    fn vmm_granularity(&self, _kind: MemoryKind, _recommended: bool) -> Result<u64> {
        Ok(GRANULE)
    }

    fn vmm_reserve(
        &self,
        _home: DeviceId,
        bytes: u64,
        align: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let memory = self.home()?.memory();
        let address = memory.reserve(bytes, align.max(GRANULE), hint.0);
        address.map(DevicePtr).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    fn vmm_free(&self, _home: DeviceId, DevicePtr(address): DevicePtr, _bytes: u64) -> Result<()> {
        let freed = self.home()?.memory().unreserve(address);
        freed.then_some(()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn vmm_create(&self, memory: ObjectId, bytes: u64, kind: MemoryKind) -> Result<()> {
        let physical = Physical::new(
            self.engine(kind.device)?.clone(),
            kind.device.ordinal(),
            bytes,
            kind.handle_types != 0,
        )?;
        self.physical.insert(memory, physical);
        Ok(())
    }

    fn vmm_release(&self, _home: DeviceId, memory: ObjectId) -> Result<()> {
        self.physical.remove(memory).map(drop)
    }

    fn vmm_map(
        &self,
        _home: DeviceId,
        DevicePtr(address): DevicePtr,
        bytes: u64,
        offset: u64,
        memory: ObjectId,
    ) -> Result<()> {
        let physical = self.physical.get(memory)?;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= physical.bytes);
        let (file, place) = physical.file()?;
        let mapped = inside
            && self
                .home()?
                .memory()
                .map(address, bytes, file, place + offset)
                .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        if !mapped {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mapping = Mapping { memory: physical, offset, devices: Vec::new(), parts: None };
        self.mappings.0.lock().insert(address, bytes, mapping);
        Ok(())
    }

    fn vmm_unmap(&self, _home: DeviceId, DevicePtr(address): DevicePtr, bytes: u64) -> Result<()> {
        let range = address..address + bytes;
        if !self.mappings.are_closed(&range) {
            self.wait_for_everything();
        }
        let mut mappings = self.mappings.0.lock();
        let bases: Vec<u64> = mappings.beginning_in(range).map(|(base, ..)| base).collect();
        for base in bases {
            if let Some((mapped, mapping)) = mappings.remove(base) {
                mapping.close(self.engines()?, base, mapped);
                self.home()?.memory().unmap(base, mapped);
            }
        }
        Ok(())
    }

    fn vmm_set_access(
        &self,
        _home: DeviceId,
        DevicePtr(address): DevicePtr,
        bytes: u64,
        access: &[(DeviceId, u32)],
    ) -> Result<()> {
        if access.iter().any(|(_, flags)| *flags == 0) {
            self.wait_for_everything();
        }
        let engines = self.engines()?;
        for (device, _) in access {
            self.engine(*device)?;
        }
        for (base, mapped, mapping) in self.mappings.0.lock().beginning_in(address..address + bytes)
        {
            mapping.close(engines, base, mapped);
            for (device, flags) in access {
                mapping.devices.retain(|other| *other != device.ordinal());
                if *flags != 0 {
                    mapping.devices.push(device.ordinal());
                }
            }
            mapping.open(engines, base, mapped);
        }
        Ok(())
    }

    fn vmm_divides(&self) -> bool {
        self.config().divides
    }

    fn vmm_part(
        &self,
        DevicePtr(address): DevicePtr,
        bytes: u64,
        change: PartChange,
    ) -> Result<()> {
        let engines = self.engines()?;
        let mut mappings = self.mappings.0.lock();
        let (base, mapped, mapping) = mappings.find_mut(address).ok_or(INVALID)?;
        let within = address - base;
        if bytes == 0 || bytes > mapped - within {
            return Err(INVALID);
        }
        match change {
            PartChange::Divide if bytes == mapped => mapping.divide(engines, address, bytes),
            PartChange::Divide => Err(INVALID),
            PartChange::Open => mapping.open_part(engines, address, bytes),
            PartChange::Close => mapping.close_part(engines, address, bytes),
        }
    }
}
