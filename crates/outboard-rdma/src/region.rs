//! Memory that an adapter may read and write.

use std::ffi::c_int;
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
}

impl Access {
    pub(crate) fn flags(self) -> c_int {
        let flags = match self {
            Access::Own => ffi::IBV_ACCESS_LOCAL_WRITE,
            Access::RemoteWrite => ffi::IBV_ACCESS_LOCAL_WRITE | ffi::IBV_ACCESS_REMOTE_WRITE,
        };
        flags as c_int
    }
}

/// Pages of this process that an adapter knows. A forked child does not have them.
pub struct Region {
    domain: Arc<Domain>,
    memory: Pages,
    region: NonNull<ffi::Region>,
    access: Access,
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
        // SAFETY: the pages are this value's own, and stay until the region is gone.
        let region = unsafe {
            (domain.device.library.ibv_reg_mr)(
                domain.domain.as_ptr(),
                memory.start.as_ptr().cast(),
                bytes,
                access.flags(),
            )
        };
        let region = domain.device.made("ibv_reg_mr", region).map_err(|error| match error {
            Error::Call { errno: libc::ENOMEM | libc::EPERM | libc::EAGAIN, .. }
                if locked_memory_limit() != u64::MAX =>
            {
                Error::LockedMemory { needed: bytes as u64, limit: locked_memory_limit() }
            }
            other => other,
        })?;
        Ok(Region { domain: Arc::clone(domain), memory, region, access })
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Who may do what with it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Copies bytes into it, where the adapter does not read at the moment.
    ///
    /// # Panics
    /// If they reach beyond its end.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let at = self.at(offset, bytes.len());
        // SAFETY: the range lies in these pages, which no Rust reference points to.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out of it. The peer may write there meanwhile, which makes them wrong.
    ///
    /// # Panics
    /// If they reach beyond its end.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let at = self.at(offset, bytes.len());
        // SAFETY: as in `write`.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(at, bytes.len()) };
    }

    /// What who may write there needs to know: where, and by which key. None if nobody may.
    #[must_use]
    pub fn remote(&self) -> Option<Remote> {
        // SAFETY: the library's structure lives as long as this value.
        let rkey = unsafe { self.region.as_ref() }.rkey;
        let address = self.memory.start.as_ptr() as u64;
        (self.access == Access::RemoteWrite).then_some(Remote { address, rkey })
    }

    pub(crate) fn piece(&self, offset: usize, bytes: usize) -> ffi::Piece {
        let addr = self.at(offset, bytes) as u64;
        // SAFETY: the library's structure lives as long as this value.
        let lkey = unsafe { self.region.as_ref() }.lkey;
        ffi::Piece { addr, length: bytes as u32, lkey }
    }

    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.memory.bytes), "beyond the region");
        // SAFETY: the offset lies in the pages.
        unsafe { self.memory.start.as_ptr().add(offset) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the library made it, and queue pairs that use it keep it alive.
        unsafe { (self.domain.device.library.ibv_dereg_mr)(self.region.as_ptr()) };
    }
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
