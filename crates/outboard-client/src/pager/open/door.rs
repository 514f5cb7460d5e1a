//! A way to bytes of the program's memory while nobody else can touch them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use outboard_wire::HostPtr;
use rustix::mm::{MremapFlags, mremap, munmap};

use crate::pager::pages::{Access, protect};

/// Whole pages of the program that are closed to it, and to the system calls of its threads, until
/// this is dropped.
#[derive(Debug)]
pub(super) struct Closed {
    address: HostPtr,
    bytes: usize,
    way: Way,
}

/// How they can be had all the same.
#[derive(Debug)]
enum Way {
    /// Memory that processes share can be mapped once more.
    View(*mut u8),
    /// The system writes to private memory whatever its protection.
    File(File),
}

impl Closed {
    /// Closes pages of memory that is readable and writable. Fails where there is no other way to
    /// them.
    pub(super) fn new(address: HostPtr, bytes: usize) -> io::Result<Closed> {
        let way = Way::to(address, bytes)?;
        protect(address, bytes, Access::None)?;
        Ok(Closed { address, bytes, way })
    }

    /// Changes bytes.
    pub(super) fn change(&self, change: impl FnOnce(&mut [u8])) -> io::Result<()> {
        match &self.way {
            // SAFETY: a mapping of this value, and nobody can touch the pages otherwise.
            Way::View(view) => change(unsafe { std::slice::from_raw_parts_mut(*view, self.bytes) }),
            Way::File(file) => {
                let mut bytes = vec![0; self.bytes];
                file.read_exact_at(&mut bytes, self.address.0)?;
                change(&mut bytes);
                file.write_all_at(&bytes, self.address.0)?;
            }
        }
        Ok(())
    }
}

impl Way {
    fn to(address: HostPtr, bytes: usize) -> io::Result<Way> {
        // SAFETY: with an old size of 0, shared pages are mapped once more, elsewhere; of private
        // ones the system refuses that.
        match unsafe { mremap(address.pointer(), 0, bytes, MremapFlags::MAYMOVE) } {
            Ok(view) => Ok(Way::View(view.cast())),
            Err(_) => {
                OpenOptions::new().read(true).write(true).open("/proc/self/mem").map(Way::File)
            }
        }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let _ = protect(self.address, self.bytes, Access::Write);
        if let Way::View(view) = self.way {
            // SAFETY: a mapping of this value.
            let _ = unsafe { munmap(view.cast(), self.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

    use super::*;

    #[test]
    fn private_and_shared_pages_are_changed_behind_closed_doors() {
        const BYTES: usize = 16 << 10;
        for flags in [MapFlags::PRIVATE, MapFlags::SHARED] {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), BYTES, access, flags) }
                .unwrap()
                .cast::<u8>();
            // SAFETY: the new mapping.
            unsafe { memory.add(4096).write(7) };
            let (address, bytes) = (HostPtr::of(memory).offset(4096), 8192);
            let closed = Closed::new(address, bytes).unwrap();
            let zeros = File::open("/dev/zero").unwrap();
            // SAFETY: the system checks the address.
            let read = unsafe {
                libc::read(std::os::fd::AsRawFd::as_raw_fd(&zeros), memory.add(4096).cast(), 8)
            };
            assert_eq!(read, -1, "closed to system calls, too");
            closed
                .change(|bytes| {
                    assert_eq!(bytes[..2], [7, 0]);
                    bytes[8191] = 9;
                })
                .unwrap();
            drop(closed);
            // SAFETY: open again.
            unsafe {
                assert_eq!((memory.add(4096).read(), memory.add(12287).read()), (7, 9));
                memory.add(4096).write(8);
                munmap(memory.cast(), BYTES).unwrap();
            }
        }
    }
}
