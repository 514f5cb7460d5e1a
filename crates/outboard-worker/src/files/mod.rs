//! Files that the server shares with the client: which of them this session has open.
//!
//! The supervisor opens a file and judges whether the client may have it ([`Registry::open_file`]);
//! this process gets the descriptor, and nothing of the server's other files. A client on this
//! machine hands over a descriptor of its own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outboard_abi::CUresult;
use outboard_files::{Identity, changed_since, forget};
use outboard_wire::ObjectId;
use outboard_wire::files::FileOpening;
use outboard_wire::messages::FileOpen;
use parking_lot::Mutex;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::bounds::Kind;
use super::io::{NextPoll, Registry};

/// How often the dispatcher looks whether files are still being moved.
const LOOK: Duration = Duration::from_millis(100);

/// The files that a session has open, by the client's names.
#[derive(Clone, Default)]
pub(crate) struct Files {
    all: Arc<Mutex<HashMap<ObjectId, Stage>>>,
    busy: Arc<AtomicUsize>,
}

/// How far the opening of a file is.
enum Stage {
    Begun,
    /// The client is to show that it can read the file.
    Asked(Asked),
    Open(Arc<OpenFile>),
}

/// What is known of a file that is being opened.
#[derive(Clone, Copy)]
struct Asked {
    /// The supervisor's number.
    opened: u64,
    identity: Identity,
    uses: Uses,
}

/// What a file is opened for.
#[derive(Clone, Copy)]
struct Uses {
    reads: bool,
    writes: bool,
}

/// A file that is open.
pub(crate) struct OpenFile {
    descriptor: File,
    uses: Uses,
    /// What the client has shown that it can read; `None` if the descriptor is the client's own.
    shown: Option<Identity>,
}

impl OpenFile {
    pub(crate) fn descriptor(&self) -> &File {
        &self.descriptor
    }

    /// Whether it may be read now: it is open for that and, unless this session writes to it, what
    /// the client has shown that it can read. Else an `errno`. What is read of these bytes then is
    /// what the file's server has now, not what this machine remembers.
    pub(crate) fn check_read(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        if !self.uses.reads {
            return Err(Errno::BADF);
        }
        match &self.shown {
            Some(_) if self.uses.writes => {
                forget(&self.descriptor, offset, bytes);
                Ok(())
            }
            Some(shown) if changed_since(&self.descriptor, shown) => Err(Errno::STALE),
            _ => Ok(()),
        }
    }

    /// Whether it may be written to.
    pub(crate) fn check_write(&self) -> Result<(), Errno> {
        if self.uses.writes { Ok(()) } else { Err(Errno::BADF) }
    }
}

/// A file that is being read or written: as long as this lives, the session's driver is not to be
/// suspended.
pub(crate) struct UsedFile {
    file: Arc<OpenFile>,
    busy: Arc<AtomicUsize>,
}

impl UsedFile {
    fn new(file: &Arc<OpenFile>, busy: &Arc<AtomicUsize>) -> UsedFile {
        busy.fetch_add(1, Ordering::AcqRel);
        UsedFile { file: Arc::clone(file), busy: Arc::clone(busy) }
    }
}

impl Deref for UsedFile {
    type Target = OpenFile;

    fn deref(&self) -> &OpenFile {
        &self.file
    }
}

