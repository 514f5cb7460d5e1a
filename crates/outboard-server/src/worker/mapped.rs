//! Page-locked memory of the client's program that kernels use: this process has pages under the same addresses, which the device can reach. They
//! are its own, and the client sends what its program writes and asks for what kernels have written; or, of a client on this machine, the client's.
//!
//! Its addresses are the client's choice, so they are only ever taken where nothing else is, or where this process keeps the place from others.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_driver::{Table, call};
use outboard_transport::Memory;
use outboard_transport::reserved::Reserved;
use outboard_wire::{ContextId, UnifiedPtr};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::bounds::Kind;
use super::budget::Pinned;

const PAGE: u64 = 4096;
const WORD: usize = 4;
/// `CU_MEMHOSTREGISTER_PORTABLE` and `_DEVICEMAP`.
const FLAGS: u32 = 3;
const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// The session's mapped memory.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    /// The addresses that this process keeps from others, where it keeps any.
    addresses: Arc<Reserved>,
    /// What the client has opened: bytes and context, by first address.
    open: BTreeMap<u64, (u64, ContextId)>,
    /// The pages below: bytes and how many of `open` use them, by first address. Each run is registered with the driver as one.
    runs: BTreeMap<u64, (u64, u32)>,
    /// What runs count for, by first address, if their pages are this process's own.
    pinned: BTreeMap<u64, Arc<Pinned>>,
    bytes: u64,
}

/// Where pages come from.
#[derive(Clone, Copy)]
enum Pages<'a> {
    /// Fresh ones, zeroed.
    Own,
    /// Those of a file, from a byte on.
    Of(BorrowedFd<'a>, u64),
}

/// Pages that nobody uses any more.
pub(crate) struct Unused {
    runs: Vec<Range<u64>>,
    addresses: Arc<Reserved>,
    #[expect(dead_code, reason = "counts until they are gone")]
    pinned: Vec<Arc<Pinned>>,
}

fn pages(address: u64, bytes: u64) -> Result<Range<u64>, CUresult> {
    let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE)).ok_or(INVALID)?;
    let start = address & !(PAGE - 1);
    if bytes == 0 || start == 0 { Err(INVALID) } else { Ok(start..end) }
}

/// Half of the machine's memory, for each session: locked pages are lost to everybody else.
fn limit() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)) / 2
}

impl Mapped {
    /// None, in a process that keeps these addresses from others.
    pub(crate) fn new(addresses: Arc<Reserved>) -> Mapped {
        Mapped { addresses, ..Mapped::default() }
    }

    /// Bytes of pages that these addresses need and no others have.
    pub(crate) fn more(&self, address: u64, bytes: u64) -> Result<u64, CUresult> {
        Ok(self.missing(&pages(address, bytes)?).iter().map(|run| run.end - run.start).sum())
    }

    /// Gives the device pages under these addresses, zeroed, that count as `pinned`. The context is current.
    pub(crate) fn open(
        &mut self,
        table: &Table,
        ctx: ContextId,
        (address, bytes): (u64, u64),
        pinned: Pinned,
    ) -> Result<(), CUresult> {
        let made = self.add(table, ctx, address, bytes, Pages::Own)?;
        let pinned = Arc::new(pinned);
        self.pinned.extend(made.into_iter().map(|run| (run, Arc::clone(&pinned))));
        Ok(())
    }

