//! Device memory: a part of a reserved arena, an allocator over it, and the validity table that
//! compiled code consults.
//!
//! The arena is address space without backing (`MAP_NORESERVE`); pages get backing when touched. Of
//! each engine's part, the first is device memory, the second belongs to the engine: shared and
//! local memory of running blocks, kernel parameters. Both lie in one arena so that one range check
//! covers generic addresses of every space.
//!
//! The validity table has one byte for each granule of 256 bytes, nonzero where memory is
//! allocated. Compiled code checks an access with one comparison (range and alignment together) and
//! one look-up in that table. Allocations are whole granules, and there is at least one free
//! granule between neighbours, so running off the end of an array is found out.
//!
//! The last part of the arena is for ranges that programs reserve and map memory into: see
//! [`reserved`]. All engines share it.

mod arena;
mod region;
pub(crate) mod reserved;
mod saved;

pub use saved::Saved;

use arena::Arena;
use outboard_ranges::RangeMap;
use parking_lot::{Mutex, RwLock};
use region::Region;
use reserved::Open;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// log2 of the bytes one entry of the validity table stands for.
pub(crate) const GRANULE_SHIFT: u32 = 8;
const GRANULE: u64 = 1 << GRANULE_SHIFT;
/// Alignment of every allocation, as the CUDA allocator gives.
const ALIGN: u64 = 512;
/// Freed ranges from this size on give their pages back to the system.
const RELEASE_THRESHOLD: u64 = 64 << 10;

/// Bytes of a page of this system.
fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// No free memory, or no free address range, of the size asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of device memory: {requested} bytes asked for, {free} of {total} free")]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes free, in all.
    pub free: u64,
    /// Size of the memory.
    pub total: u64,
}

/// Device memory of one engine.
pub struct Memory {
    arena: Arc<Arena>,
    /// First address of device memory.
    base: u64,
    valid: Mapping,
    device: Mutex<Region>,
    internal: Mutex<Region>,
    /// Mapped ranges that may be used.
    open: RwLock<BTreeMap<u64, Open>>,
    /// Holds device memory, from its first address on.
    file: Option<OwnedFd>,
    host: RwLock<RangeMap<u64, ()>>,
    /// Counts changes of `host`, so that what was looked up can be kept until the next one.
    host_changes: AtomicU64,
}

impl Memory {
    /// Memory of so many engines, each with `total` bytes of device memory: `addresses` bytes of
    /// address space in all if these are enough. What the memory does not need is for reservations.
    pub(crate) fn several(
        engines: usize,
        total: u64,
        addresses: u64,
    ) -> Result<Vec<Memory>, std::io::Error> {
        let arena = Arena::new(engines as u64, total, addresses)?;
        (0..engines as u64).map(|engine| Memory::in_arena(&arena, engine)).collect()
    }

    fn in_arena(arena: &Arc<Arena>, engine: u64) -> Result<Memory, std::io::Error> {
        let base = arena.device_base(engine);
        let (device_end, end) =
            (base + arena.device_span, base + arena.device_span + arena.internal_span);
        Ok(Memory {
            open: RwLock::new(BTreeMap::new()),
            file: reserved::share(base, arena.device_span),
            valid: arena.validity()?,
            // The first granules stay free, so that base - 1 and base are never valid.
            device: Mutex::new(Region::new(base + (1 << 20), device_end, arena.total())),
            internal: Mutex::new(Region::new(device_end, end, arena.internal_span)),
            host: RwLock::new(RangeMap::new()),
            host_changes: AtomicU64::new(0),
            base,
            arena: arena.clone(),
        })
    }

    /// Allocates `bytes` (at least one) at a multiple of `align` (a power of two; at least 512 is
    /// used) and returns the address.
    ///
    /// # Errors
    /// [`OutOfMemory`] if no such range of device memory is free.
    pub fn alloc(&self, bytes: u64, align: u64) -> Result<u64, OutOfMemory> {
        let addr = self.device.lock().alloc(bytes, align)?;
        self.mark(addr, bytes, 1);
        Ok(addr)
    }

    /// Allocates `bytes` at exactly `addr` (a multiple of 512), where that range is free.
    ///
    /// # Errors
    /// [`OutOfMemory`] if a part of the range is not free.
    pub fn alloc_at(&self, addr: u64, bytes: u64) -> Result<u64, OutOfMemory> {
        let addr = self.device.lock().alloc_at(addr, bytes)?;
        self.mark(addr, bytes, 1);
        Ok(addr)
    }

    /// Frees the allocation that starts at `addr` and returns its size, or `None` when there is
    /// none.
    pub fn free(&self, addr: u64) -> Option<u64> {
        let mut device = self.device.lock();
        let (bytes, ()) = device.live.get(addr)?;
        // Unmark before the range can be handed out again.
        self.mark(addr, bytes, 0);
        self.release_pages(addr, bytes);
        device.free(addr);
        Some(bytes)
    }

    /// First address of device memory.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// First address of the arena.
    pub(crate) fn arena_base(&self) -> u64 {
        self.arena.base()
    }

