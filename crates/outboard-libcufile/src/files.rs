//! Files that are registered.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::status::{Failure, INVALID, Result, code};
use crate::table::{Table, table};
use crate::types::Handle;

/// A registered file. It is closed once no transfer uses it.
pub(crate) struct File {
    /// The driver library's number.
    pub(crate) number: u64,
    table: &'static Table,
    fd: RawFd,
    /// Device and inode.
    place: (u64, u64),
}

impl Drop for File {
    fn drop(&mut self) {
        self.table.close(self.number);
    }
}

struct Files {
    last: usize,
    all: Option<HashMap<usize, Arc<File>>>,
}

static FILES: Mutex<Files> = Mutex::new(Files { last: 0, all: None });

/// Handles are multiples of this, as addresses would be.
const STEP: usize = 16;

/// Registers the file of a descriptor.
pub(crate) fn register(fd: RawFd) -> Result<Handle> {
    if fd < 0 {
        return Err(INVALID);
    }
    let (place, writable) = regular(fd)?;
    let mut files = FILES.lock();
    let all = files.all.get_or_insert_default();
    // The number of a descriptor that was closed may be another file's now.
    if all.values().any(|file| file.fd == fd && file.place == place) {
        return Err(Failure::Code(code::HANDLE_ALREADY_REGISTERED));
    }
    let table = table()?;
    let number = table.open(fd, writable)?;
    let file = Arc::new(File { number, table, fd, place });
    files.last += STEP;
    let handle = files.last;
    files.all.get_or_insert_default().insert(handle, file);
    Ok(handle as Handle)
}

/// Where a file or block device is, and whether it may be written.
fn regular(fd: RawFd) -> Result<((u64, u64), bool)> {
    const OTHER: Failure = Failure::Code(code::INVALID_FILE_TYPE);
    let mut facts = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a place for the facts; the system checks the descriptor.
    let (known, flags) =
        unsafe { (libc::fstat(fd, facts.as_mut_ptr()), libc::fcntl(fd, libc::F_GETFL)) };
    if known != 0 || flags < 0 {
        return Err(OTHER);
    }
    // SAFETY: the call above has stored them.
    let facts = unsafe { facts.assume_init() };
    if !matches!(facts.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK) {
        return Err(OTHER);
    }
    Ok(((facts.st_dev, facts.st_ino), flags & libc::O_ACCMODE != libc::O_RDONLY))
}

/// The file of a handle.
pub(crate) fn look(handle: Handle) -> Result<Arc<File>> {
    if handle.is_null() {
        return Err(INVALID);
    }
    let files = FILES.lock();
    let found = files.all.as_ref().and_then(|all| all.get(&(handle as usize))).cloned();
    found.ok_or(Failure::Code(code::HANDLE_NOT_REGISTERED))
}

/// Forgets a file; transfers that are under way end well. Whether there was one.
pub(crate) fn deregister(handle: Handle) -> bool {
    let file = FILES.lock().all.as_mut().and_then(|all| all.remove(&(handle as usize)));
    file.is_some()
}
