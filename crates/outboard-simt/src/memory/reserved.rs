//! Address ranges without memory of their own, into which memory is mapped: what the virtual-memory
//! calls and memory of other processes need.
//!
//! They lie in a part of the arena of their own, so that kernels of all its engines reach what is
//! mapped there as they reach everything else. What is mapped may be used as a whole, together with
//! its neighbours, or divided into parts, each used as if it were an allocation.

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use rustix::process::{Resource, getrlimit};

use super::{Memory, OutOfMemory, page_bytes};

/// A mapped range that may be used.
pub(super) struct Open {
    bytes: u64,
    /// Whether an access may run on into the next one.
    joins: bool,
}

/// Makes device memory a file, which other processes can map too. Without one it stays as it is:
/// private.
pub(super) fn share(base: u64, bytes: u64) -> Option<OwnedFd> {
    let file = named_file("outboard-arena", bytes).ok()?;
    // SAFETY: the range lies in an arena of our own, and nothing uses it yet.
    unsafe { place(base, bytes, file.as_fd(), 0) }.ok()?;
    Some(file)
}

/// A file of `bytes` of zeros that takes memory only where it is written.
///
/// # Errors
/// The system's error if it has no descriptor or no file of that size to give.
pub fn memory_file(bytes: u64) -> std::io::Result<OwnedFd> {
    named_file("outboard-memory", bytes)
}

/// As [`memory_file`], under a name that the system shows.
///
/// # Errors
/// As [`memory_file`].
pub fn named_file(name: &str, bytes: u64) -> std::io::Result<OwnedFd> {
    // Beyond the limit the system would end the process by a signal.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes) {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    let mut file = memfd_create(name, MemfdFlags::CLOEXEC)?;
    // A program that has closed its standard streams may write to them all the same.
    if file.as_raw_fd() < 3 {
        file = fcntl_dupfd_cloexec(&file, 3)?;
    }
    ftruncate(&file, bytes)?;
    Ok(file)
}

/// # Safety
/// The range is address space of ours that holds nothing.
unsafe fn place(
    address: u64,
    bytes: u64,
    file: BorrowedFd<'_>,
    offset: u64,
) -> std::io::Result<()> {
    let (access, how) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
    );
    // SAFETY: by the contract above.
    unsafe { mmap(address as *mut c_void, bytes as usize, access, how, file, offset) }?;
    Ok(())
}

/// Gives the pages of a part of device memory back to the system.
pub(super) fn punch(file: &OwnedFd, offset: u64, bytes: u64) {
    let _ = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes);
}

impl Memory {
    /// Reserves `bytes` (whole pages) of addresses at a multiple of `align`, at `hint` if that is
    /// free.
    ///
    /// # Errors
    /// [`OutOfMemory`] if no such range of addresses is free.
    pub fn reserve(&self, bytes: u64, align: u64, hint: u64) -> Result<u64, OutOfMemory> {
        let mut reserved = self.arena.reserved.lock();
        if hint != 0
            && hint.is_multiple_of(align.max(page_bytes()))
            && let Ok(address) = reserved.alloc_at(hint, bytes)
        {
            return Ok(address);
        }
        reserved.alloc(bytes, align.max(page_bytes()))
    }

    /// Gives a reservation back, in which nothing is mapped any more. Whether there was one at
    /// `address`.
    pub fn unreserve(&self, address: u64) -> bool {
        let mut reserved = self.arena.reserved.lock();
        let there = reserved.live.get(address).is_some();
        reserved.free(address);
        there
    }

    /// Whether all of this lies in one reservation.
    pub fn is_reserved(&self, address: u64, bytes: u64) -> bool {
        let reserved = self.arena.reserved.lock();
        let found = reserved.live.find(address);
        found.is_some_and(|(start, len, ())| bytes <= len - (address - start))
    }