impl Drop for UsedFile {
    fn drop(&mut self) {
        self.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Files {
    /// Takes the name for a file that is to be opened.
    pub(crate) fn begin(&self, name: ObjectId) -> Result<(), CUresult> {
        let mut all = self.all.lock();
        Kind::File.room(all.len())?;
        match all.entry(name) {
            Entry::Vacant(free) if name != ObjectId::NONE => {
                free.insert(Stage::Begun);
                Ok(())
            }
            _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Has the supervisor open that file, and says what it says. Waits for the file system.
    pub(crate) fn open(&self, registry: &Registry, m: FileOpen) -> FileOpening {
        let FileOpen { file: name, reference, reads, writes } = m;
        let identity = reference.identity.into();
        let (opened, opening) = match registry.open_file(reference, reads, writes) {
            Ok(Some(answer)) => (answer.opened, answer.opening),
            Ok(None) => (0, FileOpening::NothingShared {}),
            Err(error) => (0, FileOpening::Refused(silent(&error))),
        };
        match self.all.lock().entry(name) {
            Entry::Occupied(mut entry) if matches!(opening, FileOpening::Opened(_)) => {
                let uses = Uses { reads, writes };
                entry.insert(Stage::Asked(Asked { opened, identity, uses }));
            }
            Entry::Occupied(entry) => drop(entry.remove()),
            // The client has closed it meanwhile.
            Entry::Vacant(_) => {}
        }
        opening
    }

    /// Shows the supervisor what the client answers; `Err` with the reason if that is not enough.
    pub(crate) fn prove(
        &self,
        registry: &Registry,
        name: ObjectId,
        proof: [u8; 32],
    ) -> Result<(), String> {
        let asked = match self.all.lock().get(&name) {
            Some(Stage::Asked(asked)) => *asked,
            _ => return Err("no such file is being opened".to_owned()),
        };
        let shown = registry.prove_file(asked.opened, proof);
        let shown = shown.unwrap_or_else(|error| Err(silent(&error)));
        match (self.all.lock().entry(name), shown) {
            (Entry::Occupied(mut entry), Ok(descriptor)) => {
                let descriptor = File::from(descriptor);
                let Asked { uses, identity, .. } = asked;
                let file = OpenFile { descriptor, uses, shown: Some(identity) };
                entry.insert(Stage::Open(Arc::new(file)));
                Ok(())
            }
            (Entry::Occupied(entry), Err(reason)) => {
                entry.remove();
                Err(reason)
            }
            (Entry::Vacant(_), _) => Err("the file is closed".to_owned()),
        }
    }

    /// Takes a descriptor of the client's. Waits for the file system. Only a regular file has a
    /// place for each byte.
    pub(crate) fn take(
        &self,
        name: ObjectId,
        given: OwnedFd,
        reads: bool,
        writes: bool,
    ) -> Result<(), CUresult> {
        let is_regular = rustix::fs::fstat(&given)
            .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile);
        match self.all.lock().entry(name) {
            Entry::Occupied(mut entry) if is_regular => {
                let (descriptor, uses) = (File::from(given), Uses { reads, writes });
                let file = OpenFile { descriptor, uses, shown: None };
                entry.insert(Stage::Open(Arc::new(file)));
                return Ok(());
            }
            Entry::Occupied(entry) => drop(entry.remove()),
            // The client has closed it meanwhile.
            Entry::Vacant(_) => {}
        }
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    /// A file that is open, to use it.
    pub(crate) fn used(&self, name: ObjectId) -> Result<UsedFile, CUresult> {
        match self.all.lock().get(&name) {
            Some(Stage::Open(file)) => Ok(UsedFile::new(file, &self.busy)),
            _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Forgets a file. It is closed once the answer is dropped and nothing moves there any more.
    pub(crate) fn close(&self, name: ObjectId) -> Result<impl Send + use<>, CUresult> {
        self.all.lock().remove(&name).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn next_poll(&self) -> NextPoll {
        match self.busy.load(Ordering::Acquire) {
            0 => NextPoll::Never,
            _ => NextPoll::After(LOOK),
        }
    }
}

fn silent(error: &io::Error) -> String {
    format!("the server does not say whether it opens the file: {error}")
}

/// The `errno` of what the system said of a file.
pub(crate) fn errno_of(error: &io::Error) -> u32 {
    error.raw_os_error().unwrap_or(libc::EIO) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_taken() {
        let (files, name) = (Files::default(), ObjectId(7));
        let take = |given: OwnedFd| {
            files.begin(name).unwrap();
            files.take(name, given, true, false)
        };
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert_eq!(take(pipe), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
        assert_eq!(
            take(File::open("/dev/zero").unwrap().into()),
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
        );
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(take(file.into()), Ok(()));
        let used = files.used(name).unwrap();
        assert_eq!((used.check_read(0, 1), used.check_write()), (Ok(()), Err(Errno::BADF)));
        assert!(files.begin(name).is_err());
        assert!(files.close(name).is_ok() && files.used(name).is_err());
        // What was closed before it came is not open.
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(files.take(name, file.into(), true, false).is_err());
    }
}
