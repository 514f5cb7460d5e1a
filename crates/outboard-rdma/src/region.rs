//! Memory that an adapter may read and write.

use std::ffi::c_int;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::device::Device;
use crate::error::Error;
use crate::ffi;
use crate::library::locked_memory_limit;

/// A protection domain: memory and queue pairs of one domain know each other, and no others.
pub struct Domain {
    pub(crate) device: Arc<Device>,
    pub(crate) domain: NonNull<ffi::Domain>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Domain {}
// SAFETY: and by several at once.
unsafe impl Sync for Domain {}

impl Domain {
    /// A new one.
    ///
    /// # Errors
    /// Why the library makes none.
    pub fn create(device: &Arc<Device>) -> Result<Arc<Domain>, Error> {
        // SAFETY: the device is open.
        let domain = unsafe { (device.library.ibv_alloc_pd)(device.context.as_ptr()) };
        let domain = device.made("ibv_alloc_pd", domain)?;
        Ok(Arc::new(Domain { device: Arc::clone(device), domain }))
    }

    /// Whether memory of the program can be [lent](Borrowed): its children need theirs.
    ///
    /// # Errors
    /// [`Error::LostAtFork`].
    pub fn check_forks(&self) -> Result<(), Error> {
        if self.device.library.children_get_copies { Ok(()) } else { Err(Error::LostAtFork) }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: the library made it, and what is in it keeps it alive.
        unsafe { (self.device.library.ibv_dealloc_pd)(self.domain.as_ptr()) };
    }
}

/// Who may do what with a region, besides this process and its own queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nobody else.
    Own,
    /// Who has the region's key may write there.
    RemoteWrite,
    /// Who has the region's key may read and write there.
    RemoteReadWrite,
}

impl Access {
    /// The flags of verbs for what peers may do.
    pub(crate) fn of_peers(self) -> u32 {
        match self {
            Access::Own => 0,
            Access::RemoteWrite => ffi::IBV_ACCESS_REMOTE_WRITE,
            Access::RemoteReadWrite => ffi::IBV_ACCESS_REMOTE_WRITE | ffi::IBV_ACCESS_REMOTE_READ,
        }
    }
}

/// Memory that an adapter knows, until this is dropped.
struct Registration {
    domain: Arc<Domain>,
    region: NonNull<ffi::Region>,
    start: u64,
    bytes: usize,
    access: Access,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Registration {}
// SAFETY: and by several at once.
unsafe impl Sync for Registration {}

impl Registration {
    /// # Safety
    /// The memory stays mapped until the adapter has forgotten it.
    unsafe fn create(
        domain: &Arc<Domain>,
        start: *mut u8,
        bytes: usize,
        access: Access,
    ) -> Result<Registration, Error> {
        let flags = (ffi::IBV_ACCESS_LOCAL_WRITE | access.of_peers()) as c_int;
        // SAFETY: by the contract above.
        let region = unsafe {
            (domain.device.library.ibv_reg_mr)(domain.domain.as_ptr(), start.cast(), bytes, flags)
        };
        let region = domain.device.made("ibv_reg_mr", region).map_err(|error| match error {
            Error::Call { errno: libc::ENOMEM | libc::EPERM | libc::EAGAIN, .. }
                if locked_memory_limit() != u64::MAX =>
            {
                Error::LockedMemory { needed: bytes as u64, limit: locked_memory_limit() }
            }
            other => other,
        })?;
        Ok(Registration { domain: Arc::clone(domain), region, start: start as u64, bytes, access })
    }

