//! Virtual memory of the software device.
//!
//! Addresses are reserved in the first device's arena, whichever devices will use them: only there do kernels reach them at full speed; other
//! devices see them as they see memory of the host.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_front::backend::{DeviceId, DevicePtr, MemoryKind, ObjectId, Result, VirtualMemory};
use outboard_simt::{Access, Engine, named_file};
use parking_lot::Mutex;

use crate::cpu::Cpu;

/// Bytes of which sizes and addresses must be multiples, as on NVIDIA's devices.
pub(crate) const GRANULE: u64 = 2 << 20;

/// What the name of a file with physical memory begins with; the device follows.
pub(crate) const FILE_NAME: &str = "physical-";

/// Physical memory.
pub(crate) struct Physical {
    engine: Arc<Engine>,
    bytes: u64,
    place: Place,
}

/// Where physical memory lies.
enum Place {
    /// In the engine's file, from this offset on.
    Arena(u64),
    /// In a file of its own, which other processes may map.
    File(OwnedFd),
    /// In another process's file.
    Imported(OwnedFd),
}

impl Physical {
    pub(crate) fn new(engine: Arc<Engine>, device: u32, bytes: u64, shareable: bool) -> Result<Physical> {
        let memory = engine.memory();
        let place = if shareable {
            let file = named_file(&format!("outboard-{FILE_NAME}{device}"), bytes)
                .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            memory.charge(bytes).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            Place::File(file)
        } else {
            Place::Arena(memory.alloc_physical(bytes).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?)
        };
        Ok(Physical { engine, bytes, place })
    }

    /// Memory of another process, in its file. It does not count as this process's.
    pub(crate) fn import(engine: Arc<Engine>, bytes: u64, file: OwnedFd) -> Physical {
        Physical { engine, bytes, place: Place::Imported(file) }
    }

    /// The file that other processes may map.
    pub(crate) fn shareable(&self) -> Option<BorrowedFd<'_>> {
        match &self.place {
            Place::File(file) | Place::Imported(file) => Some(file.as_fd()),
            Place::Arena(_) => None,
        }
    }

    /// The file and the offset in it.
    fn file(&self) -> Result<(BorrowedFd<'_>, u64)> {
        match &self.place {
            Place::File(file) | Place::Imported(file) => Ok((file.as_fd(), 0)),
            Place::Arena(offset) => {
                let file = self.engine.memory().file().ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
                Ok((file, *offset))
            }
        }
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        match self.place {
            Place::Arena(offset) => self.engine.memory().free_physical(offset),
            Place::File(_) => self.engine.memory().discharge(self.bytes),
            Place::Imported(_) => {}
        }
    }
}

/// What is mapped where.
#[derive(Default)]
pub(crate) struct Mappings(Mutex<BTreeMap<u64, Mapping>>);

struct Mapping {
    bytes: u64,
    /// Kept alive.
    _memory: Arc<Physical>,
    devices: Vec<u32>,
}

impl Mapping {
    /// Takes access from all devices.
    fn close(&self, engines: &[Arc<Engine>], address: u64) {
        for device in self.devices.iter().filter(|device| **device != 0) {
            engines[*device as usize].memory().unregister_host(address);
        }
    }

    fn open(&self, engines: &[Arc<Engine>], address: u64) {
        let access = match self.devices.as_slice() {
            [] => Access::None,
            devices if devices.contains(&0) => Access::Kernels,
            _ => Access::Copies,
        };
        engines[0].memory().set_access(address, self.bytes, access);
        for device in self.devices.iter().filter(|device| **device != 0) {
            // SAFETY: memory is mapped there until `close` takes it out again, which waits for what runs.
            unsafe { engines[*device as usize].memory().register_host(address, self.bytes) };
        }
    }
}

impl Cpu {
    /// The arena in which addresses are reserved.
    pub(crate) fn home(&self) -> Result<&Arc<Engine>> {
        self.engines()?.first().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }

    pub(crate) fn engine(&self, device: DeviceId) -> Result<&Arc<Engine>> {
        self.engines()?.get(device.ordinal() as usize).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }
}

impl VirtualMemory for Cpu {
    fn vmm_granularity(&self, _kind: MemoryKind, _recommended: bool) -> Result<u64> {
        Ok(GRANULE)
    }

    fn vmm_reserve(&self, _home: DeviceId, bytes: u64, align: u64, hint: DevicePtr) -> Result<DevicePtr> {
        let memory = self.home()?.memory();
        let address = memory.reserve(bytes, align.max(GRANULE), hint.0);
        address.map(DevicePtr).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    fn vmm_free(&self, _home: DeviceId, DevicePtr(address): DevicePtr, _bytes: u64) -> Result<()> {
        let freed = self.home()?.memory().unreserve(address);
        freed.then_some(()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn vmm_create(&self, memory: ObjectId, bytes: u64, kind: MemoryKind) -> Result<()> {
        let physical =
            Physical::new(self.engine(kind.device)?.clone(), kind.device.ordinal(), bytes, kind.handle_types != 0)?;
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
        self.mappings.0.lock().insert(address, Mapping { bytes, _memory: physical, devices: Vec::new() });
        Ok(())
    }

    fn vmm_unmap(&self, _home: DeviceId, DevicePtr(address): DevicePtr, bytes: u64) -> Result<()> {
        self.wait_for_everything();
        let mut mappings = self.mappings.0.lock();
        let bases: Vec<u64> = mappings.range(address..address + bytes).map(|(base, _)| *base).collect();
        for base in bases {
            if let Some(mapping) = mappings.remove(&base) {
                mapping.close(self.engines()?, base);
                self.home()?.memory().unmap(base, mapping.bytes);
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
        for (base, mapping) in self.mappings.0.lock().range_mut(address..address + bytes) {
            mapping.close(engines, *base);
            for (device, flags) in access {
                mapping.devices.retain(|other| *other != device.ordinal());
                if *flags != 0 {
                    mapping.devices.push(device.ordinal());
                }
            }
            mapping.open(engines, *base);
        }
        Ok(())
    }
}
