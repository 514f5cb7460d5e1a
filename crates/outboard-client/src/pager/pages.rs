//! Pages that the program and this library see at the same time: the program through protected
//! pages at a given address, the library through pages of its own that are always open.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::null_mut;

use outboard_transport::page::present;
use outboard_transport::reserved::Reserved;
use outboard_transport::segment::set_size;
use outboard_wire::HostPtr;
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous,
    mprotect, mremap_fixed, munmap,
};

pub(crate) use outboard_transport::page::page_bytes;

use super::watch::{Watch, watch};

/// Bytes of a page of the machines on which tests run.
#[cfg(test)]
pub(crate) const PAGE: u64 = 4096;

/// What is looked at at once where a part of a page may do: pages have a multiple of it.
const BLOCK: usize = 4096;

/// Which accesses the program may make to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing: every touch is noticed.
    None,
    /// Reading; writes are noticed.
    Read,
    /// Everything; nothing is noticed.
    Write,
    /// As `Write`, of pages that need not be there yet: a touch makes them.
    New,
}

impl Access {
    pub(super) fn allows(self, write: bool) -> bool {
        match self {
            Access::None => false,
            Access::Read => !write,
            Access::Write | Access::New => true,
        }
    }
}

/// Memory of the library alone, without backing until touched.
#[derive(Debug)]
pub(super) struct Own {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory; who uses it holds the pager's lock.
unsafe impl Send for Own {}

impl Own {
    /// Zeroed memory.
    pub(super) fn zeroed(bytes: usize) -> io::Result<Own> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        Ok(Own { base: base.cast(), bytes })
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.bytes);
        self.base.wrapping_add(offset)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: this value made the mapping, and nobody has its addresses any more.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}

/// Memory with two views.
#[derive(Debug)]
pub(super) struct Shared {
    /// The file of the pages, which says which of them there are. A program may have limits that
    /// leave no room for one: then only the two views name the pages.
    file: Option<OwnedFd>,
    /// Where in the file its first byte is.
    offset: u64,
    /// Whether the file was the program's view before, whose pages others have, too.
    is_lent: bool,
    inner: Own,
    outer: HostPtr,
    bytes: usize,
    /// Of whom the outer view's addresses were taken, and are given back with this value; if of
    /// nobody, whoever owns them puts something else there.
    taken: Option<&'static Reserved>,
    /// What notices touches of the outer view, if protections do not.
    watch: Option<&'static Watch>,
}

impl Shared {
    /// Memory whose outer view, open to begin with, takes addresses that are reserved, or that
    /// nothing has.
    pub(super) fn new_at(
        outer: HostPtr,
        bytes: usize,
        reserved: &'static Reserved,
    ) -> io::Result<Shared> {
        let mut shared = Shared::hidden(outer, bytes)?;
        reserved
            .take(outer.0..outer.0.checked_add(bytes as u64).ok_or(io::ErrorKind::InvalidInput)?)?;
        shared.taken = Some(reserved);
        shared.map()?;
        shared.keep_from_children();
        Ok(shared)
    }

    /// Memory that is not in its place yet: [`Shared::show`] puts it there.
    pub(super) fn hidden(outer: HostPtr, bytes: usize) -> io::Result<Shared> {
        // No descriptor is free, or files may not be that large.
        let file = memory_file(bytes as u64).ok();
        Shared::of(file, outer, bytes)
    }

    fn of(file: Option<OwnedFd>, outer: HostPtr, bytes: usize) -> io::Result<Shared> {
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice, of pages that nobody else
        // has.
        let inner = unsafe {
            match &file {
                Some(file) => mmap(null_mut(), bytes, access, flags, file, 0),
                None => mmap_anonymous(null_mut(), bytes, access, flags),
            }
        }?;
        let inner = Own { base: inner.cast(), bytes };
        let (offset, is_lent, taken, watch) = (0, false, None, watch());
        Ok(Shared { file, offset, is_lent, inner, outer, bytes, taken, watch })
    }

    /// As [`Shared::hidden`], with a copy of what the program has there.
    ///
    /// # Safety
    /// The program's pages are readable.
    pub(super) unsafe fn copy_of(outer: HostPtr, bytes: usize) -> io::Result<Shared> {
        let memory = Shared::hidden(outer, bytes)?;
        let zeros = [0u8; BLOCK];
        for at in (0..bytes).step_by(BLOCK) {
            // SAFETY: by the contract above. The pages may be written to until they are protected,
            // which the caller has done.
            let block = unsafe {
                std::slice::from_raw_parts(outer.offset(at as u64).pointer::<u8>(), BLOCK)
            };
            if block != zeros {
                // SAFETY: the view has that many bytes.
                unsafe { memory.inner(at).copy_from_nonoverlapping(block.as_ptr(), block.len()) };
            }
        }
        Ok(memory)
    }