    /// Memory of another device, as [`Borrowed::of_dma_buf`] says.
    fn of_dma_buf(
        domain: &Arc<Domain>,
        (buffer, offset): (BorrowedFd<'_>, u64),
        (start, bytes): (u64, usize),
        access: Access,
    ) -> Result<Registration, Error> {
        let register = domain.device.library.register_dma_buf.ok_or(Error::NoDmaBuf)?;
        let flags = (ffi::IBV_ACCESS_LOCAL_WRITE | access.of_peers()) as c_int;
        let (pd, fd) = (domain.domain.as_ptr(), buffer.as_raw_fd());
        // SAFETY: the domain is there, the descriptor is open, and the kernel checks the rest.
        let region = unsafe { register(pd, offset, bytes, start, fd, flags) };
        let region = domain.device.made("ibv_reg_dmabuf_mr", region)?;
        Ok(Registration { domain: Arc::clone(domain), region, start, bytes, access })
    }

    /// Has the adapter forget the memory.
    fn end(&self) -> Result<(), Error> {
        // SAFETY: the library made it, and whoever calls this does so once.
        let result = unsafe { (self.domain.device.library.ibv_dereg_mr)(self.region.as_ptr()) };
        self.domain.device.check("ibv_dereg_mr", result)
    }

    fn remote(&self) -> Option<Remote> {
        // SAFETY: the library's structure lives as long as this value.
        let rkey = unsafe { self.region.as_ref() }.rkey;
        (self.access != Access::Own).then_some(Remote { address: self.start, rkey })
    }

    /// # Panics
    /// If the piece reaches beyond the end.
    fn piece(&self, offset: usize, bytes: usize) -> ffi::Piece {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "beyond the region");
        // SAFETY: the library's structure lives as long as this value.
        let lkey = unsafe { self.region.as_ref() }.lkey;
        ffi::Piece { addr: self.start + offset as u64, length: bytes as u32, lkey }
    }
}

/// Pages of this process that an adapter knows. A forked child does not have them.
pub struct Region {
    registration: Registration,
    /// None once they are lost to an adapter that does not forget them.
    memory: Option<Pages>,
}

// SAFETY: plain memory, which the adapter uses at the same time anyway: it is only copied from and
// to, and what is copied is examined afterwards.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A new one of so many bytes, filled with zeros.
    ///
    /// # Errors
    /// [`Error::LockedMemory`] if the process may not lock so much, or why it cannot be had.
    pub fn create(domain: &Arc<Domain>, bytes: usize, access: Access) -> Result<Region, Error> {
        let memory = Pages::map(bytes).map_err(|errno| domain.error("mmap", errno))?;
        let start = memory.start.as_ptr();
        // SAFETY: the pages are this value's own, and stay until the adapter has forgotten them.
        let registration = unsafe { Registration::create(domain, start, bytes, access) }?;
        Ok(Region { registration, memory: Some(memory) })
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.registration.bytes
    }

    /// Who may do what with it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.registration.access
    }

    /// Copies bytes into it, where the adapter does not read at the moment.
    ///
    /// # Panics
    /// If they reach beyond its end.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let at = self.piece(offset, bytes.len()).addr as *mut u8;
        // SAFETY: the range lies in these pages, which no Rust reference points to.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out of it. The peer may write there meanwhile, which makes them wrong.
    ///
    /// # Panics
    /// If they reach beyond its end.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let at = self.piece(offset, bytes.len()).addr as *const u8;
        // SAFETY: as in `write`.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(at, bytes.len()) };
    }

    /// What a peer that may use it needs to know: where it is, and by which key. None if no peer
    /// may.
    #[must_use]
    pub fn remote(&self) -> Option<Remote> {
        self.registration.remote()
    }

    pub(crate) fn piece(&self, offset: usize, bytes: usize) -> ffi::Piece {
        self.registration.piece(offset, bytes)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.registration.end().is_err() {
            // The adapter may use the pages as long as the process lives.
            std::mem::forget(self.memory.take());
        }
    }
}

/// Memory of somebody else that an adapter knows.
pub struct Borrowed {
    registration: Registration,
    ended: bool,
}

