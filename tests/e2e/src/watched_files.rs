//! A file system that shows another folder's files, counts what is read, and can stop answering.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry,
    ReplyOpen, Request,
};
use parking_lot::Mutex;
use rustix::mount::{UnmountFlags, unmount};

/// The kernel is to ask each time.
const KNOWN_FOR: Duration = Duration::ZERO;

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    All,
    /// Everything but reads of this many bytes and more.
    NoReadsFrom(u32),
    /// Nothing about names.
    NoNames,
}

/// Whether the kernel keeps what it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    Kept,
    None,
}

/// The mounted file system. When it is dropped, whoever waits for it gets an error.
pub struct WatchedFiles {
    held: Arc<Held>,
    at: PathBuf,
    /// Dropped last: it waits for what the kernel has asked.
    _session: BackgroundSession,
}

struct Held {
    answers: Mutex<Answers>,
    names: Mutex<Vec<ReplyEntry>>,
    reads: Mutex<Vec<ReplyData>>,
    read: AtomicU64,
    cache: Cache,
}

impl WatchedFiles {
    /// Mounts the files of `original` at `at`.
    ///
    /// # Errors
    /// That of the system, which may allow it to nobody.
    pub fn mount(original: &str, at: &str, cache: Cache) -> io::Result<WatchedFiles> {
        let held = Arc::new(Held {
            answers: Mutex::new(Answers::All),
            names: Mutex::default(),
            reads: Mutex::default(),
            read: AtomicU64::new(0),
            cache,
        });
        let shown = Shown { original: PathBuf::from(original), held: Arc::clone(&held) };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::RO, MountOption::FSName("watched".to_owned())];
        let session = fuser::spawn_mount(shown, at, &config)?;
        Ok(WatchedFiles { held, at: at.into(), _session: session })
    }

    /// From now on, this is answered. What has been asked before stays without an answer.
    pub fn answer(&self, answers: Answers) {
        *self.held.answers.lock() = answers;
    }

    /// Bytes that have been read, each time anew.
    pub fn read(&self) -> u64 {
        self.held.read.load(Ordering::Acquire)
    }

    /// How many questions it holds without an answer.
    pub fn held(&self) -> usize {
        self.held.names.lock().len() + self.held.reads.lock().len()
    }
}

impl Drop for WatchedFiles {
    fn drop(&mut self) {
        self.answer(Answers::All);
        self.held.names.lock().drain(..).for_each(|reply| reply.error(Errno::EIO));
        self.held.reads.lock().drain(..).for_each(|reply| reply.error(Errno::EIO));
        // A server may have files open there, with which the session would leave it mounted.
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

struct Shown {
    original: PathBuf,
    held: Arc<Held>,
}

impl Shown {
    /// The original with this inode.
    fn find(&self, inode: u64) -> Option<PathBuf> {
        let entries = std::fs::read_dir(&self.original).ok()?.flatten();
        entries
            .map(|entry| entry.path())
            .find(|path| std::fs::metadata(path).is_ok_and(|metadata| metadata.ino() == inode))
    }
}

fn attributes(metadata: &Metadata, inode: u64) -> FileAttr {
    let time = metadata.modified().expect("files have a time");
    FileAttr {
        ino: INodeNo(inode),
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: if metadata.is_dir() { FileType::Directory } else { FileType::RegularFile },
        perm: (metadata.permissions().mode() & 0o777) as u16,
        nlink: 1,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

fn read_file(path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    let mut read = vec![0; bytes.min(end.saturating_sub(offset) as usize)];
    file.read_exact_at(&mut read, offset)?;
    Ok(read)
}

impl Filesystem for Shown {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if *self.held.answers.lock() == Answers::NoNames {
            return self.held.names.lock().push(reply);
        }
        match std::fs::metadata(self.original.join(name)) {
            Ok(metadata) => {
                let attributes = attributes(&metadata, metadata.ino());
                reply.entry(&KNOWN_FOR, &attributes, Generation(0));
            }
            Err(_) => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let path = match inode {
            INodeNo::ROOT => Some(self.original.clone()),
            INodeNo(inode) => self.find(inode),
        };
        match path.and_then(|path| std::fs::metadata(path).ok()) {
            Some(metadata) => reply.attr(&KNOWN_FOR, &attributes(&metadata, inode.0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = match self.held.cache {
            Cache::Kept => FopenFlags::FOPEN_KEEP_CACHE,
            Cache::None => FopenFlags::FOPEN_DIRECT_IO,
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if let Answers::NoReadsFrom(least) = *self.held.answers.lock()
            && bytes >= least
        {
            return self.held.reads.lock().push(reply);
        }
        let read = self.find(inode.0).map(|path| read_file(&path, offset, bytes as usize));
        match read {
            Some(Ok(bytes)) => {
                self.held.read.fetch_add(bytes.len() as u64, Ordering::AcqRel);
                reply.data(&bytes);
            }
            _ => reply.error(Errno::EIO),
        }
    }
}
