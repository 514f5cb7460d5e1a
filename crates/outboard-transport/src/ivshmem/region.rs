//! The file that is a virtual machine's device, from its host: a page by which it is known, and
//! parts for sessions.
//!
//! Who has a part has locked its bytes of the file (`F_OFD_SETLK`), through a descriptor that goes
//! with it to the worker. So the kernel takes a part back when the worker ends, however it does,
//! and a supervisor that follows another one, or shares the file with one, knows what is free.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::part::{Mapping, most_slots};
use crate::random::random;

/// By what a region is known. It is no secret: everybody in the machine can read it.
pub type Id = [u8; 16];

/// What the first page begins with.
const MARK: [u8; 16] = *b"OUTBOARD-REGION1";
/// Bytes of the first page, behind which the parts begin.
const HEADER: u64 = 4096;
/// Bytes of a part: rings for as many connections as most sessions have.
const PART: u64 = 8 << 20;
/// The fewest bytes of a region: device memory has a power of two of them.
pub const LEAST: u64 = 1 << 20;

/// A region as a server knows it.
#[derive(Debug, Clone)]
pub struct Region {
    path: PathBuf,
}

/// A part of a region, locked as long as a copy of the file's descriptor is open.
#[derive(Debug)]
pub struct Allotted {
    /// The region.
    pub file: OwnedFd,
    /// Where the part begins in it.
    pub offset: u64,
    /// The part's size.
    pub bytes: u64,
}

impl Region {
    /// The file of that name, which need not be there yet.
    pub fn at(path: impl Into<PathBuf>) -> Region {
        Region { path: path.into() }
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self) -> io::Result<(File, u64)> {
        let file = File::options().read(true).write(true).open(&self.path)?;
        let found = file.metadata()?;
        if !found.is_file() || found.len() < LEAST {
            let what = format!("is no file of {} KiB or more", LEAST >> 10);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok((file, found.len()))
    }

    /// Writes what machines know the region by, unless it is there; returns that, and how many
    /// sessions may have a part.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such file yet, [`io::ErrorKind::InvalidInput`]
    /// if it is too small or another kind of file, or the system's error.
    pub fn prepare(&self) -> io::Result<(Id, usize)> {
        let (file, bytes) = self.open()?;
        Ok((mark(&file)?, parts(bytes).count()))
    }

    /// A free part, if this is the region that has the id.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), and [`io::ErrorKind::StorageFull`] if no part is free.
    pub fn allot(&self, wanted: Id) -> io::Result<Option<Allotted>> {
        let (file, bytes) = self.open()?;
        if mark(&file)? != wanted {
            return Ok(None);
        }
        for (offset, bytes) in parts(bytes) {
            if lock(&file, offset, bytes)? {
                return Ok(Some(Allotted { file: file.into(), offset, bytes }));
            }
        }
        let full =
            format!("all {} parts of {} are taken", parts(bytes).count(), self.path.display());
        Err(io::Error::new(io::ErrorKind::StorageFull, full))
    }
}

/// Where the parts of a region of so many bytes are, and how large they are.
fn parts(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let left = bytes.saturating_sub(HEADER);
    let size = left.min(PART);
    let count = if most_slots(size) == 0 { 0 } else { left / size };
    (0..count).map(move |number| (HEADER + number * size, size))
}

/// The region's id, as its first page says it; it is made up if that says none.
fn mark(file: &File) -> io::Result<Id> {
    let header = Mapping::new(file, 0, HEADER)?;
    if let Some(id) = read_mark(&header) {
        return Ok(id);
    }
    // Two servers may begin at once.
    if !lock(file, 0, HEADER)? {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let id = match read_mark(&header) {
        Some(id) => id,
        None => {
            let id = random()?;
            header.write(MARK.len(), &id);
            header.write(0, &MARK);
            id
        }
    };
    set_lock(file, 0, HEADER, libc::F_UNLCK)?;
    Ok(id)
}

/// The id in a region's first page, if there is one.
///
/// # Errors
/// The system's error if the file cannot be mapped.
pub(super) fn id_in(file: &File) -> io::Result<Option<Id>> {
    Ok(read_mark(&Mapping::new(file, 0, HEADER)?))
}

fn read_mark(header: &Mapping) -> Option<Id> {
    (header.read::<{ MARK.len() }>(0) == MARK).then(|| header.read(MARK.len()))
}

/// Locks these bytes for this opening of the file; whether they were free.
fn lock(file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
    match set_lock(file, offset, bytes, libc::F_WRLCK) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn set_lock(file: &File, offset: u64, bytes: u64, kind: libc::c_int) -> io::Result<()> {
    let place = |number| i64::try_from(number).map_err(io::Error::other);
    // SAFETY: `flock` is made of integers only, for which all zeros are a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (place(offset)?, place(bytes)?);
    // SAFETY: the descriptor is open, and the kernel only reads `lock`.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