    /// Gives the device the client's own pages under these addresses: those of its file from `offset` on. The context is current.
    pub(crate) fn share(
        &mut self,
        table: &Table,
        ctx: ContextId,
        (address, bytes): (u64, u64),
        memory: &Memory,
        offset: u64,
    ) -> Result<(), CUresult> {
        let range = pages(address, bytes)?;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= memory.pinned_bytes());
        // Beyond its end, the file has no pages; a part of a page of its own would be two memories at once.
        let whole = range == (address..address + bytes) && offset.is_multiple_of(PAGE);
        if !inside || !whole || self.missing(&range) != std::slice::from_ref(&range) {
            return Err(INVALID);
        }
        self.add(table, ctx, address, bytes, Pages::Of(memory.pinned(), offset)).map(drop)
    }

    /// Whether an address lies in memory that is open.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.check(address, 1).is_ok()
    }

    /// Adds a range; the first addresses of the runs that were made for it.
    fn add(
        &mut self,
        table: &Table,
        ctx: ContextId,
        address: u64,
        bytes: u64,
        source: Pages<'_>,
    ) -> Result<Vec<u64>, CUresult> {
        let range = pages(address, bytes)?;
        Kind::Mapped.room(self.open.len())?;
        let clash = self.open.range(..address + bytes).next_back().is_some_and(|(base, (len, _))| base + len > address);
        if clash {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        let missing = self.missing(&range);
        let more: u64 = missing.iter().map(|run| run.end - run.start).sum();
        if self.bytes + more > limit() {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        let mut made = Vec::new();
        for run in missing {
            if let Err(error) = map(table, &self.addresses, &run, source) {
                unmap(table, &self.unused(made, Vec::new()));
                return Err(error);
            }
            made.push(run);
        }
        let made: Vec<u64> = made
            .into_iter()
            .map(|run| {
                self.runs.insert(run.start, (run.end - run.start, 0));
                run.start
            })
            .collect();
        for (base, (len, users)) in self.runs_in(&range) {
            if *users == 0 && !made.contains(base) {
                // SAFETY: pages of ours, which nobody has: what was there before has been closed.
                unsafe { core::ptr::write_bytes(*base as *mut u8, 0, *len as usize) };
            }
            *users += 1;
        }
        self.bytes += more;
        self.open.insert(address, (bytes, ctx));
        Ok(made)
    }

    /// The pages of a range that no run has.
    fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start;
        let before = self.runs.range(..range.start).next_back();
        for (base, (len, _)) in before.into_iter().chain(self.runs.range(range.clone())) {
            if *base > at {
                missing.push(at..*base);
            }
            at = at.max(base + len);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    fn runs_in(&mut self, range: &Range<u64>) -> impl Iterator<Item = (&u64, &mut (u64, u32))> {
        let (start, end) = (range.start, range.end);
        self.runs.range_mut(..end).filter(move |(base, (len, _))| **base + *len > start)
    }

    /// Forgets what was opened at an address. Its pages stay until [`Mapped::take_unused`].
    pub(crate) fn close(&mut self, address: u64, bytes: u64) -> Result<(), CUresult> {
        let Some((len, _)) = self.open.get(&address).filter(|(len, _)| *len == bytes) else { return Err(INVALID) };
        let range = pages(address, *len)?;
        self.open.remove(&address);
        for (_, (_, users)) in self.runs_in(&range) {
            *users -= 1;
        }
        Ok(())
    }

    /// The pages that nobody uses, which are to be given to [`unmap`] once the device is done with them.
    pub(crate) fn take_unused(&mut self) -> Unused {
        let unused: Vec<_> =
            self.runs.extract_if(.., |_, (_, users)| *users == 0).map(|(base, (len, _))| base..base + len).collect();
        self.bytes -= unused.iter().map(|run| run.end - run.start).sum::<u64>();
        let counted = unused.iter().filter_map(|run| self.pinned.remove(&run.start)).collect();
        self.unused(unused, counted)
    }

    fn unused(&self, runs: Vec<Range<u64>>, pinned: Vec<Arc<Pinned>>) -> Unused {
        Unused { runs, addresses: Arc::clone(&self.addresses), pinned }
    }

    /// Forgets the memory of a context that is gone, which a client of ours has closed before. Its pages stay: the driver may still know them.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        self.open.retain(|_, (_, owner)| *owner != ctx);
    }

    /// `Ok` if these bytes lie in memory that is open.
    fn check(&self, address: u64, bytes: usize) -> Result<(), CUresult> {
        let (base, (len, _)) = self.open.range(..=address).next_back().ok_or(INVALID)?;
        let offset = address - base;
        let inside = offset < *len && bytes as u64 <= len - offset;
        if inside { Ok(()) } else { Err(INVALID) }
    }

    /// Writes the words of `data` that `mask` names, each whole: kernels may look at them meanwhile.
    pub(crate) fn write(&self, address: u64, mask: &[u8], data: &[u8]) -> Result<(), CUresult> {
        self.check(address, data.len())?;
        if mask.is_empty() {
            // SAFETY: checked to lie in pages of ours, which only this thread unmaps the last use of; others that look at them are kernels.
            unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), address as *mut u8, data.len()) };
            return Ok(());
        }
        if !address.is_multiple_of(WORD as u64) || mask.len() < data.len().div_ceil(WORD).div_ceil(8) {
            return Err(INVALID);
        }
        for (index, (words, bits)) in data.as_chunks::<WORD>().0.chunks(8).zip(mask).enumerate() {
            let at = (address + (index * 8 * WORD) as u64) as *mut [u8; WORD];
            match *bits {
                0 => {}
                // SAFETY: as above.
                u8::MAX => unsafe { core::ptr::copy_nonoverlapping(words.as_ptr(), at, words.len()) },
                bits => {
                    for (word, data) in words.iter().enumerate().filter(|(word, _)| bits >> word & 1 == 1) {
                        // SAFETY: as above, and aligned.
                        unsafe { at.cast::<u32>().add(word).write_volatile(u32::from_ne_bytes(*data)) };
                    }
                }
            }
        }
        Ok(())
    }

    /// The bytes as they are now.
    pub(crate) fn read(&self, address: u64, bytes: usize) -> Result<Vec<u8>, CUresult> {
        self.read_all(&[(UnifiedPtr(address), bytes as u32)], bytes)
    }

    /// The bytes of several places, one after the other, if they are at most so many.
    pub(crate) fn read_all(&self, places: &[(UnifiedPtr, u32)], most: usize) -> Result<Vec<u8>, CUresult> {
        let mut total = 0usize;
        for (address, bytes) in places {
            self.check(address.0, *bytes as usize)?;
            total = total.checked_add(*bytes as usize).filter(|total| *total <= most).ok_or(INVALID)?;
        }
        let mut data = Vec::<u8>::with_capacity(total);
        for (address, bytes) in places {
            let (len, bytes) = (data.len(), *bytes as usize);
            // SAFETY: checked as for `write`; the vector has room for the bytes, which are then there.
            unsafe {
                core::ptr::copy_nonoverlapping(address.host().pointer::<u8>(), data.as_mut_ptr().add(len), bytes);
                data.set_len(len + bytes);
            }
        }
        Ok(data)
    }
}

