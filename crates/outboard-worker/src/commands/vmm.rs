//! Virtual memory. Not of a context: the commands come without one.

use outboard_abi::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags as Granularity,
    CUmemAllocationProp, CUmemLocation, CUresult,
};
use outboard_driver::call;
use outboard_wire::DevicePtr;
use outboard_wire::device_id::DeviceId;
use outboard_wire::messages::*;

use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::VmmCommands;
use crate::kinds::{location, memory_kind, posix};
use crate::shares::Thing;
use crate::space::Mapping;
use crate::worker::Worker;

/// Access to so many devices may be set at once.
const MOST_DEVICES: usize = 64;

impl Worker {
    /// A device of the server that this session may use.
    pub(super) fn location(&self, device: DeviceId) -> Result<CUmemLocation, CUresult> {
        self.offered.ordinal(device).map(|_| location(device))
    }

    fn memory_kind(
        &self,
        device: DeviceId,
        handle_types: u32,
        compression: u32,
        usage: u32,
    ) -> Result<CUmemAllocationProp, CUresult> {
        let mut prop = memory_kind(self.location(device)?, posix(handle_types)?.0, false);
        prop.allocFlags.compressionType =
            u8::try_from(compression).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        prop.allocFlags.usage =
            u16::try_from(usage).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(prop)
    }

    fn granularity(&self, m: &VmmGranularity) -> Result<u64, CUresult> {
        let prop = self.memory_kind(m.device, m.handle_types, m.compression, m.usage)?;
        let option = match m.recommended {
            true => Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
            false => Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM,
        };
        let mut bytes = 0usize;
        call!(self.table, cuMemGetAllocationGranularity(&raw mut bytes, &raw const prop, option))?;
        Ok(bytes as u64)
    }

    fn unreserve(&mut self, address: DevicePtr, bytes: u64) -> Outcome {
        self.memory.space.unreserve(address, bytes)?;
        call!(self.table, cuMemAddressFree(address.0, bytes as usize))
    }

    fn create(&mut self, m: &VmmCreate) -> Outcome {
        let prop = self.memory_kind(m.device, m.handle_types, m.compression, m.usage)?;
        self.memory.space.check_new(m.memory)?;
        let held = self.hold(m.device.ordinal(), m.bytes, |worker| {
            let mut handle = 0;
            call!(
                worker.table,
                cuMemCreate(&raw mut handle, m.bytes as usize, &raw const prop, 0)
            )?;
            Ok(handle)
        })?;
        let kind = [m.device.ordinal(), m.handle_types, m.compression, m.usage];
        self.memory.space.add_memory(m.memory, held, m.bytes, kind);
        Ok(())
    }

    /// Has the driver map memory at addresses where the client may have it.
    fn map_there(&self, m: &VmmPlace) -> Outcome {
        let handle = self.memory.space.memory(m.memory)?;
        call!(self.table, cuMemMap(m.address.0, m.bytes as usize, m.offset as usize, handle, 0))
    }

    fn map(&mut self, m: &VmmPlace) -> Outcome {
        self.memory.space.check_free(m.address, m.bytes)?;
        self.map_there(m)?;
        let charge = self.memory.space.charge(m.memory);
        self.memory.space.add_mapping(m.address, m.bytes, Mapping { charge, failure: None });
        Ok(())
    }

    /// As [`Worker::map`], for a client that takes the memory to be there.
    fn map_unless_refused(&mut self, m: &VmmPlace) -> Outcome {
        self.memory.space.check_free(m.address, m.bytes)?;
        let failure = self.map_there(m).err();
        let charge = self.memory.space.charge(m.memory).filter(|_| failure.is_none());
        self.memory.space.add_mapping(m.address, m.bytes, Mapping { charge, failure });
        Ok(())
    }

