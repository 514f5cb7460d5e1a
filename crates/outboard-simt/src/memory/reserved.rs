//! Address ranges without memory of their own, into which memory is mapped: what the virtual-memory calls and memory of other processes need.
//!
//! They lie in a part of the arena of their own, so that kernels reach what is mapped there as they reach everything else.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::{Mapping, Memory, OutOfMemory, PAGE};

/// What may be done with a mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// Copies and fills.
    Copies,
    /// Copies, fills, and kernels of this memory's engine.
    Kernels,
}

/// Makes device memory a file, which other processes can map too. Without one it stays as it is: private.
pub(super) fn share(arena: &Mapping, bytes: u64) -> Option<OwnedFd> {
    let file = named_file("outboard-arena", bytes).ok()?;
    // SAFETY: the range lies in a mapping of our own that nothing uses yet.
    unsafe { place(arena.base, bytes, file.as_fd(), 0) }.ok()?;
    Some(file)
}

/// A file of `bytes` of zeros that takes memory only where it is written.
pub fn memory_file(bytes: u64) -> std::io::Result<OwnedFd> {
    named_file("outboard-memory", bytes)
}

/// As [`memory_file`], under a name that the system shows.
pub fn named_file(name: &str, bytes: u64) -> std::io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes)?;
    Ok(file)
}

/// # Safety
/// The range is address space of ours that holds nothing.
unsafe fn place(address: u64, bytes: u64, file: BorrowedFd<'_>, offset: u64) -> std::io::Result<()> {
    let (access, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE);
    // SAFETY: by the contract above.
    unsafe { mmap(address as *mut c_void, bytes as usize, access, how, file, offset) }?;
    Ok(())
}

/// Gives the pages of a part of device memory back to the system.
pub(super) fn punch(file: &OwnedFd, offset: u64, bytes: u64) {
    let _ = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes);
}

impl Memory {
    /// Reserves `bytes` (whole pages) of addresses at a multiple of `align`, at `hint` if that is free.
    pub fn reserve(&self, bytes: u64, align: u64, hint: u64) -> Result<u64, OutOfMemory> {
        let mut reserved = self.reserved.lock();
        if hint != 0
            && hint.is_multiple_of(align.max(PAGE))
            && let Ok(address) = reserved.alloc_at(hint, bytes)
        {
            return Ok(address);
        }
        reserved.alloc(bytes, align.max(PAGE))
    }

    /// Gives a reservation back, in which nothing is mapped any more. Whether there was one at `address`.
    pub fn unreserve(&self, address: u64) -> bool {
        let mut reserved = self.reserved.lock();
        let there = reserved.live.contains_key(&address);
        reserved.free(address);
        there
    }

    /// Whether all of this lies in one reservation.
    pub fn is_reserved(&self, address: u64, bytes: u64) -> bool {
        let reserved = self.reserved.lock();
        let below = reserved.live.range(..=address).next_back();
        below.is_some_and(|(start, live)| address - start < live.bytes && bytes <= live.bytes - (address - start))
    }

    /// Maps whole pages of a file into a reservation. Nobody may use them before [`Memory::set_access`]. `false` outside of reservations.
    pub fn map(&self, address: u64, bytes: u64, file: BorrowedFd<'_>, offset: u64) -> std::io::Result<bool> {
        if bytes == 0 || !address.is_multiple_of(PAGE) || !self.is_reserved(address, bytes) {
            return Ok(false);
        }
        // SAFETY: reserved ranges of the arena hold nothing but what is mapped here.
        unsafe { place(address, bytes, file, offset) }?;
        Ok(true)
    }

    /// Says what may be done with a range that [`Memory::map`] made, whole.
    pub fn set_access(&self, address: u64, bytes: u64, access: Access) {
        let mut accessible = self.accessible.write();
        if access == Access::None {
            accessible.remove(&address);
        } else {
            accessible.insert(address, bytes);
        }
        self.mark(address, bytes, u8::from(access == Access::Kernels));
    }