/// Maps pages where nothing else is, and gives them to the device under the same addresses.
fn map(table: &Table, addresses: &Reserved, run: &Range<u64>, source: Pages<'_>) -> Result<(), CUresult> {
    addresses.take(run.clone()).map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)?;
    let (at, bytes) = (run.start as *mut c_void, (run.end - run.start) as usize);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the addresses were taken for this.
    let mapped = unsafe {
        match source {
            Pages::Own => mmap_anonymous(at, bytes, access, MapFlags::PRIVATE | MapFlags::FIXED),
            Pages::Of(file, offset) => mmap(at, bytes, access, MapFlags::SHARED | MapFlags::FIXED, file, offset),
        }
    };
    let outcome = mapped.map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED).and_then(|_| register(table, at, bytes));
    if outcome.is_err() {
        // SAFETY: mapped above; the driver does not have it.
        unsafe { addresses.give_back(run.start) };
    }
    outcome
}

fn register(table: &Table, at: *mut c_void, bytes: usize) -> Result<(), CUresult> {
    call!(table, cuMemHostRegister_v2(at, bytes, FLAGS))?;
    let mut device = 0;
    let outcome = call!(table, cuMemHostGetDevicePointer_v2(&raw mut device, at, 0));
    if outcome.is_ok() && device == at as u64 {
        return Ok(());
    }
    let _ = call!(table, cuMemHostUnregister(at));
    outcome.and(Err(CUresult::CUDA_ERROR_NOT_SUPPORTED))
}