    fn set_access(&mut self, m: &VmmSetAccess) -> Outcome {
        if m.access.is_empty() || m.access.len() > MOST_DEVICES {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let whole = self.memory.space.whole(m.address, m.bytes)?;
        whole.iter().try_for_each(|(base, _)| self.memory.space.check_mapped(*base))?;
        let mut desc = Vec::with_capacity(m.access.len());
        for (device, flags) in &m.access {
            if !matches!(flags, 0 | 1 | 3) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            desc.push(CUmemAccessDesc {
                location: self.location(*device)?,
                flags: CUmemAccess_flags(*flags),
            });
        }
        call!(
            self.table,
            cuMemSetAccess(m.address.0, m.bytes as usize, desc.as_ptr(), desc.len())
        )?;
        for (base, bytes) in whole {
            for (device, flags) in &m.access {
                self.memory.space.note_access(base, device.ordinal(), *flags != 0);
            }
            match self.memory.space.accessible(base) {
                true => self.memory.allocations.insert_mapped(base, bytes),
                false => drop(self.memory.allocations.remove(base)),
            }
        }
        Ok(())
    }
}

impl VmmCommands for Worker {
    fn vmm_granularity(&mut self, m: VmmGranularity, answer: Answer<VmmGranularity>) {
        answer.result(self.granularity(&m).map(|bytes| VmmGranularityReply { bytes }));
    }

    fn vmm_reserve(&mut self, m: VmmReserve, answer: Answer<VmmReserve>) {
        let mut address = 0;
        let (bytes, align) = (m.bytes as usize, m.align as usize);
        let outcome = self.memory.space.check_room();
        let reserve = |()| {
            call!(self.table, cuMemAddressReserve(&raw mut address, bytes, align, m.hint.0, 0))
        };
        let outcome = outcome.and_then(reserve);
        answer.result(outcome.map(|()| {
            let address = DevicePtr(address);
            self.memory.space.reserve(address, m.bytes);
            VmmReserveReply { address }
        }));
    }

    fn vmm_free(&mut self, m: VmmFree, answer: Answer<VmmFree>) {
        answer.result(self.unreserve(m.address, m.bytes).map(|()| VmmFreeReply {}));
    }

    fn vmm_unreserve(&mut self, m: VmmUnreserve) -> Outcome {
        self.unreserve(m.address, m.bytes)
    }

    fn vmm_create(&mut self, m: VmmCreate, answer: Answer<VmmCreate>) {
        let outcome = self.create(&m);
        answer.result(outcome.map(|()| VmmCreateReply {}));
    }

    fn vmm_release(&mut self, m: VmmRelease) -> Outcome {
        let (handle, _charge) = self.memory.space.remove_memory(m.memory)?;
        self.memory.shared.forget_name(Thing::Physical(m.memory));
        call!(self.table, cuMemRelease(handle))
    }

    fn vmm_map(&mut self, m: VmmMap, answer: Answer<VmmMap>) {
        let VmmMap { address, bytes, offset, memory } = m;
        let outcome = self.map(&VmmPlace { address, bytes, offset, memory });
        answer.result(outcome.map(|()| VmmMapReply {}));
    }

    fn vmm_place(&mut self, m: VmmPlace) -> Outcome {
        self.map_unless_refused(&m)
    }

    fn vmm_unmap(&mut self, m: VmmUnmap, answer: Answer<VmmUnmap>) {
        let whole = match self.memory.space.whole(m.address, m.bytes) {
            Ok(whole) => whole,
            Err(error) => return answer.error(error),
        };
        let (mut gone, mut parts) = (Vec::with_capacity(whole.len()), Vec::new());
        for (base, bytes) in whole {
            if self.memory.space.check_mapped(base).is_ok() {
                parts.push((base, bytes));
            }
            gone.push(self.memory.space.remove_mapping(base));
            // It is not there if no device had access.
            let _ = self.memory.allocations.remove(base);
        }
        // The driver waits for work that may use it.
        self.on_free_helper(
            answer,
            move |table| {
                let unmap = |address: DevicePtr, bytes: u64| {
                    call!(table, cuMemUnmap(address.0, bytes as usize))
                };
                let outcome = match parts.len() == gone.len() {
                    true => unmap(m.address, m.bytes),
                    false => parts.into_iter().try_for_each(|(base, bytes)| unmap(base, bytes)),
                };
                drop(gone);
                outcome
            },
            |answer, outcome| answer.result(outcome.map(|()| VmmUnmapReply {})),
        );
    }

    fn vmm_set_access(&mut self, m: VmmSetAccess, answer: Answer<VmmSetAccess>) {
        let outcome = self.set_access(&m);
        answer.result(outcome.map(|()| VmmSetAccessReply {}));
    }
}
