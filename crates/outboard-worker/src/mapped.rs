//! Page-locked memory of the client's program that kernels use: this process maps pages at the same
//! addresses, which the device can access. They are either its own, and the client sends what its
//! program writes and fetches what kernels have written; or, for a client on this machine, they are
//! the client's, or those of files of its program.
//!
//! The client chooses the addresses, so they are mapped only where nothing else is, or where this
//! process has reserved them.

mod compared;
mod files;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_driver::{Table, call};
use outboard_ranges::RangeMap;
use outboard_transport::Memory;
use outboard_transport::page::page_bytes;
use outboard_transport::reserved::Reserved;
use outboard_wire::{ContextId, UnifiedPtr};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::bounds::Kind;
use super::budget::Pinned;
use files::Origin;

const WORD: usize = 4;
/// `CU_MEMHOSTREGISTER_PORTABLE` and `_DEVICEMAP`.
const FLAGS: u32 = 3;
const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// The session's mapped memory.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    /// The addresses that this process keeps from others, where it keeps any.
    addresses: Arc<Reserved>,
    /// The memory that the client has opened, with its context.
    open: RangeMap<u64, ContextId>,
    /// The pages below, by first address. Each run is registered with the driver as one.
    runs: BTreeMap<u64, Run>,
    /// What runs count for, by first address, if their pages are this process's own.
    pinned: BTreeMap<u64, Arc<Pinned>>,
    bytes: u64,
}

/// Pages that follow each other.
#[derive(Clone, Copy, Debug)]
struct Run {
    bytes: u64,
    /// How many of what is open use them.
    users: u32,
    /// The program's file and the offset of the pages, if they are of a file.
    origin: Option<Origin>,
}

