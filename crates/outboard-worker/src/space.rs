//! The session's address space: reservations, physical memory and mappings.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use outboard_abi::{CUmemGenericAllocationHandle, CUresult};
use outboard_ranges::RangeMap;
use outboard_wire::{DevicePtr, ObjectId};

use super::bounds::Kind as Bound;
use super::budget::Charge;

/// The client's reservations, physical memory and mappings. The driver checks too; but its answer
/// to a mistaken range is not known to be an error for every range, and none of this process's own
/// may be touched.
#[derive(Default)]
pub(crate) struct Space {
    reservations: RangeMap<DevicePtr, ()>,
    /// Each with the devices that may use it.
    mappings: RangeMap<DevicePtr, (Mapping, BTreeSet<u32>)>,
    /// Physical memory, by the client's names.
    memory: HashMap<ObjectId, Memory>,
}

struct Memory {
    handle: CUmemGenericAllocationHandle,
    bytes: u64,
    kind: Kind,
    charge: Option<Arc<Charge>>,
}

/// Device, handle types, compression and usage that physical memory was created with.
pub(crate) type Kind = [u32; 4];

/// Physical memory at an address.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Memory that has been released is there as long as it is mapped.
    #[expect(dead_code, reason = "kept for what ends with it")]
    pub(crate) charge: Option<Arc<Charge>>,
    /// Why the driver has not mapped it, which the client does not know yet.
    pub(crate) failure: Option<CUresult>,
}

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

impl Space {
    /// Whether there may be one more reservation.
    pub(crate) fn check_room(&self) -> Result<(), CUresult> {
        Bound::Reservation.room(self.reservations.len())
    }

    pub(crate) fn reserve(&mut self, address: DevicePtr, bytes: u64) {
        self.reservations.insert(address, bytes, ());
    }

    /// Forgets a whole reservation in which nothing is mapped.
    pub(crate) fn unreserve(&mut self, address: DevicePtr, bytes: u64) -> Result<(), CUresult> {
        let end = address.checked_add(bytes).ok_or(INVALID)?;
        if self.reservations.get(address) != Some((bytes, &()))
            || self.mappings.beginning_in(address..end).next().is_some()
        {
            return Err(INVALID);
        }
        self.reservations.remove(address);
        Ok(())
    }

    /// Whether physical memory may have this name.
    pub(crate) fn check_new(&self, memory: ObjectId) -> Result<(), CUresult> {
        if memory == ObjectId::NONE || self.memory.contains_key(&memory) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        Bound::Physical.room(self.memory.len())
    }

    pub(crate) fn add_memory(
        &mut self,
        name: ObjectId,
        (handle, charge): (CUmemGenericAllocationHandle, Charge),
        bytes: u64,
        kind: Kind,
    ) {
        self.memory.insert(name, Memory { handle, bytes, kind, charge: Some(Arc::new(charge)) });
    }

    /// What physical memory counts for.
    pub(crate) fn charge(&self, name: ObjectId) -> Option<Arc<Charge>> {
        self.memory.get(&name)?.charge.clone()
    }

