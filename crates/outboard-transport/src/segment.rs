//! Memory that two processes share: a file without a name whose size is sealed, so that neither
//! process can remove pages that the other uses.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, getrlimit};

use crate::descriptor::apart;

/// Shared memory, mapped wherever there was room. Pages are taken from the system when they are
/// first touched.
///
/// The other process may change the bytes at any time: read each value once, and check the value
/// that was read.
#[derive(Debug)]
pub struct Segment {
    memory: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: plain memory, which other processes use at the same time anyway; whoever reads and writes
// through its pointer sees to order.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// A file in memory whose size cannot change any more. It closes on exec.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] if `ulimit -f` is lower, or the system's error.
pub fn create_file(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let file = apart(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?)?;
    set_size(file.as_fd(), bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Gives a file in memory a size.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] if `ulimit -f` is lower, or the system's error.
pub fn set_size(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    // Beyond the limit the system would kill the process, which belongs to the program's user.
    if largest_file() < bytes {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the limit on the size of files (ulimit -f) is too low",
        ));
    }
    Ok(ftruncate(file, bytes)?)
}

/// The most bytes of a file of this process (`ulimit -f`).
pub fn largest_file() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// The size of a file that another process has made, if that cannot change any more and is not
/// larger than `most`.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the file is of another kind, can change its size, is empty or
/// is larger than `most`.
pub fn check_file(file: BorrowedFd<'_>, most: u64) -> io::Result<u64> {
    let invalid = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
    let seals = fcntl_get_seals(file)
        .map_err(|_| invalid("what should be shared memory is another kind of file"))?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(invalid("the size of the shared memory is not sealed"));
    }
    match u64::try_from(fstat(file)?.st_size) {
        Ok(bytes) if (1..=most).contains(&bytes) => Ok(bytes),
        _ => Err(invalid("the shared memory has a size that is not allowed")),
    }
}

impl Segment {
    /// Makes one, filled with zeros. `name` is for people who look at the process's files.
    ///
    /// # Errors
    /// As [`create_file`], or the system's error if it cannot be mapped.
    pub fn create(name: &str, bytes: usize) -> io::Result<Segment> {
        Segment::map(create_file(name, bytes as u64)?, bytes)
    }

    /// Takes one that another process has made, if it is sealed and not larger than `most`.
    ///
    /// # Errors
    /// As [`check_file`], or the system's error if it cannot be mapped.
    pub fn accept(file: OwnedFd, most: usize) -> io::Result<Segment> {
        let bytes = check_file(file.as_fd(), most as u64)?;
        Segment::map(file, bytes as usize)
    }

    fn map(file: OwnedFd, bytes: usize) -> io::Result<Segment> {
        // SAFETY: a new mapping, wherever there is room.
        let memory = unsafe {
            mmap(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        }?;
        let memory = NonNull::new(memory.cast())
            .ok_or_else(|| io::Error::other("shared memory at address 0"))?;
        Ok(Segment { memory, bytes, file })
    }

    /// Its first byte. It is there, and can be read and written, as long as the segment lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// The same, which is no null pointer.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.memory
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file, to be handed to the other process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by this value, whose contract says that nobody uses it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_are_the_same_memory() {
        let here = Segment::create("test", 8192).unwrap();
        let there = Segment::accept(here.file().try_clone_to_owned().unwrap(), 8192).unwrap();
        assert_eq!(there.bytes(), 8192);
        // SAFETY: both mappings are alive, and only this thread uses them.
        unsafe {
            assert_eq!(there.as_ptr().add(8191).read(), 0);
            here.as_ptr().add(8191).write(7);
            assert_eq!(there.as_ptr().add(8191).read(), 7);
        }
        assert!(ftruncate(here.file(), 4096).is_err() && ftruncate(there.file(), 16384).is_err());
    }

    #[test]
    fn what_is_not_sealed_or_too_large_is_refused() {
        let open = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, 4096).unwrap();
        assert!(Segment::accept(open, 8192).unwrap_err().to_string().contains("not sealed"));
        let null =
            rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())
                .unwrap();
        assert!(Segment::accept(null, 8192).is_err());
        let large = create_file("test", 8192).unwrap();
        assert!(Segment::accept(large, 4096).unwrap_err().to_string().contains("size"));
        assert!(Segment::accept(create_file("test", 0).unwrap(), 4096).is_err());
    }
}