    /// Bytes of address space in the arena.
    pub(crate) fn arena_span(&self) -> u64 {
        self.arena.span()
    }

    /// Whether `addr` lies in the arena, allocated or not, of this engine or of another one.
    pub fn contains(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.arena.base()) < self.arena.span()
    }

    /// Size of device memory in bytes.
    pub fn total(&self) -> u64 {
        self.device.lock().total
    }

    /// Bytes allocated.
    pub fn used(&self) -> u64 {
        self.device.lock().used
    }

    /// Bytes free.
    pub fn free_bytes(&self) -> u64 {
        let device = self.device.lock();
        device.total - device.used
    }

    /// The live allocation `addr` lies in, or the part of a mapping: its start and its size as
    /// asked for.
    pub fn range_of(&self, addr: u64) -> Option<(u64, u64)> {
        if self.is_reservable(addr) {
            return self.part_of(addr);
        }
        let device = self.device.lock();
        device.live.find(addr).map(|(start, bytes, ())| (start, bytes))
    }

    /// Whether all of `addr .. addr + len` lies in one live allocation, or in ranges that are
    /// mapped and accessible.
    pub fn check(&self, addr: u64, len: u64) -> bool {
        if self.is_reservable(addr) {
            return self.is_open(addr, len);
        }
        self.range_of(addr).is_some_and(|(start, bytes)| len <= bytes - (addr - start))
    }

    /// Makes a range of host memory outside the arena visible to kernels at its own address.
    /// Accesses there are slower.
    ///
    /// The caller keeps the memory alive until [`Memory::unregister_host`]; kernels access it as
    /// device code does, without locks.
    ///
    /// # Safety
    /// `addr .. addr + len` must stay readable and writable memory of this process until it is
    /// unregistered and no launch that began before that is running.
    pub unsafe fn register_host(&self, addr: u64, len: u64) {
        let mut host = self.host.write();
        host.insert(addr, len, ());
        self.host_changes.fetch_add(1, Ordering::Release);
    }

    /// Withdraws what [`Memory::register_host`] registered at `addr`, and returns its length.
    pub fn unregister_host(&self, addr: u64) -> Option<u64> {
        let mut host = self.host.write();
        self.host_changes.fetch_add(1, Ordering::Release);
        host.remove(addr).map(|(len, ())| len)
    }

    /// Whether `addr .. addr + len` lies in one registered host range.
    pub fn is_registered_host(&self, addr: u64, len: u64) -> bool {
        self.host_range(addr).is_some_and(|(start, bytes)| len <= bytes - (addr - start))
    }

    /// The registered host range that `addr` lies in: start and length.
    pub(crate) fn host_range(&self, addr: u64) -> Option<(u64, u64)> {
        let host = self.host.read();
        host.find(addr).map(|(start, bytes, ())| (start, bytes))
    }

    /// Number of changes to the registered host ranges so far.
    pub(crate) fn host_changes(&self) -> u64 {
        self.host_changes.load(Ordering::Acquire)
    }

    /// Allocates memory of the engine's own, valid for kernels but not counted as device memory.
    pub(crate) fn alloc_internal(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        let addr = self.internal.lock().alloc(bytes.max(1), ALIGN)?;
        self.mark(addr, bytes, 1);
        Ok(addr)
    }

    /// Frees what [`Memory::alloc_internal`] gave.
    pub(crate) fn free_internal(&self, addr: u64) {
        let mut internal = self.internal.lock();
        let Some((bytes, ())) = internal.live.get(addr) else { return };
        self.mark(addr, bytes, 0);
        self.release_pages(addr, bytes);
        internal.free(addr);
    }

    /// Marks part of an internal allocation valid (1) or invalid (0) for kernels; `addr` is a
    /// multiple of 256.
    pub(crate) fn mark(&self, addr: u64, bytes: u64, value: u8) {
        let first = (addr - self.arena.base()) >> GRANULE_SHIFT;
        let count = bytes.div_ceil(GRANULE);
        debug_assert!(first + count <= self.valid.len);
        // SAFETY: the granules of an allocation lie in the arena, so their entries lie in the
        // table; compiled code and other threads only ever access single bytes of it, and a race
        // there is one between a free and an access in the program itself.
        unsafe {
            std::ptr::write_bytes((self.valid.base + first) as *mut u8, value, count as usize)
        };
    }

    /// Whether an access of `size` bytes (a power of two up to 256, naturally aligned) hits
    /// allocated memory, as compiled code checks.
    pub(crate) fn is_valid(&self, addr: u64) -> bool {
        let offset = addr.wrapping_sub(self.arena.base());
        if offset >= self.arena.span() {
            return false;
        }
        // SAFETY: the offset lies in the arena, so the entry lies in the table.
        unsafe {
            std::ptr::read_volatile((self.valid.base + (offset >> GRANULE_SHIFT)) as *const u8) != 0
        }
    }

    /// Address of the validity table.
    pub(crate) fn table(&self) -> u64 {
        self.valid.base
    }

    fn release_pages(&self, addr: u64, bytes: u64) {
        if bytes < RELEASE_THRESHOLD {
            return;
        }
        let (start, end) =
            (addr.next_multiple_of(page_bytes()), (addr + bytes) & !(page_bytes() - 1));
        if start < end
            && let Some(file) =
                self.file.as_ref().filter(|_| addr - self.base < self.arena.device_span)
        {
            reserved::punch(file, start - self.base, end - start);
        } else if start < end {
            // SAFETY: whole pages inside a range of the arena that the caller is freeing; nothing
            // else lies on them.
            let _ = unsafe {
                madvise(start as *mut c_void, (end - start) as usize, Advice::LinuxDontNeed)
            };
        }
    }
}