    /// Maps whole pages of a file into a reservation, for all engines. Nobody may use them before
    /// [`Memory::open`]. `false` outside of reservations.
    ///
    /// # Errors
    /// The system's error if it does not map the file.
    pub fn map(
        &self,
        address: u64,
        bytes: u64,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> std::io::Result<bool> {
        if bytes == 0 || !address.is_multiple_of(page_bytes()) || !self.is_reserved(address, bytes)
        {
            return Ok(false);
        }
        // SAFETY: reserved ranges of the arena hold nothing but what is mapped here.
        unsafe { place(address, bytes, file, offset) }?;
        Ok(true)
    }

    /// Lets kernels of this engine, copies and fills use a range of what [`Memory::map`] made. They
    /// may run on into ranges next to it.
    pub fn open(&self, address: u64, bytes: u64) {
        self.open_as(address, Open { bytes, joins: true });
    }

    /// As [`Memory::open`], for a part (at a multiple of 256) that is used as an allocation of just
    /// these bytes.
    pub fn open_part(&self, address: u64, bytes: u64) {
        self.open_as(address, Open { bytes, joins: false });
    }

    fn open_as(&self, address: u64, range: Open) {
        let bytes = range.bytes;
        self.open.write().insert(address, range);
        self.mark(address, bytes, 1);
    }

    /// Takes back all that was opened in a range.
    pub fn close(&self, address: u64, bytes: u64) {
        let mut open = self.open.write();
        let bases: Vec<u64> = open.range(address..address + bytes).map(|(base, _)| *base).collect();
        for base in bases {
            open.remove(&base);
        }
        self.mark(address, bytes, 0);
    }

    /// Undoes [`Memory::map`]; nothing running uses the range, which other engines have closed.
    pub fn unmap(&self, address: u64, bytes: u64) {
        self.close(address, bytes);
        if !self.is_reserved(address, bytes) {
            return;
        }
        let (access, how) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
        );
        // SAFETY: a reserved range of the arena, which nobody may use any more.
        let _ = unsafe { mmap_anonymous(address as *mut c_void, bytes as usize, access, how) };
    }

    /// Whether this address is one for reservations.
    pub(super) fn is_reservable(&self, address: u64) -> bool {
        self.contains(address) && address >= self.arena.reserved_base
    }

    /// Whether all of this is mapped and may be used: in one part, or in ranges next to each other.
    pub(super) fn is_open(&self, address: u64, bytes: u64) -> bool {
        let open = self.open.read();
        let Some(end) = address.checked_add(bytes) else { return false };
        let Some((start, mut last)) = open.range(..=address).next_back() else { return false };
        let mut covered = start + last.bytes;
        if address >= covered {
            return false;
        }
        while covered < end {
            match open.get(&covered) {
                Some(next) if last.joins && next.joins => last = next,
                _ => return false,
            }
            covered += last.bytes;
        }
        true
    }

    /// The part of a mapping that holds an address.
    pub(super) fn part_of(&self, address: u64) -> Option<(u64, u64)> {
        let open = self.open.read();
        let (start, part) = open.range(..=address).next_back()?;
        (!part.joins && address - start < part.bytes).then_some((*start, part.bytes))
    }

    /// Allocates device memory that has no address for kernels but those at which it is mapped, and
    /// returns its place in [`Memory::file`].
    ///
    /// # Errors
    /// [`OutOfMemory`] if so many bytes of device memory are not free.
    pub fn alloc_physical(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        Ok(self.device.lock().alloc(bytes, page_bytes())? - self.base)
    }

    /// Frees what [`Memory::alloc_physical`] gave.
    pub fn free_physical(&self, offset: u64) {
        self.free(self.base + offset);
    }

    /// The part of the arena that device memory is allocated in: its first address and its bytes.
    pub fn device_part(&self) -> (u64, u64) {
        (self.base, self.arena.device_span)
    }

    /// Counts memory that lies elsewhere as device memory.
    ///
    /// # Errors
    /// [`OutOfMemory`] if so many bytes of device memory are not free.
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