    /// Undoes [`Memory::map`]; nothing running uses the range.
    pub fn unmap(&self, address: u64, bytes: u64) {
        self.set_access(address, bytes, Access::None);
        if !self.is_reserved(address, bytes) {
            return;
        }
        let (access, how) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE);
        // SAFETY: a reserved range of the arena, which nobody may use any more.
        let _ = unsafe { mmap_anonymous(address as *mut c_void, bytes as usize, access, how) };
    }

    /// Whether all of this is mapped and accessible, in one piece or in several next to each other.
    pub(super) fn is_accessible(&self, address: u64, bytes: u64) -> bool {
        let accessible = self.accessible.read();
        let Some(end) = address.checked_add(bytes) else { return false };
        let Some((&start, &len)) = accessible.range(..=address).next_back() else { return false };
        let mut covered = start + len;
        if address >= covered {
            return false;
        }
        while covered < end {
            let Some(len) = accessible.get(&covered) else { return false };
            covered += len;
        }
        true
    }

    /// Allocates device memory that has no address for kernels but those at which it is mapped, and returns its place in [`Memory::file`].
    pub fn alloc_physical(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        Ok(self.device.lock().alloc(bytes, PAGE)? - self.arena.base)
    }

    /// Frees what [`Memory::alloc_physical`] gave.
    pub fn free_physical(&self, offset: u64) {
        self.free(self.arena.base + offset);
    }

    /// The part of the arena that device memory is allocated in: its first address and its bytes.
    pub fn device_part(&self) -> (u64, u64) {
        (self.arena.base, self.device_span())
    }

    /// Counts memory that lies elsewhere as device memory.
    pub fn charge(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let mut device = self.device.lock();
        if bytes > device.total - device.used {
            return Err(device.error(bytes));
        }
        device.used += bytes;
        Ok(())
    }

    /// Undoes [`Memory::charge`].
    pub fn discharge(&self, bytes: u64) {
        self.device.lock().used -= bytes;
    }

    /// The file that holds device memory, from the arena's first address on; `None` where the system has no such files.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const TIB: u64 = 1 << 40;

    #[test]
    fn one_memory_at_two_addresses() {
        let memory = Memory::new(8 * MIB, TIB).expect("reserve");
        let place = memory.alloc_physical(2 * MIB).expect("memory");
        assert_eq!(memory.used(), 2 * MIB);
        let file = memory.file().expect("a file");
        let range = memory.reserve(8 * MIB, 2 * MIB, 0).expect("addresses");
        assert!(range.is_multiple_of(2 * MIB) && memory.contains(range) && !memory.is_valid(range));
        assert!(memory.map(range, 2 * MIB, file, place).expect("map"));
        assert!(memory.map(range + 2 * MIB, 2 * MIB, file, place).expect("map"));
        assert!(!memory.map(range + 8 * MIB, 4096, file, place).expect("map"), "outside of the reservation");
        assert!(!memory.check(range, 1), "mapped is not accessible");
        memory.set_access(range, 2 * MIB, Access::Kernels);
        memory.set_access(range + 2 * MIB, 2 * MIB, Access::Copies);
        assert!(memory.check(range, 4 * MIB) && !memory.check(range, 4 * MIB + 1) && !memory.check(range + 4 * MIB, 1));
        assert!(memory.is_valid(range) && !memory.is_valid(range + 2 * MIB));
        // SAFETY: both are mapped, and nobody else uses them.
        unsafe {
            (range as *mut u32).write_volatile(77);
            assert_eq!(((range + 2 * MIB) as *const u32).read_volatile(), 77);
        }
        memory.unmap(range, 2 * MIB);
        assert!(!memory.check(range, 1) && memory.check(range + 2 * MIB, 1) && !memory.is_valid(range));
        memory.unmap(range + 2 * MIB, 2 * MIB);
        memory.free_physical(place);
        assert!(memory.unreserve(range) && !memory.unreserve(range));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn hints_are_followed_where_they_can_be() {
        let memory = Memory::new(MIB, TIB).expect("reserve");
        let first = memory.reserve(MIB, 0, 0).expect("addresses");
        assert!(memory.unreserve(first));
        let wanted = first + 4 * MIB;
        assert_eq!(memory.reserve(MIB, 0, wanted).expect("addresses"), wanted);
        assert_ne!(memory.reserve(MIB, 0, wanted).expect("addresses"), wanted);
        assert_ne!(memory.reserve(MIB, 0, 0x1000).expect("addresses"), 0x1000);
        assert!(memory.reserve(u64::MAX - 5, 0, 0).is_err());
    }

    #[test]
    fn what_memory_does_not_need_is_for_reservations() {
        let memory = Memory::new(MIB, TIB).expect("reserve");
        assert_eq!(memory.span(), TIB);
        let far = memory.base() + TIB - 100 * MIB;
        assert_eq!(memory.reserve(64 * MIB, 0, far), Ok(far));
        let small = Memory::new(64 * MIB, 0).expect("reserve");
        assert!(small.reserve(64 * MIB, 0, 0).is_ok(), "as much as there is memory can always be reserved");
    }

    #[test]
    fn charges_count() {
        let memory = Memory::new(MIB, TIB).expect("reserve");
        memory.charge(MIB).expect("fits");
        assert!(memory.charge(1).is_err() && memory.alloc(1, 1).is_err());
        memory.discharge(MIB);
        assert!(memory.alloc(1, 1).is_ok());
    }
}