    /// A further view of what the program has there: pages of a file from `offset` on.
    pub(super) fn view_of(
        outer: HostPtr,
        bytes: usize,
        file: OwnedFd,
        offset: u64,
    ) -> io::Result<Shared> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let inner = unsafe { mmap(null_mut(), bytes, access, flags, &file, offset) }?;
        let inner = Own { base: inner.cast(), bytes };
        // The file may be of any file system.
        let watch = watch().filter(|watch| watch.takes(outer, bytes));
        let (file, is_lent, taken) = (Some(file), true, None);
        Ok(Shared { file, offset, is_lent, inner, outer, bytes, taken, watch })
    }

    /// Puts the outer view, open, in the place of what is there.
    ///
    /// # Safety
    /// The addresses belong to memory of which the inner view has a copy, and nobody writes to it
    /// meanwhile.
    pub(super) unsafe fn show(&mut self) -> io::Result<()> {
        self.map()
    }

    fn map(&mut self) -> io::Result<()> {
        // Shared pages of which no byte is moved are mapped once more. That takes neither a file
        // nor a descriptor.
        let (none, flags) = (0, MremapFlags::MAYMOVE);
        // SAFETY: the inner view stays. Either the outer addresses were taken for this (`new_at`),
        // or the caller of `show` answers for what is there.
        unsafe {
            mremap_fixed(self.inner(0).cast(), none, self.bytes, flags, self.outer.pointer())
        }?;
        Ok(())
    }

    /// Forked children do not get the outer view, as they do not get the native driver's.
    pub(super) fn keep_from_children(&self) {
        // SAFETY: the range is this value's own mapping, whose contents the advice leaves alone.
        let _ = unsafe { madvise(self.outer.pointer(), self.bytes, Advice::LinuxDontFork) };
    }

    /// Address of the library's view of the byte at `offset`.
    pub(super) fn inner(&self, offset: usize) -> *mut u8 {
        self.inner.at(offset)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes what the program may do with a range of bytes, whole pages: all of it `from` one
    /// access. If that is what it may already do, pages get it that the system has taken out of
    /// the program's view.
    pub(super) fn change(&self, range: &Range<usize>, from: Access, to: Access) -> io::Result<()> {
        let (address, bytes) = (self.outer.offset(range.start as u64), range.len());
        match self.watch {
            Some(watch) => watch.change((address, bytes), from, to, self.inner(range.start)),
            None => protect(address, bytes, to),
        }
    }

    /// The program may do nothing with a range of bytes, whole pages, whatever it could so far.
    pub(super) fn close(&self, range: &Range<usize>) -> io::Result<()> {
        self.change(range, Access::New, Access::None)
    }

    /// Whether it is known of each touch that is noticed if it is a write.
    pub(super) fn tells_writes(&self) -> bool {
        self.watch.is_some()
    }

    /// The parts of a range, whole pages, that may have been touched.
    pub(super) fn touched(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        match &self.file {
            Some(file) => self.data(file, range),
            None => present(self.inner(range.start) as u64, range.len())
                .into_iter()
                .map(|part| range.start + part.start..range.start + part.end)
                .collect(),
        }
    }

    /// The parts of which the file has data.
    fn data(&self, file: &OwnedFd, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let (mut at, last) = (self.offset + range.start as u64, self.offset + range.end as u64);
        while at < last {
            // An error says that there is no data from here on.
            let Ok(start) = seek(file, SeekFrom::Data(at)) else { break };
            let end = seek(file, SeekFrom::Hole(start)).unwrap_or(last).min(last);
            if start >= end {
                break;
            }
            found.push((start - self.offset) as usize..(end - self.offset) as usize);
            at = end;
        }
        found
    }

    /// The program's addresses are its own again, open, with the bytes that are here: private
    /// memory takes the place of the outer view, unless the pages were the program's before.
    pub(super) fn give_back(&mut self) -> io::Result<()> {
        let all = 0..self.bytes;
        if self.is_lent {
            return self.change(&all, Access::None, Access::New);
        }
        self.change(&all, Access::New, Access::Read)?;
        let copy = Own::zeroed(self.bytes)?;
        for part in self.touched(&all) {
            // SAFETY: both have these bytes, and nobody can write to either.
            unsafe {
                copy.at(part.start).copy_from_nonoverlapping(self.inner(part.start), part.len())
            };
        }
        let (bytes, flags) = (self.bytes, MremapFlags::MAYMOVE);
        // SAFETY: the new mapping takes the place of the outer view, whose bytes it has.
        unsafe { mremap_fixed(copy.base.cast(), bytes, bytes, flags, self.outer.pointer()) }?;
        // The mapping has moved: what it was is not there any more.
        std::mem::forget(copy);
        Ok(())
    }

    /// Gives the contents of a range back; it reads as zeros afterwards.
    pub(super) fn clear(&self, range: &Range<usize>) {
        let at = self.inner(range.start);
        // SAFETY: the inner view's own bytes.
        if unsafe { madvise(at.cast(), range.len(), Advice::LinuxRemove) }.is_err() {
            // Pages that the program has locked (`mlockall`) stay.
            for part in self.touched(range) {
                // SAFETY: as above.
                unsafe { self.inner(part.start).write_bytes(0, part.len()) };
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(reserved) = self.taken {
            // SAFETY: `new_at` has taken the addresses, and the program has given the memory back.
            unsafe { reserved.give_back(self.outer.0) };
        }
    }
}

/// A file of so many bytes that take memory only where they are written.
fn memory_file(bytes: u64) -> io::Result<OwnedFd> {
    let file = memfd_create(c"outboard", MemfdFlags::CLOEXEC)?;
    set_size(file.as_fd(), bytes)?;
    Ok(file)
}

/// Sets what the program may do with whole pages of its memory.
pub(super) fn protect(address: HostPtr, bytes: usize, access: Access) -> io::Result<()> {
    let flags = match access {
        Access::None => MprotectFlags::empty(),
        Access::Read => MprotectFlags::READ,
        Access::Write | Access::New => MprotectFlags::READ | MprotectFlags::WRITE,
    };
    // SAFETY: the pages are of memory that the pager tracks, whose faults it resolves.
    unsafe { mprotect(address.pointer(), bytes, flags) }.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use rustix::system::sysinfo;

    use super::*;

    /// Where the tests' pages are, with room for `pages` of them: the program's memory.
    fn program(pages: usize) -> Own {
        Own::zeroed(pages * page_bytes() as usize).unwrap()
    }

    /// Pages with and without a file behind them behave alike.
    fn both(check: impl Fn(&mut Shared)) {
        const PAGES: usize = 16;
        for with_file in [true, false] {
            let place = program(PAGES);
            let bytes = place.bytes;
            let file = with_file.then(|| memory_file(bytes as u64).unwrap());
            let mut shared = Shared::of(file, HostPtr::of(place.at(0)), bytes).unwrap();
            // SAFETY: the place is the test's own, and empty.
            unsafe { shared.show() }.unwrap();
            check(&mut shared);
        }
    }

    /// The program's view of a page, as its first word.
    fn outer(shared: &Shared, page: usize) -> *mut u32 {
        shared.outer.offset(page as u64 * page_bytes()).pointer()
    }

    fn pages(range: Range<usize>) -> Range<usize> {
        let page = page_bytes() as usize;
        range.start * page..range.end * page
    }

    #[test]
    fn both_views_have_the_same_bytes() {
        both(|shared| {
            // SAFETY: both views are mapped and open.
            unsafe {
                outer(shared, 3).write_volatile(7);
                assert_eq!(shared.inner(pages(3..4).start).cast::<u32>().read_volatile(), 7);
                shared.inner(pages(4..5).start).cast::<u32>().write_volatile(8);
                assert_eq!(outer(shared, 4).read_volatile(), 8);
            }
            shared.close(&pages(0..16)).unwrap();
            // SAFETY: the inner view stays open.
            assert_eq!(unsafe { shared.inner(pages(4..5).start).read_volatile() }, 8);
        });
    }

    /// What was touched in a system of which nothing is swapped out.
    #[test]
    fn pages_that_were_touched_are_known_until_they_are_cleared() {
        both(|shared| {
            // SAFETY: the views are mapped and open.
            unsafe {
                for page in [1, 2, 9] {
                    outer(shared, page).write_volatile(page as u32);
                }
            }
            let touched = shared.touched(&pages(0..16));
            let system = sysinfo();
            if shared.file.is_none() && system.freeswap < system.totalswap {
                assert_eq!(touched, [pages(0..16)]);
            } else {
                assert_eq!(touched, [pages(1..3), pages(9..10)]);
                assert_eq!(shared.touched(&pages(2..9)), [pages(2..3)]);
            }
            shared.clear(&pages(0..8));
            // SAFETY: as above.
            let word = |page| unsafe { outer(shared, page).read_volatile() };
            assert_eq!([1, 2, 9].map(word), [0, 0, 9]);
        });
    }

    #[test]
    fn the_program_gets_its_bytes_back() {
        both(|shared| {
            // SAFETY: the views are mapped and open.
            unsafe { outer(shared, 5).write_volatile(11) };
            shared.give_back().unwrap();
            // SAFETY: private memory is there now.
            unsafe {
                assert_eq!(
                    [outer(shared, 5).read_volatile(), outer(shared, 6).read_volatile()],
                    [11, 0]
                );
                outer(shared, 5).write_volatile(12);
                assert_eq!(shared.inner(pages(5..6).start).cast::<u32>().read_volatile(), 11);
            }
        });
    }
}
