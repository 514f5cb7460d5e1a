//! Files that are registered.

use std::collections::{HashMap, HashSet};
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
    opened: Opened,
}

/// A descriptor, and the device and inode of the file that it was: the number of a descriptor that
/// was closed may be another file's later.
type Opened = (RawFd, (u64, u64));

impl Drop for File {
    fn drop(&mut self) {
        self.table.close(self.number);
    }
}

#[derive(Default)]
struct Files {
    last: usize,
    by_handle: HashMap<usize, Arc<File>>,
    opened: HashSet<Opened>,
}

static FILES: Mutex<Option<Files>> = Mutex::new(None);

/// Handles are multiples of this, as addresses would be.
const STEP: usize = 16;

/// Registers the file of a descriptor.
pub(crate) fn register(fd: RawFd) -> Result<Handle> {
    if fd < 0 {
        return Err(INVALID);
    }
    let (place, writable) = regular(fd)?;
    let opened = (fd, place);
    let mut files = FILES.lock();
    let files = files.get_or_insert_default();
    if files.opened.contains(&opened) {
        return Err(Failure::Code(code::HANDLE_ALREADY_REGISTERED));
    }
    let table = table()?;
    let number = table.open(fd, writable)?;
    files.last += STEP;
    files.by_handle.insert(files.last, Arc::new(File { number, table, opened }));
    files.opened.insert(opened);
    Ok(files.last as Handle)
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
    let found = files.as_ref().and_then(|files| files.by_handle.get(&(handle as usize))).cloned();
    found.ok_or(Failure::Code(code::HANDLE_NOT_REGISTERED))
}

/// Forgets a file; transfers that are under way end well. Whether there was one.
pub(crate) fn deregister(handle: Handle) -> bool {
    let removed = FILES.lock().as_mut().and_then(|files| {
        let file = files.by_handle.remove(&(handle as usize))?;
        files.opened.remove(&file.opened);
        Some(file)
    });
    removed.is_some()
}
