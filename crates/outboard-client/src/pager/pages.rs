//! Pages that the program and this library see at the same time: the program through protected
//! pages at a given address, the library through pages of its own that are always open.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::null_mut;

use outboard_transport::reserved::Reserved;
use outboard_transport::segment::set_size;
use outboard_wire::HostPtr;
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};

pub(crate) use outboard_transport::page::page_bytes;

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
    file: OwnedFd,
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
        let file = memfd_create(c"outboard", MemfdFlags::CLOEXEC)?;
        set_size(file.as_fd(), bytes as u64)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that nobody else
        // has.
        let inner = unsafe {
            mmap(null_mut(), bytes, access, MapFlags::SHARED | MapFlags::NORESERVE, &file, 0)
        }?;
        let inner = Own { base: inner.cast(), bytes };
        Ok(Shared { file, offset: 0, is_lent: false, inner, outer, bytes, taken: None })
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
        Ok(Shared { file, offset, is_lent: true, inner, outer, bytes, taken: None })
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
        let (access, at) = (ProtFlags::READ | ProtFlags::WRITE, self.outer.pointer());
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: either the addresses were taken for this (`new_at`), or the caller of `show`
        // answers for what is there.
        unsafe { mmap(at, self.bytes, access, flags, &self.file, 0) }?;
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

    /// Sets what the program may do with a range of bytes, whole pages.
    pub(super) fn protect(&self, range: &Range<usize>, access: Access) -> io::Result<()> {
        protect(self.outer.offset(range.start as u64), range.len(), access)
    }

    /// The parts of a range that have ever been touched.
    pub(super) fn touched(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let (mut at, last) = (self.offset + range.start as u64, self.offset + range.end as u64);
        while at < last {
            // An error says that there is no data from here on.
            let Ok(start) = seek(&self.file, SeekFrom::Data(at)) else { break };
            let end = seek(&self.file, SeekFrom::Hole(start)).unwrap_or(last).min(last);
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
        if self.is_lent {
            return protect(self.outer, self.bytes, Access::Write);
        }
        protect(self.outer, self.bytes, Access::Read)?;
        let copy = Own::zeroed(self.bytes)?;
        for part in self.touched(&(0..self.bytes)) {
            // SAFETY: both have these bytes, and nobody can write to either.
            unsafe {
                copy.at(part.start).copy_from_nonoverlapping(self.inner(part.start), part.len())
            };
        }
        let flags = rustix::mm::MremapFlags::MAYMOVE;
        // SAFETY: the new mapping takes the place of the outer view, whose bytes it has.
        unsafe {
            rustix::mm::mremap_fixed(
                copy.base.cast(),
                self.bytes,
                self.bytes,
                flags,
                self.outer.pointer(),
            )
        }?;
        // The mapping has moved: what it was is not there any more.
        std::mem::forget(copy);
        Ok(())
    }

    /// Gives the contents of a range back; it reads as zeros afterwards.
    pub(super) fn clear(&self, range: &Range<usize>) {
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&self.file, flags, range.start as u64, range.len() as u64);
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

/// Sets what the program may do with whole pages of its memory.
pub(super) fn protect(address: HostPtr, bytes: usize, access: Access) -> io::Result<()> {
    let flags = match access {
        Access::None => MprotectFlags::empty(),
        Access::Read => MprotectFlags::READ,
        Access::Write => MprotectFlags::READ | MprotectFlags::WRITE,
    };
    // SAFETY: the pages are of memory that the pager tracks, whose faults it resolves.
    unsafe { mprotect(address.pointer(), bytes, flags) }.map_err(io::Error::from)
}
