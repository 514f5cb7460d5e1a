//! Page-locked memory of the client.
//!
//! The device reads it only if a kernel is given its address: until then plain pages suffice, and
//! only the front records them. All memory allocated here lies in one range of addresses, so that
//! one comparison tells a launch whether a parameter may be such an address. If the worker shares
//! memory with this process, both map the same file in that range: the device can read such memory
//! from its allocation on, and a launch need not look for it.

use core::ffi::c_void;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, HostPtr, Result};
use outboard_ranges::FreeRanges;
use outboard_transport::Memory;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::pager::page_bytes;

/// Page-locked memory, and where it comes from.
#[derive(Debug)]
pub(crate) struct HostMemory {
    /// The range that allocations come from: its first address, or 0 while there is none, and its
    /// bytes.
    arena: (AtomicU64, AtomicU64),
    /// The same for memory that the worker has, too.
    shared: (AtomicU64, AtomicU64),
    /// From the first to the last address of registered memory that the worker has, too; bytes, 0
    /// while there is none.
    files: (AtomicU64, AtomicU64),
    /// From the first to the last address of other page-locked memory; bytes, 0 while there is
    /// none.
    others: (AtomicU64, AtomicU64),
    state: Mutex<HostMemoryState>,
}

#[derive(Debug)]
struct HostMemoryState {
    tried: bool,
    /// Free parts of the arena.
    free: FreeRanges,
    pinned: BTreeMap<HostPtr, Pinned>,
}

/// One range of page-locked memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned {
    /// Bytes, as the program gave them.
    pub(crate) bytes: u64,
    /// The context with which it ends.
    ctx: ContextId,
    /// Whether it was the program's before; if not, it was allocated here.
    pub(crate) registered: bool,
    /// Whether its pages are the worker's, too.
    pub(crate) shared: bool,
    /// The context in which the device was given it, if it was.
    pub(crate) mapped: Option<ContextId>,
    /// Whether it is another server's.
    pub(crate) is_borrowed: bool,
}

impl Pinned {
    fn new(ctx: ContextId, bytes: u64, registered: bool, shared: bool) -> Pinned {
        Pinned { bytes, ctx, registered, shared, mapped: None, is_borrowed: false }
    }
}

/// Where the arena may begin. Programs, libraries and drivers are elsewhere, on both sides: the
/// worker needs the same addresses.
const PLACES: [u64; 3] = [0x2000_0000_0000, 0x1800_0000_0000, 0x2400_0000_0000];
/// How large it may be; less where a process is not given as many addresses.
const SIZES: [u64; 3] = [1 << 40, 256 << 30, 32 << 30];
/// Allocations from this size on begin at multiples of it, so that large pages can be used.
const LARGE_PAGE: u64 = 2 << 20;

/// Whether an address is in a range, by its first address and its bytes.
#[inline]
fn within((base, bytes): &(AtomicU64, AtomicU64), address: HostPtr) -> bool {
    address.0.wrapping_sub(base.load(Ordering::Relaxed)) < bytes.load(Ordering::Relaxed)
}

/// Has a range include these addresses, too.
fn widen((base, span): &(AtomicU64, AtomicU64), HostPtr(address): HostPtr, bytes: u64) {
    let (old, len) = (base.load(Ordering::Relaxed), span.load(Ordering::Relaxed));
    let start = if len == 0 { address } else { old.min(address) };
    let end = (old + len).max(address + bytes);
    // In between, another thread could miss an address, but not one that it got from this
    // registration.
    base.store(start, Ordering::Relaxed);
    span.store(end - start, Ordering::Relaxed);
}

fn out_of_memory<E>(_: E) -> CUresult {
    CUresult::CUDA_ERROR_OUT_OF_MEMORY
}

