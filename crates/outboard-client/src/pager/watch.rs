//! Pages that the kernel watches: a touch of a closed page is told over a descriptor
//! (`userfaultfd`) and the thread waits in the kernel, also in the midst of a system call. So there
//! are no signals, and system calls reach closed pages as threads do.
//!
//! This needs Linux 6.4 and the call itself, which some container runtimes forbid; for the system's
//! own touches also a right (`CAP_SYS_PTRACE`, `vm.unprivileged_userfaultfd` or
//! `/dev/userfaultfd`). Where it cannot be had, pages are protected and touches are signals
//! ([`fault`](super::fault)).

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use linux_raw_sys::general::{
    UFFD_API, UFFD_EVENT_PAGEFAULT, UFFD_FEATURE_MINOR_SHMEM, UFFD_FEATURE_MISSING_SHMEM,
    UFFD_FEATURE_WP_HUGETLBFS_SHMEM, UFFD_FEATURE_WP_UNPOPULATED, UFFD_PAGEFAULT_FLAG_WP,
    UFFD_PAGEFAULT_FLAG_WRITE, UFFD_USER_MODE_ONLY, UFFDIO_REGISTER_MODE_MINOR,
    UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, uffd_msg, uffdio_api, uffdio_continue,
    uffdio_range, uffdio_register, uffdio_writeprotect,
};
use linux_raw_sys::ioctl::{
    UFFDIO_API, UFFDIO_CONTINUE, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WAKE,
    UFFDIO_WRITEPROTECT,
};
use outboard_wire::{HostPtr, UnifiedPtr};
use rustix::mm::{Advice, UserfaultfdFlags, madvise, userfaultfd};

use super::fault;
use super::pages::{Access, page_bytes};

/// What has to be there. `WP_UNPOPULATED` is not used: it is as old as what
/// [`CONTINUE_PROTECTED`] asks for, which cannot be asked about.
const FEATURES: u32 = UFFD_FEATURE_MISSING_SHMEM
    | UFFD_FEATURE_MINOR_SHMEM
    | UFFD_FEATURE_WP_HUGETLBFS_SHMEM
    | UFFD_FEATURE_WP_UNPOPULATED;
/// Every touch of a page that is not mapped, and writes to protected ones.
const ALL_TOUCHES: u32 =
    UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
/// `UFFDIO_CONTINUE_MODE_WP`: the pages are mapped, and writes to them are told.
const CONTINUE_PROTECTED: u64 = 1 << 1;
/// `UFFDIO_CONTINUE_MODE_DONTWAKE`.
const CONTINUE_SILENTLY: u64 = 1;
/// `UFFDIO_WRITEPROTECT_MODE_WP`.
const PROTECT: u64 = 1;
/// `UFFDIO_WRITEPROTECT_MODE_DONTWAKE`.
const ALLOW_SILENTLY: u64 = 1 << 1;
/// `USERFAULTFD_IOC_NEW`, of the device.
const NEW: u32 = 0xaa << 8;
/// Touches that are read at once.
const TOUCHES: usize = 16;

/// The kernel's watch over pages of this process.
#[derive(Debug)]
pub(super) struct Watch {
    file: OwnedFd,
    /// Whether touches by the system itself wait, too.
    has_system_calls: bool,
}

/// A forked child has none: what it did would be done to its parent's pages.
static WATCH: OnceLock<Option<Watch>> = OnceLock::new();

/// The variable by which touches are signals all the same: with `signals`.
const VARIABLE: &str = "OUTBOARD_PAGE_TOUCHES";

/// The watch of this process, if the system lets it have one.
pub(super) fn watch() -> Option<&'static Watch> {
    let begin = || match std::env::var(VARIABLE) {
        Ok(how) if how == "signals" => None,
        _ => Watch::begin(),
    };
    WATCH.get_or_init(begin).as_ref()
}

/// Whether system calls reach pages that are watched.
pub(super) fn has_system_calls() -> bool {
    watch().is_some_and(|watch| watch.has_system_calls)
}

impl Watch {
    fn begin() -> Option<Watch> {
        let (file, has_system_calls) = descriptor()?;
        let watch = Watch { file, has_system_calls };
        let mut wanted = uffdio_api { api: UFFD_API.into(), features: FEATURES.into(), ioctls: 0 };
        watch.call(UFFDIO_API, &mut wanted).ok()?;
        outboard_threads::start("outboard-touches", serve).ok()?;
        Some(watch)
    }

    /// Whether pages of these addresses can be watched: those of memory files and of shared memory
    /// can.
    pub(super) fn takes(&self, address: HostPtr, bytes: usize) -> bool {
        self.register(address, bytes).is_ok() && self.unregister(address, bytes).is_ok()
    }

    /// Has other touches of shared pages wait than did so far. The library sees the same pages from
    /// `inner` on. Threads that wait already do so until [`Watch::wake`].
    pub(super) fn change(
        &self,
        (address, bytes): (HostPtr, usize),
        from: Access,
        to: Access,
        inner: *mut u8,
    ) -> io::Result<()> {
        match to {
            Access::New => return self.unregister(address, bytes),
            Access::None => {
                self.register(address, bytes)?;
                return unmap(address, bytes);
            }
            Access::Read if from == Access::New => self.register(address, bytes)?,
            Access::Write if from == Access::New => return Ok(()),
            Access::Read | Access::Write => {}
        }
        // What the system has taken out of the program's view is mapped when it is touched.
        if from == Access::None || from == to {
            self.map(address, bytes, to, inner)?;
        }
        if from == Access::None {
            return Ok(());
        }
        let mode = if to == Access::Read { PROTECT } else { ALLOW_SILENTLY };
        let mut order = uffdio_writeprotect { range: range(address, bytes), mode };
        self.call(UFFDIO_WRITEPROTECT, &mut order)
    }