    /// The file that holds device memory, from its first address on; `None` where the system has no
    /// such files.
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
        assert!(
            !memory.map(range + 8 * MIB, 4096, file, place).expect("map"),
            "outside of the reservation"
        );
        assert!(!memory.check(range, 1), "mapped is not accessible");
        memory.open(range, 2 * MIB);
        memory.open(range + 2 * MIB, 2 * MIB);
        assert!(
            memory.check(range, 4 * MIB)
                && !memory.check(range, 4 * MIB + 1)
                && !memory.check(range + 4 * MIB, 1)
        );
        assert!(
            memory.is_valid(range)
                && memory.is_valid(range + 2 * MIB)
                && memory.range_of(range).is_none()
        );
        // SAFETY: both are mapped, and nobody else uses them.
        unsafe {
            (range as *mut u32).write_volatile(77);
            assert_eq!(((range + 2 * MIB) as *const u32).read_volatile(), 77);
        }
        memory.unmap(range, 2 * MIB);
        assert!(
            !memory.check(range, 1) && memory.check(range + 2 * MIB, 1) && !memory.is_valid(range)
        );
        memory.unmap(range + 2 * MIB, 2 * MIB);
        memory.free_physical(place);
        assert!(memory.unreserve(range) && !memory.unreserve(range));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_part_is_used_as_an_allocation() {
        let memory = Memory::new(8 * MIB, TIB).expect("reserve");
        let place = memory.alloc_physical(4 * MIB).expect("memory");
        let block = memory.reserve(8 * MIB, 2 * MIB, 0).expect("addresses");
        let file = memory.file().expect("a file");
        assert!(memory.map(block, 4 * MIB, file, place).expect("map"));
        memory.open(block + 2 * MIB, 2 * MIB);
        let (one, next, last) = (block, block + 1024, block + 2 * MIB - 256);
        memory.open_part(one, 700);
        memory.open_part(next, 512);
        memory.open_part(next + 512, 256);
        memory.open_part(last, 256);
        assert!(
            memory.check(one, 700)
                && memory.check(one + 699, 1)
                && !memory.check(one, 701)
                && !memory.check(one + 700, 1)
        );
        assert!(memory.is_valid(one) && memory.is_valid(one + 767) && !memory.is_valid(one + 768));
        assert!(
            memory.check(next, 512) && !memory.check(next, 513),
            "not even into a part that is next to it"
        );
        assert!(!memory.check(last, 257) && memory.check(last + 256, 2 * MIB), "nor into a range");
        assert_eq!(
            (memory.range_of(next + 511), memory.range_of(one + 700)),
            (Some((next, 512)), None)
        );
        memory.close(next, 512);
        assert!(
            !memory.check(next, 1) && !memory.is_valid(next) && memory.range_of(next).is_none()
        );
        assert!(
            memory.check(one, 700) && memory.check(next + 512, 256) && memory.is_valid(next + 512)
        );
        memory.unmap(block, 2 * MIB);
        assert!(
            !memory.check(one, 1)
                && !memory.is_valid(one)
                && !memory.check(last, 1)
                && memory.check(last + 256, 1)
        );
        memory.open_part(one + 256, 1);
        assert!(!memory.check(one, 1), "what was there is forgotten");
    }

    #[test]
    fn engines_share_the_addresses_and_each_opens_for_itself() {
        let all = Memory::several(3, 8 * MIB, TIB).expect("reserve");
        let [first, second, third] = &all[..] else { panic!("three") };
        let (own, others) =
            (second.alloc(4096, 1).expect("memory"), third.alloc(4096, 1).expect("memory"));
        assert!(
            second.is_valid(own)
                && second.check(own, 4096)
                && !first.is_valid(own)
                && !first.check(own, 1)
        );
        assert!(second.contains(others) && !second.check(others, 1) && !second.is_valid(others));
        let range = first.reserve(4 * MIB, 2 * MIB, 0).expect("addresses");
        assert!(third.is_reserved(range, 4 * MIB) && third.reserve(4 * MIB, 0, range) != Ok(range));
        let place = third.alloc_physical(2 * MIB).expect("memory");
        assert!(second.map(range, 2 * MIB, third.file().expect("a file"), place).expect("map"));
        second.open_part(range, 2 * MIB);
        assert!(
            second.is_valid(range)
                && second.check(range, 2 * MIB)
                && !first.is_valid(range)
                && !first.check(range, 1)
        );
        // SAFETY: all of it is mapped, and nobody else uses it.
        unsafe {
            (range as *mut u32).write_volatile(91);
            assert_eq!(((third.base() + place) as *const u32).read_volatile(), 91);
        }
        second.unmap(range, 2 * MIB);
        assert!(first.unreserve(range) && !second.is_valid(range));
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
        assert_eq!(memory.arena_span(), TIB);
        let far = memory.base() + TIB - 100 * MIB;
        assert_eq!(memory.reserve(64 * MIB, 0, far), Ok(far));
        let small = Memory::new(64 * MIB, 0).expect("reserve");
        assert!(
            small.reserve(64 * MIB, 0, 0).is_ok(),
            "as much as there is memory can always be reserved"
        );
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