impl HostMemory {
    pub(crate) const fn new() -> HostMemory {
        HostMemory {
            arena: (AtomicU64::new(0), AtomicU64::new(0)),
            shared: (AtomicU64::new(0), AtomicU64::new(0)),
            files: (AtomicU64::new(0), AtomicU64::new(0)),
            others: (AtomicU64::new(0), AtomicU64::new(0)),
            state: Mutex::new(HostMemoryState {
                tried: false,
                free: FreeRanges::new(),
                pinned: BTreeMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, HostMemoryState> {
        self.state.lock()
    }

    /// Whether a number may be an address of page-locked memory.
    #[inline]
    pub(crate) fn may_contain(&self, address: HostPtr) -> bool {
        within(&self.arena, address) || within(&self.others, address)
    }

    /// Whether there is any page-locked memory.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.arena.1.load(Ordering::Relaxed) != 0 || self.others.1.load(Ordering::Relaxed) != 0
    }

    /// Allocates zeroed pages, `bytes` of them at least.
    pub(crate) fn alloc(&self, ctx: ContextId, bytes: usize) -> Result<*mut u8> {
        let pages = (bytes as u64)
            .checked_next_multiple_of(page_bytes())
            .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut state = self.state();
        self.reserve(&mut state, &self.arena);
        // If memory is shared with the worker, the range maps that memory.
        let place =
            if self.shared.1.load(Ordering::Relaxed) == 0 { state.take(pages) } else { None };
        let (at, flags) = match place {
            Some(address) => (address as *mut c_void, MapFlags::SHARED | MapFlags::FIXED),
            None => (core::ptr::null_mut(), MapFlags::SHARED),
        };
        // As natively, forked children have the same memory, not a copy of it.
        // SAFETY: a new mapping, at an address of the kernel's choice or in a free part of the
        // range that we have reserved.
        let memory = unsafe {
            mmap_anonymous(at, pages as usize, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        match memory {
            Ok(memory) => {
                // The first copy to it is the first to touch it, and faults cost as much as the
                // bytes. A system without huge pages maps small ones.
                // SAFETY: the new mapping; its content stays.
                let _ = unsafe { madvise(memory, pages as usize, Advice::LinuxHugepage) };
                let pinned = Pinned::new(ctx, bytes as u64, false, false);
                state.pinned.insert(HostPtr::of(memory), pinned);
                if place.is_none() {
                    widen(&self.others, HostPtr::of(memory), pages);
                }
                Ok(memory.cast())
            }
            Err(error) => {
                if let Some(address) = place {
                    state.free.give(address, pages);
                }
                Err(out_of_memory(error))
            }
        }
    }

    /// Reserves the range of addresses, the first time, and notes it there.
    fn reserve(&self, state: &mut HostMemoryState, range: &(AtomicU64, AtomicU64)) {
        if !state.tried {
            state.tried = true;
            if let Some((base, span)) = reserve() {
                state.free.give(base, span);
                range.0.store(base, Ordering::Relaxed);
                range.1.store(span, Ordering::Relaxed);
            }
        }
    }

    /// Allocates zeroed pages, `bytes` of them at least, of a file that the worker shares, and
    /// returns where in it they are, too.
    pub(crate) fn alloc_shared(
        &self,
        ctx: ContextId,
        bytes: usize,
        memory: &Memory,
    ) -> Result<(*mut u8, u64)> {
        let pages = (bytes as u64)
            .checked_next_multiple_of(page_bytes())
            .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut state = self.state();
        self.reserve(&mut state, &self.shared);
        let (base, span) =
            (self.shared.0.load(Ordering::Relaxed), self.shared.1.load(Ordering::Relaxed));
        if span == 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let address = state.take(pages).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let offset = address - base;
        let made = if offset + pages <= memory.pinned_bytes() {
            populate(memory, offset, pages).and_then(|()| {
                let (flags, access) =
                    (MapFlags::SHARED | MapFlags::FIXED, ProtFlags::READ | ProtFlags::WRITE);
                // SAFETY: a new mapping in a free part of the range that we have reserved.
                unsafe {
                    mmap(
                        address as *mut c_void,
                        pages as usize,
                        access,
                        flags,
                        memory.pinned(),
                        offset,
                    )
                }
            })
        } else {
            Err(Errno::NOMEM)
        };
        if let Err(error) = made {
            // The system takes back the pages that were used.
            let _ = fallocate(
                memory.pinned(),
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                offset,
                pages,
            );
            state.free.give(address, pages);
            return Err(out_of_memory(error));
        }
        let pinned = Pinned::new(ctx, bytes as u64, false, true);
        state.pinned.insert(HostPtr(address), pinned);
        Ok((HostPtr(address).pointer(), offset))
    }

    /// Whether these bytes lie in one piece of memory that the device has by its address.
    #[inline]
    pub(crate) fn is_shared(&self, address: HostPtr, bytes: u64) -> bool {
        if !within(&self.shared, address) && !within(&self.files, address) {
            return false;
        }
        self.find(address).is_some_and(|(base, pinned)| {
            pinned.shared && pinned.mapped.is_some() && bytes <= pinned.bytes - address.since(base)
        })
    }

    /// Frees what [`HostMemory::alloc_shared`] gave, and the worker no longer has.
    ///
    /// # Safety
    /// `memory` is of one such allocation, which nobody uses any more.
    pub(crate) unsafe fn free_shared(&self, address: *mut u8, memory: &Memory) -> Result<()> {
        let mut state = self.state();
        let pinned =
            state.pinned.remove(&HostPtr::of(address)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let (at, pages) = (address as u64, pinned.bytes.next_multiple_of(page_bytes()));
        let offset = at - self.shared.0.load(Ordering::Relaxed);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: nobody uses the memory any more; its addresses stay ours.
        unsafe { mmap_anonymous(address.cast(), pages as usize, ProtFlags::empty(), flags) }
            .map_err(out_of_memory)?;
        // If this fails, its pages are lost, and it must not be used again: it would not be zeros.
        if fallocate(
            memory.pinned(),
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            pages,
        )
        .is_ok()
        {
            state.free.give(at, pages);
        }
        Ok(())
    }

    /// Frees what [`HostMemory::alloc`] gave.
    ///
    /// # Safety
    /// `memory` is of one such allocation, which nobody uses any more.
    pub(crate) unsafe fn free(&self, memory: *mut u8) -> Result<()> {
        let mut state = self.state();
        let pinned =
            state.pinned.remove(&HostPtr::of(memory)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let (address, pages) = (memory as u64, pinned.bytes.next_multiple_of(page_bytes()));
        if address.wrapping_sub(self.arena.0.load(Ordering::Relaxed))
            >= self.arena.1.load(Ordering::Relaxed)
        {
            // SAFETY: by the contract above.
            return unsafe { munmap(memory.cast(), pages as usize) }
                .map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: nobody uses the memory any more; its addresses stay ours.
        unsafe { mmap_anonymous(memory.cast(), pages as usize, ProtFlags::empty(), flags) }
            .map_err(out_of_memory)?;
        state.free.give(address, pages);
        Ok(())
    }

    /// Takes in memory of the program.
    pub(crate) fn register(&self, ctx: ContextId, memory: *mut u8, bytes: usize) {
        let pinned = Pinned::new(ctx, bytes as u64, true, false);
        self.state().pinned.insert(HostPtr::of(memory), pinned);
        widen(&self.others, HostPtr::of(memory), bytes as u64);
    }

    /// Takes in memory of another server, whose pages this one's worker has, too.
    pub(crate) fn borrow(&self, ctx: ContextId, base: HostPtr, bytes: u64) {
        let pinned = Pinned { is_borrowed: true, ..Pinned::new(ctx, bytes, true, true) };
        self.state().pinned.insert(base, pinned);
    }

    /// Where in the file that the worker shares an allocation is.
    pub(crate) fn offset_in_file(&self, base: HostPtr) -> Option<u64> {
        let shared = within(&self.shared, base);
        shared.then(|| base.0 - self.shared.0.load(Ordering::Relaxed))
    }

    /// Forgets memory of the program.
    pub(crate) fn unregister(&self, memory: *mut u8) {
        let mut state = self.state();
        if state.pinned.get(&HostPtr::of(memory)).is_some_and(|pinned| pinned.registered) {
            state.pinned.remove(&HostPtr::of(memory));
        }
    }

    /// The range that holds an address.
    pub(crate) fn find(&self, address: HostPtr) -> Option<(HostPtr, Pinned)> {
        let state = self.state();
        let (base, pinned) = state.pinned.range(..=address).next_back()?;
        (address.since(*base) < pinned.bytes).then_some((*base, *pinned))
    }

    /// Notes in which context the device has been given a range, or that it has it no more.
    pub(crate) fn set_mapped(&self, base: HostPtr, mapped: Option<ContextId>) {
        if let Some(pinned) = self.state().pinned.get_mut(&base) {
            pinned.mapped = mapped;
            // Registered memory that is mapped anew is not found by its file.
            pinned.shared &= mapped.is_some() || !pinned.registered;
        }
    }

    /// Notes in which context the device has been given the pages of registered memory themselves.
    pub(crate) fn set_shared(&self, base: HostPtr, ctx: ContextId) {
        if let Some(pinned) = self.state().pinned.get_mut(&base) {
            (pinned.shared, pinned.mapped) = (true, Some(ctx));
            widen(&self.files, base, pinned.bytes);
        }
    }

    /// What the program has allocated and registered in a context.
    pub(crate) fn of_context(&self, ctx: ContextId) -> Vec<(HostPtr, Pinned)> {
        self.those(|pinned| pinned.ctx == ctx && !pinned.is_borrowed)
    }

    /// What the device was given in a context.
    pub(crate) fn mapped_in(&self, ctx: ContextId) -> Vec<(HostPtr, Pinned)> {
        self.those(|pinned| pinned.mapped == Some(ctx))
    }

    fn those(&self, are: impl Fn(&Pinned) -> bool) -> Vec<(HostPtr, Pinned)> {
        let state = self.state();
        let those = state.pinned.iter().filter(|(_, pinned)| are(pinned));
        those.map(|(base, pinned)| (*base, *pinned)).collect()
    }
}

/// Has the file its pages now: to find out later that there is no memory would end the process.
fn populate(memory: &Memory, offset: u64, bytes: u64) -> core::result::Result<(), Errno> {
    // A signal may interrupt it, and then it begins anew.
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        match fallocate(memory.pinned(), FallocateFlags::empty(), offset, bytes) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::INTR)
}

impl HostMemoryState {
    /// Takes free addresses: the lowest, so that what is used of the shared file stays together.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let align = if bytes >= LARGE_PAGE { LARGE_PAGE } else { page_bytes() };
        self.free.take_lowest(bytes, align)
    }
}

/// Reserves a range of addresses, none of it usable.
fn reserve() -> Option<(u64, u64)> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    SIZES.iter().flat_map(|size| PLACES.iter().map(move |place| (*place, *size))).find(
        |(place, size)| {
            let at = *place as *mut c_void;
            // SAFETY: the flag leaves alone whatever is there, and the call fails then.
            match unsafe { mmap_anonymous(at, *size as usize, ProtFlags::empty(), flags) } {
                Ok(got) if got == at => true,
                Ok(got) => {
                    // A kernel that does not know the flag.
                    // SAFETY: mapped above.
                    let _ = unsafe { munmap(got, *size as usize) };
                    false
                }
                Err(_) => false,
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_used_again_and_told_apart() {
        static HOST: HostMemory = HostMemory::new();
        let (ctx, other) = (ContextId(1), ContextId(2));
        assert!(!HOST.is_in_use() && !HOST.may_contain(HostPtr(0x2000_0000_0000)));
        let small = HOST.alloc(ctx, 100).unwrap();
        let large = HOST.alloc(ctx, 3 << 20).unwrap();
        assert!((large as u64).is_multiple_of(LARGE_PAGE));
        assert!(
            HOST.may_contain(HostPtr::of(small))
                && HOST.may_contain(HostPtr::of(large).offset((3 << 20) - 1))
        );
        // SAFETY: memory that was just allocated.
        unsafe {
            small.write(7);
            large.add((3 << 20) - 1).write(8);
            assert_eq!(large.read(), 0);
        }
        assert_eq!(
            HOST.find(HostPtr::of(small).offset(99)).map(|(base, pinned)| (base, pinned.bytes)),
            Some((HostPtr::of(small), 100))
        );
        assert!(HOST.find(HostPtr::of(small).offset(100)).is_none());
        // SAFETY: not used afterwards.
        unsafe { HOST.free(small) }.unwrap();
        assert!(HOST.find(HostPtr::of(small)).is_none());
        let again = HOST.alloc(ctx, 50).unwrap();
        assert_eq!(again, small);
        // SAFETY: memory that was just allocated.
        assert_eq!(unsafe { again.read() }, 0, "memory is new each time");
        let own = 0x5000_0000 as *mut u8;
        HOST.register(other, own, 1000);
        assert!(
            HOST.may_contain(HostPtr(0x5000_0000))
                && !HOST.may_contain(HostPtr(0x5000_0000 + 1000))
        );
        let bases = |ctx| HOST.of_context(ctx).into_iter().map(|(base, _)| base.pointer());
        assert!(bases(ctx).eq([again, large]) && bases(other).eq([own]));
        HOST.unregister(own);
        assert!(HOST.find(HostPtr(0x5000_0000)).is_none());
        // SAFETY: not used afterwards.
        unsafe {
            HOST.free(again).unwrap();
            HOST.free(large).unwrap();
        }
        assert_eq!(HOST.state().free.iter().count(), 1, "free parts grow together");
    }
}