/// Private anonymous memory without reserved backing.
pub(crate) struct Mapping {
    pub(crate) base: u64,
    pub(crate) len: u64,
}

impl Mapping {
    pub(crate) fn new(len: u64) -> Result<Mapping, std::io::Error> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address the kernel chooses aliases nothing.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len as usize,
                prot,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // Address space this large would make core dumps slow to write; not all kernels know the
        // advice. SAFETY: the range was just mapped; the advice changes no contents.
        let _ = unsafe { madvise(base, len as usize, Advice::LinuxDontDump) };
        Ok(Mapping { base: base as u64, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value made the mapping and owns it; users keep it alive while they hold
        // addresses into it.
        let _ = unsafe { munmap(self.base as *mut c_void, self.len as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Memory {
        /// Memory of one engine.
        pub(crate) fn new(total: u64, addresses: u64) -> Result<Memory, std::io::Error> {
            Memory::several(1, total, addresses).map(|mut all| all.remove(0))
        }
    }

    fn memory() -> Memory {
        Memory::new(1 << 20, 1 << 40).expect("reserve")
    }

    #[test]
    fn neighbours_have_an_invalid_granule_between_them() {
        let memory = memory();
        let a = memory.alloc(512, 1).expect("a");
        let b = memory.alloc(1, 1).expect("b");
        assert!(a.is_multiple_of(512) && b.is_multiple_of(512));
        assert!(memory.is_valid(a) && memory.is_valid(a + 511) && !memory.is_valid(a + 512));
        assert!(memory.is_valid(b) && !memory.is_valid(b + 256) && !memory.is_valid(b - 1));
    }

    #[test]
    fn the_total_is_enforced_and_comes_back() {
        let memory = memory();
        let a = memory.alloc(1 << 19, 1).expect("half");
        let error = memory.alloc((1 << 19) + 1, 1).expect_err("more than is left");
        assert_eq!((error.free, error.total), (1 << 19, 1 << 20));
        let b = memory.alloc(1 << 19, 1).expect("the other half");
        assert_eq!(memory.free_bytes(), 0);
        assert_eq!(memory.free(a), Some(1 << 19));
        assert_eq!(memory.free(a), None);
        assert!(!memory.is_valid(a));
        assert_eq!(memory.free(b), Some(1 << 19));
        assert_eq!(memory.used(), 0);
        assert!(memory.alloc(u64::MAX, 1).is_err());
    }

    #[test]
    fn ranges_and_checks() {
        let memory = memory();
        let a = memory.alloc(1000, 4096).expect("a");
        assert!(a.is_multiple_of(4096));
        assert_eq!(memory.range_of(a + 999), Some((a, 1000)));
        assert_eq!(memory.range_of(a + 1000), None);
        assert!(
            memory.check(a + 1, 999) && !memory.check(a + 1, 1000) && !memory.check(a, u64::MAX)
        );
        let next = a + 1024 + 512;
        assert_eq!(memory.alloc_at(next, 10), Ok(next));
        assert!(memory.alloc_at(next, 10).is_err());
    }

    #[test]
    fn host_ranges() {
        let memory = memory();
        let host = [0u8; 100];
        let addr = host.as_ptr() as u64;
        // SAFETY: the array outlives the registration, and no kernel runs.
        unsafe { memory.register_host(addr, 100) };
        assert!(
            memory.is_registered_host(addr + 96, 4) && !memory.is_registered_host(addr + 97, 4)
        );
        assert_eq!(memory.unregister_host(addr), Some(100));
        assert!(!memory.is_registered_host(addr, 1));
    }

    proptest! {
        /// Live allocations never overlap, and freeing all leaves one free range.
        #[test]
        fn allocations_are_disjoint(ops in proptest::collection::vec((1u64..5000, any::<bool>(), 0usize..64), 1..200)) {
            let mut region = Region::new(4096, 4096 + (4 << 20), 1 << 20);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (bytes, drop, pick) in ops {
                if drop && !live.is_empty() {
                    let (addr, _) = live.swap_remove(pick % live.len());
                    region.free(addr);
                } else if let Ok(addr) = region.alloc(bytes, 1) {
                    prop_assert!(live.iter().all(|&(a, n)| addr + bytes + GRANULE <= a || a + n + GRANULE <= addr));
                    live.push((addr, bytes));
                }
            }
            for (addr, _) in live {
                region.free(addr);
            }
            prop_assert_eq!(region.used, 0);
            prop_assert_eq!(region.free.iter().count(), 1);
        }
    }
}