    /// Threads that wait for the page of this address try again.
    pub(super) fn wake(&self, address: UnifiedPtr) -> io::Result<()> {
        let page = address.previous_multiple_of(page_bytes()).host();
        self.call(UFFDIO_WAKE, &mut range(page, page_bytes() as usize))
    }

    fn register(&self, address: HostPtr, bytes: usize) -> io::Result<()> {
        let (range, mode) = (range(address, bytes), ALL_TOUCHES.into());
        self.call(UFFDIO_REGISTER, &mut uffdio_register { range, mode, ioctls: 0 })
    }

    fn unregister(&self, address: HostPtr, bytes: usize) -> io::Result<()> {
        self.call(UFFDIO_UNREGISTER, &mut range(address, bytes))
    }

    /// Maps those pages that are not.
    fn map(&self, address: HostPtr, bytes: usize, to: Access, inner: *mut u8) -> io::Result<()> {
        let protected = if to == Access::Read { CONTINUE_PROTECTED } else { 0 };
        let mode = protected | CONTINUE_SILENTLY;
        let mut at = 0;
        while at < bytes {
            let range = range(address.offset(at as u64), bytes - at);
            let mut order = uffdio_continue { range, mode, mapped: 0 };
            let outcome = self.call(UFFDIO_CONTINUE, &mut order);
            match outcome {
                Ok(()) => break,
                // So many were mapped before one that could not be.
                Err(_) if order.mapped > 0 => at += order.mapped as usize,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EEXIST) => at += page_bytes() as usize,
                    // There is no such page yet: nobody has written to it.
                    Some(libc::EFAULT) => {
                        // SAFETY: the library's own view has so many bytes.
                        unsafe { inner.add(at).read_volatile() };
                    }
                    Some(libc::EAGAIN) => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn call<T>(&self, request: u32, order: &mut T) -> io::Result<()> {
        if fault::is_child() {
            return Ok(());
        }
        // SAFETY: each request is called with the structure that it reads and writes.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), request.into(), &raw mut *order) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// The descriptor, and whether touches by the system itself are told over it.
fn descriptor() -> Option<(OwnedFd, bool)> {
    let flags = UserfaultfdFlags::CLOEXEC;
    // SAFETY: it watches nothing yet.
    if let Ok(file) = unsafe { userfaultfd(flags) } {
        return Some((file, true));
    }
    if let Some(file) = of_the_device() {
        return Some((file, true));
    }
    let flags = flags | UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY);
    // SAFETY: as above.
    unsafe { userfaultfd(flags) }.ok().map(|file| (file, false))
}

/// One of the device that stands for the right to have it.
fn of_the_device() -> Option<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/userfaultfd").ok()?;
    // SAFETY: the request takes flags and returns a new descriptor.
    match unsafe { libc::ioctl(device.as_raw_fd(), NEW.into(), libc::O_CLOEXEC) } {
        -1 => None,
        // SAFETY: the new descriptor is nobody else's.
        file => Some(unsafe { OwnedFd::from_raw_fd(file) }),
    }
}

fn range(address: HostPtr, bytes: usize) -> uffdio_range {
    uffdio_range { start: address.0, len: bytes as u64 }
}

/// Takes pages out of the program's view; they stay in the library's.
fn unmap(address: HostPtr, bytes: usize) -> io::Result<()> {
    /// `MADV_DONTNEED_LOCKED`, for programs that have locked their memory (`mlockall`).
    const LOCKED: c_int = 24;
    // SAFETY: the pages are shared with the library's view, so that no byte is lost.
    if unsafe { madvise(address.pointer(), bytes, Advice::LinuxDontNeed) }.is_ok() {
        return Ok(());
    }
    // SAFETY: as above.
    match unsafe { libc::madvise(address.pointer(), bytes, LOCKED) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Passes on what the kernel tells, on a thread of its own.
fn serve() {
    // The watch may not be where others find it yet.
    let Some(watch) = watch() else { return };
    let mut told = [const { MaybeUninit::<uffd_msg>::uninit() }; TOUCHES];
    loop {
        // SAFETY: the buffer has that many bytes; a read fills the first of them.
        let read = unsafe {
            libc::read(watch.file.as_raw_fd(), told.as_mut_ptr().cast(), size_of_val(&told))
        };
        let Ok(read) = usize::try_from(read) else {
            if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return;
        };
        for message in &told[..read / size_of::<uffd_msg>()] {
            // SAFETY: the kernel has written it.
            let message = unsafe { message.assume_init_ref() };
            if u32::from(message.event) != UFFD_EVENT_PAGEFAULT {
                continue;
            }
            // SAFETY: the event says which of the forms it has.
            let touch = unsafe { message.arg.pagefault };
            let write = touch.flags as u32 & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);
            fault::told(watch, UnifiedPtr(touch.address), write != 0);
        }
    }
}