impl Borrowed {
    /// Lends memory to the adapter. A forked child may not have it, unless the domain's
    /// [forks](Domain::check_forks) leave it there.
    ///
    /// # Safety
    /// The memory stays mapped until [`end`](Self::end) has succeeded, or what it returns else is
    /// dropped behind all queue pairs of the domain.
    ///
    /// # Errors
    /// [`Error::LockedMemory`] if the process may not lock so much, or why it cannot be done.
    pub unsafe fn create(
        domain: &Arc<Domain>,
        start: *mut u8,
        bytes: usize,
        access: Access,
    ) -> Result<Borrowed, Error> {
        // SAFETY: by the contract above.
        let registration = unsafe { Registration::create(domain, start, bytes, access) }?;
        if domain.device.library.children_get_copies {
            give_to_children(start, bytes);
        }
        Ok(Borrowed { registration, ended: false })
    }

    /// Lends memory of another device, for which a *dma-buf* stands, a descriptor of the kernel's:
    /// `bytes` of it from `offset` on, which works name by the addresses from `start` on. The
    /// memory stays there while the adapter knows it.
    ///
    /// # Errors
    /// [`Error::NoDmaBuf`], or why the kernel or the adapter's driver refuses it.
    pub fn of_dma_buf(
        domain: &Arc<Domain>,
        (buffer, offset): (BorrowedFd<'_>, u64),
        (start, bytes): (u64, usize),
        access: Access,
    ) -> Result<Borrowed, Error> {
        let registration =
            Registration::of_dma_buf(domain, (buffer, offset), (start, bytes), access)?;
        Ok(Borrowed { registration, ended: false })
    }

    /// Its addresses.
    #[must_use]
    pub fn addresses(&self) -> Range<u64> {
        let start = self.registration.start;
        start..start + self.registration.bytes as u64
    }

    /// What a peer needs to know to use it from one of its addresses on; none if no peer may.
    #[must_use]
    pub fn remote(&self, address: u64) -> Option<Remote> {
        self.registration.remote().map(|remote| Remote { address, ..remote })
    }

    /// Has the adapter forget the memory: no key opens it any more.
    ///
    /// # Errors
    /// It, and why the adapter still knows the memory.
    pub fn end(mut self) -> Result<(), (Borrowed, Error)> {
        match self.registration.end() {
            Ok(()) => {
                self.ended = true;
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    /// In a forked child: forgets it without a word to the adapter, which the parent uses.
    pub fn abandon(mut self) {
        self.ended = true;
    }

    /// # Panics
    /// If the bytes at this address are not all in it.
    pub(crate) fn piece(&self, address: u64, bytes: usize) -> ffi::Piece {
        let offset = address.checked_sub(self.registration.start);
        self.registration.piece(offset.map_or(usize::MAX, |offset| offset as usize), bytes)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if !self.ended {
            // Whoever needs to know that it went well calls `end`.
            let _ = self.registration.end();
        }
    }
}

/// A child gets these pages. The library has left them out of children if somebody else in the
/// process, such as UCX, or a variable of the environment has it do so with all that is registered.
fn give_to_children(start: *mut u8, bytes: usize) {
    let page = rustix::param::page_size();
    let first = start.map_addr(|address| address - address % page);
    let whole = (start.addr() - first.addr() + bytes).next_multiple_of(page);
    // SAFETY: the pages of memory that is there, whose contents the advice leaves alone.
    let _ = unsafe { madvise(first.cast(), whole, Advice::LinuxDoFork) };
}

impl Domain {
    fn error(&self, call: &'static str, errno: rustix::io::Errno) -> Error {
        Error::Call { call, device: self.device.name().to_owned(), errno: errno.raw_os_error() }
    }
}

/// A place in the peer's memory, with the key to the region that it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The peer's address.
    pub address: u64,
    /// The key.
    pub rkey: u32,
}

struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

impl Pages {
    fn map(bytes: usize) -> Result<Pages, rustix::io::Errno> {
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new pages, wherever there is room.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, flags.0, flags.1) }?;
        let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        let pages = Pages { start, bytes };
        // SAFETY: the pages are this value's own. Without this, a kernel that does not copy pinned
        // pages at a fork would have the parent write into other pages than the adapter.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        Ok(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by this value, and nobody uses them any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