    /// Bytes of physical memory, and what it was created with.
    pub(crate) fn created(&self, name: ObjectId) -> Result<(u64, Kind), CUresult> {
        self.memory
            .get(&name)
            .map(|memory| (memory.bytes, memory.kind))
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn memory(&self, name: ObjectId) -> Result<CUmemGenericAllocationHandle, CUresult> {
        self.memory
            .get(&name)
            .map(|memory| memory.handle)
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Forgets physical memory, which counts until the result is dropped.
    pub(crate) fn remove_memory(
        &mut self,
        name: ObjectId,
    ) -> Result<(CUmemGenericAllocationHandle, Option<Arc<Charge>>), CUresult> {
        self.memory
            .remove(&name)
            .map(|memory| (memory.handle, memory.charge))
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// `Ok` if a range lies in one reservation and nothing is mapped there.
    pub(crate) fn check_free(&self, address: DevicePtr, bytes: u64) -> Result<(), CUresult> {
        Bound::Mapping.room(self.mappings.len())?;
        let end = address.checked_add(bytes).filter(|_| bytes > 0).ok_or(INVALID)?;
        let (base, len, ()) = self.reservations.find(address).ok_or(INVALID)?;
        let inside = end.since(base) <= len;
        if inside && !self.mappings.overlaps(address, bytes) { Ok(()) } else { Err(INVALID) }
    }

    pub(crate) fn add_mapping(&mut self, address: DevicePtr, bytes: u64, mapping: Mapping) {
        self.mappings.insert(address, bytes, (mapping, BTreeSet::new()));
    }

    /// Forgets the mapping at an address: its bytes, and what ends with it.
    pub(crate) fn remove_mapping(&mut self, address: DevicePtr) -> Option<(u64, Mapping)> {
        self.mappings.remove(address).map(|(bytes, (mapping, _))| (bytes, mapping))
    }

    /// Base and bytes of the mappings that make up a range without a rest.
    pub(crate) fn whole(
        &self,
        address: DevicePtr,
        bytes: u64,
    ) -> Result<Vec<(DevicePtr, u64)>, CUresult> {
        let end = address.checked_add(bytes).filter(|_| bytes > 0).ok_or(INVALID)?;
        let (mut all, mut at) = (Vec::new(), address);
        while at < end {
            let (bytes, _) = self.mappings.get(at).ok_or(INVALID)?;
            all.push((at, bytes));
            at = at.offset(bytes);
        }
        if at == end { Ok(all) } else { Err(INVALID) }
    }

    /// `Ok` if the driver has what is mapped at `base`.
    pub(crate) fn check_mapped(&self, base: DevicePtr) -> Result<(), CUresult> {
        self.mappings.get(base).and_then(|(_, (mapping, _))| mapping.failure).map_or(Ok(()), Err)
    }

    /// Notes whether a device may use the mapping at `base`.
    pub(crate) fn note_access(&mut self, base: DevicePtr, device: u32, allowed: bool) {
        if let Some((_, devices)) = self.mappings.get_mut(base) {
            match allowed {
                true => devices.insert(device),
                false => devices.remove(&device),
            };
        }
    }

    /// Whether any device may use the mapping at `base`.
    pub(crate) fn accessible(&self, base: DevicePtr) -> bool {
        self.mappings.get(base).is_some_and(|(_, (_, devices))| !devices.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_lie_in_reservations_and_do_not_overlap() {
        let mut space = Space::default();
        space.reserve(DevicePtr(0x1000), 0x1000);
        assert!(space.check_free(DevicePtr(0x1000), 0x1000).is_ok());
        for (address, bytes) in [
            (0x1000, 0x1001),
            (0xfff, 1),
            (0x2000, 1),
            (0x1000, 0),
            (0x1800, u64::MAX),
            (u64::MAX, 1),
        ] {
            assert!(
                space.check_free(DevicePtr(address), bytes).is_err(),
                "{address:#x} {bytes:#x}"
            );
        }
        let mapping = || Mapping { charge: None, failure: None };
        space.add_mapping(DevicePtr(0x1400), 0x400, mapping());
        space.add_mapping(DevicePtr(0x1800), 0x400, mapping());
        assert!(
            space.check_free(DevicePtr(0x1000), 0x400).is_ok()
                && space.check_free(DevicePtr(0x1c00), 0x400).is_ok()
        );
        assert!(
            space.check_free(DevicePtr(0x1000), 0x401).is_err()
                && space.check_free(DevicePtr(0x1bff), 1).is_err()
        );
        assert_eq!(
            space.whole(DevicePtr(0x1400), 0x800).unwrap(),
            [(DevicePtr(0x1400), 0x400), (DevicePtr(0x1800), 0x400)]
        );
        for (address, bytes) in
            [(0x1400, 0x500), (0x1500, 0x300), (0x1400, 0), (0x1400, 0x801), (0x1000, 0x800)]
        {
            assert!(space.whole(DevicePtr(address), bytes).is_err(), "{address:#x} {bytes:#x}");
        }
        assert!(space.unreserve(DevicePtr(0x1000), 0x1000).is_err(), "something is mapped");
        space.remove_mapping(DevicePtr(0x1400));
        space.remove_mapping(DevicePtr(0x1800));
        assert!(
            space.unreserve(DevicePtr(0x1000), 0x800).is_err()
                && space.unreserve(DevicePtr(0x1000), 0x1000).is_ok()
        );
        assert!(space.check_free(DevicePtr(0x1000), 1).is_err());
    }
}