/// Gives pages back that the device is done with.
pub(crate) fn unmap(table: &Table, unused: &Unused) {
    for run in &unused.runs {
        if call!(table, cuMemHostUnregister(run.start as *mut c_void)).is_ok() {
            // SAFETY: our mapping, which the driver has let go of and no client's range uses.
            unsafe { unused.addresses.give_back(run.start) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_shared_by_ranges_and_nothing_else_can_be_named() {
        let mut mapped = Mapped::default();
        mapped.runs.insert(0x10000, (0x2000, 1));
        mapped.bytes = 0x2000;
        mapped.open.insert(0x10800, (0x1000, ContextId(1)));
        assert_eq!(mapped.missing(&(0xf000..0x14000)), [0xf000..0x10000, 0x12000..0x14000]);
        assert_eq!(mapped.missing(&(0x10000..0x11000)), []);
        assert_eq!(mapped.missing(&(0x11000..0x13000)), std::slice::from_ref(&(0x12000..0x13000)));
        assert!(mapped.check(0x10800, 0x1000).is_ok());
        for (address, bytes) in [(0x10800, 0x1001), (0x10700, 1), (0x11800, 1), (0x10fff, usize::MAX), (0, 1)] {
            assert!(mapped.check(address, bytes).is_err(), "{address:#x} {bytes:#x}");
        }
        assert!(mapped.close(0x10800, 1).is_err() && mapped.close(0x10000, 0x1000).is_err());
        assert_eq!(mapped.take_unused().runs, []);
        mapped.close(0x10800, 0x1000).unwrap();
        assert!(mapped.check(0x10800, 1).is_err());
        assert_eq!(mapped.take_unused().runs, std::slice::from_ref(&(0x10000..0x12000)));
        assert_eq!((mapped.take_unused().runs, mapped.bytes), (Vec::new(), 0));
        for (address, bytes) in [(0, 10), (100, 10), (0x1000, 0), (u64::MAX - 10, 100), (u64::MAX - 10, 5)] {
            assert!(pages(address, bytes).is_err(), "{address:#x} {bytes:#x}");
        }
    }

    #[test]
    fn pages_that_were_kept_are_zeros_when_they_are_opened_again() {
        // SAFETY: no function is found, so that none is called.
        let table = unsafe { Table::load(|_| core::ptr::null()) };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe { mmap_anonymous(core::ptr::null_mut(), 0x1000, access, MapFlags::PRIVATE) }.unwrap();
        let address = memory as u64;
        let mut mapped = Mapped::default();
        mapped.runs.insert(address, (0x1000, 1));
        mapped.open.insert(address, (0x1000, ContextId(1)));
        mapped.write(address, &[], &[7; 8]).unwrap();
        mapped.close(address, 0x1000).unwrap();
        for _ in 0..2 {
            assert!(
                mapped.add(&table, ContextId(1), address, 0x1000, Pages::Own).unwrap().is_empty(),
                "no pages are made"
            );
            assert_eq!(mapped.read(address, 8).unwrap(), [0; 8]);
            mapped.write(address, &[], &[8; 8]).unwrap();
            mapped.close(address, 0x1000).unwrap();
        }
    }

    #[test]
    fn words_are_written_by_mask() {
        let memory = Box::new([0u32; 16]);
        let address = memory.as_ptr() as u64;
        let mut mapped = Mapped::default();
        mapped.open.insert(address, (64, ContextId(1)));
        mapped.write(address + 4, &[0b101], &[1; 12]).unwrap();
        assert_eq!(mapped.read(address, 20).unwrap(), [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0]);
        // Eight words whose bits are all set go together; those of the next eight do not.
        mapped.write(address + 16, &[0xff, 0b10], &[2; 40]).unwrap();
        assert_eq!(mapped.read(address + 12, 44).unwrap(), [&[1; 4][..], &[2; 32], &[0; 4], &[2; 4]].concat());
        mapped.write(address + 1, &[], &[9]).unwrap();
        assert_eq!(mapped.read(address, 2).unwrap(), [0, 9]);
        assert!(mapped.write(address + 2, &[1], &[1; 4]).is_err(), "words are aligned");
        assert!(mapped.write(address, &[1], &[1; 64]).is_err(), "a mask that is too short");
        assert!(mapped.write(address + 60, &[], &[1; 5]).is_err() && mapped.read(address, 65).is_err());
        assert_eq!(
            mapped.read_all(&[(UnifiedPtr(address + 20), 4), (UnifiedPtr(address), 2)], 6).unwrap(),
            [2, 2, 2, 2, 0, 9]
        );
        for (places, most) in [([(address, 4), (address + 60, 5)], 64), ([(address, 4), (address, 4)], 7)] {
            let places = places.map(|(address, bytes)| (UnifiedPtr(address), bytes));
            assert!(mapped.read_all(&places, most).is_err(), "{places:?}");
        }
    }
}