/// Where pages come from.
#[derive(Clone, Copy)]
enum Pages<'a> {
    /// Fresh ones, zeroed.
    Own,
    /// Those of the session's file, from a byte on.
    Of(BorrowedFd<'a>, u64),
    /// Those of a file of the program.
    OfProgram(BorrowedFd<'a>, Origin),
}

/// Pages that are not in use any more.
pub(crate) struct Unused {
    runs: Vec<Range<u64>>,
    addresses: Arc<Reserved>,
    #[expect(dead_code, reason = "counts until they are gone")]
    pinned: Vec<Arc<Pinned>>,
}

fn pages(address: u64, bytes: u64) -> Result<Range<u64>, CUresult> {
    let end = address
        .checked_add(bytes)
        .and_then(|end| end.checked_next_multiple_of(page_bytes()))
        .ok_or(INVALID)?;
    let start = address & !(page_bytes() - 1);
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

    /// Gives the device pages under these addresses, zeroed, that count as `pinned`. The context is
    /// current.
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

    /// Gives the device the client's own pages under these addresses: those of its file from
    /// `offset` on. The context is current.
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
        // Beyond its end, the file has no pages; a part of a page of its own would be two memories
        // at once.
        let whole = range == (address..address + bytes) && offset.is_multiple_of(page_bytes());
        if !inside || !whole || self.missing(&range) != std::slice::from_ref(&range) {
            return Err(INVALID);
        }
        self.add(table, ctx, address, bytes, Pages::Of(memory.pinned(), offset)).map(drop)
    }

    /// Bytes from an address on that the driver knows as one, if they are pages of this: it refuses
    /// a copy of more.
    pub(crate) fn registered_from(&self, address: u64) -> Option<u64> {
        let (base, run) = self.runs.range(..=address).next_back()?;
        (base + run.bytes).checked_sub(address).filter(|bytes| *bytes > 0)
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
        if self.open.overlaps(address, bytes) {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        let origin = match source {
            Pages::OfProgram(_, origin) => Some(origin),
            Pages::Own | Pages::Of(..) => None,
        };
        // The program's bytes are not to be written over, and a page is one memory for all who use
        // it.
        if self.runs_in(&range).any(|(_, run)| run.origin != origin) {
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
                self.runs.insert(run.start, Run { bytes: run.end - run.start, users: 0, origin });
                run.start
            })
            .collect();
        for (base, run) in self.runs_in(&range) {
            if run.users == 0 && run.origin.is_none() && !made.contains(base) {
                // SAFETY: pages of ours, which nobody has: what was there before has been closed.
                unsafe { core::ptr::write_bytes(*base as *mut u8, 0, run.bytes as usize) };
            }
            run.users += 1;
        }
        self.bytes += more;
        self.open.insert(address, bytes, ctx);
        Ok(made)
    }

    /// The pages of a range that no run has.
    fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start;
        let before = self.runs.range(..range.start).next_back();
        for (base, run) in before.into_iter().chain(self.runs.range(range.clone())) {
            if *base > at {
                missing.push(at..*base);
            }
            at = at.max(base + run.bytes);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    fn runs_in(&mut self, range: &Range<u64>) -> impl Iterator<Item = (&u64, &mut Run)> {
        let (start, end) = (range.start, range.end);
        self.runs.range_mut(..end).filter(move |(base, run)| **base + run.bytes > start)
    }

    /// Forgets what was opened at an address. Its pages stay until [`Mapped::take_unused`].
    pub(crate) fn close(&mut self, address: u64, bytes: u64) -> Result<(), CUresult> {
        if self.open.get(address).is_none_or(|(len, _)| len != bytes) {
            return Err(INVALID);
        }
        let range = pages(address, bytes)?;
        self.open.remove(address);
        for (_, run) in self.runs_in(&range) {
            run.users -= 1;
        }
        Ok(())
    }

    /// Whether there are pages that are not in use.
    pub(crate) fn has_unused(&self) -> bool {
        self.runs.values().any(|run| run.users == 0)
    }

    /// Pages that are not in use. Pass them to [`unmap`] once the device is done with them.
    pub(crate) fn take_unused(&mut self) -> Unused {
        let unused: Vec<_> = self
            .runs
            .extract_if(.., |_, run| run.users == 0)
            .map(|(base, run)| base..base + run.bytes)
            .collect();
        self.bytes -= unused.iter().map(|run| run.end - run.start).sum::<u64>();
        let counted = unused.iter().filter_map(|run| self.pinned.remove(&run.start)).collect();
        self.unused(unused, counted)
    }

    fn unused(&self, runs: Vec<Range<u64>>, pinned: Vec<Arc<Pinned>>) -> Unused {
        Unused { runs, addresses: Arc::clone(&self.addresses), pinned }
    }

    /// Forgets the memory of a context that is gone, which a client of ours has closed before. Its
    /// pages stay: the driver may still know them.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        self.open.retain(|_, _, owner| *owner != ctx);
    }

    /// Gives all pages back, as the end of the process does elsewhere.
    #[cfg(fuzzing)]
    pub(crate) fn give_back(&mut self) {
        for base in std::mem::take(&mut self.runs).into_keys() {
            // SAFETY: our mapping, which no device uses.
            unsafe { self.addresses.give_back(base) };
        }
    }

    /// `Ok` if these bytes lie in memory that is open.
    fn check(&self, address: u64, bytes: usize) -> Result<(), CUresult> {
        let (base, len, _) = self.open.find(address).ok_or(INVALID)?;
        if bytes as u64 <= len - (address - base) { Ok(()) } else { Err(INVALID) }
    }

    /// Writes the words of `data` that `mask` names, each whole: kernels may look at them
    /// meanwhile.
    pub(crate) fn write(&self, address: u64, mask: &[u8], data: &[u8]) -> Result<(), CUresult> {
        self.check(address, data.len())?;
        if mask.is_empty() {
            // SAFETY: checked to lie in pages of ours, which only this thread unmaps the last use
            // of; others that look at them are kernels.
            unsafe {
                core::ptr::copy_nonoverlapping(data.as_ptr(), address as *mut u8, data.len())
            };
            return Ok(());
        }
        if !address.is_multiple_of(WORD as u64)
            || mask.len() < data.len().div_ceil(WORD).div_ceil(8)
        {
            return Err(INVALID);
        }
        for (index, (words, bits)) in data.as_chunks::<WORD>().0.chunks(8).zip(mask).enumerate() {
            let at = (address + (index * 8 * WORD) as u64) as *mut [u8; WORD];
            match *bits {
                0 => {}
                // SAFETY: as above.
                u8::MAX => unsafe {
                    core::ptr::copy_nonoverlapping(words.as_ptr(), at, words.len())
                },
                bits => {
                    for (word, data) in
                        words.iter().enumerate().filter(|(word, _)| bits >> word & 1 == 1)
                    {
                        // SAFETY: as above, and aligned.
                        unsafe {
                            at.cast::<u32>().add(word).write_volatile(u32::from_ne_bytes(*data))
                        };
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
    pub(crate) fn read_all(
        &self,
        places: &[(UnifiedPtr, u32)],
        most: usize,
    ) -> Result<Vec<u8>, CUresult> {
        let mut total = 0usize;
        for (address, bytes) in places {
            self.check(address.0, *bytes as usize)?;
            total =
                total.checked_add(*bytes as usize).filter(|total| *total <= most).ok_or(INVALID)?;
        }
        let mut data = Vec::<u8>::with_capacity(total);
        for (address, bytes) in places {
            let (len, bytes) = (data.len(), *bytes as usize);
            // SAFETY: checked as for `write`; the vector has room for the bytes, which are then
            // there.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    address.host().pointer::<u8>(),
                    data.as_mut_ptr().add(len),
                    bytes,
                );
                data.set_len(len + bytes);
            }
        }
        Ok(data)
    }
}

/// Maps pages where nothing else is, and gives them to the device under the same addresses.
fn map(
    table: &Table,
    addresses: &Reserved,
    run: &Range<u64>,
    source: Pages<'_>,
) -> Result<(), CUresult> {
    addresses.take(run.clone()).map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)?;
    let (at, bytes) = (run.start as *mut c_void, (run.end - run.start) as usize);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the addresses were taken for this.
    let mapped = unsafe {
        match source {
            Pages::Own => mmap_anonymous(at, bytes, access, MapFlags::PRIVATE | MapFlags::FIXED),
            Pages::Of(file, offset) => {
                mmap(at, bytes, access, MapFlags::SHARED | MapFlags::FIXED, file, offset)
            }
            Pages::OfProgram(file, origin) => mmap(
                at,
                bytes,
                access,
                MapFlags::SHARED | MapFlags::FIXED,
                file,
                origin.offset(run.start),
            ),
        }
    };
    let outcome = mapped
        .map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)
        .and_then(|_| register(table, at, bytes));
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
mod tests;
