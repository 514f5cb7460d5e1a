//! Writing images, on a thread of its own, and removing the oldest.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

use parking_lot::{Condvar, Mutex};

use crate::part::Part;

/// Bytes that may wait to be written; images beyond them are not kept, this time.
const MOST_WAITING: u64 = 1 << 30;
/// A file takes a block, a name and an inode, however few bytes are in it.
const LEAST_FILE: u64 = 4096;
/// How files that are being written begin.
const UNFINISHED: &str = "unfinished-";
/// An unfinished file of this age was left by a worker that has been killed.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Files may be as much ahead of the clock as clocks of machines differ that share the folder.
const TOLERATED: Duration = Duration::from_secs(3600);
/// Sessions that write at the same time do not know of each other: each looks again after it has
/// written this share of the limit.
const LOOKS_AFTER_SHARE: u64 = 16;

type Job = (String, Arc<Part>);

/// The disk space of a file of that many bytes.
fn taken(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(LEAST_FILE).unwrap_or(u64::MAX).max(LEAST_FILE)
}

/// The disk space of an existing file: its blocks, which are more than its bytes, or fewer where
/// the file system compresses.
fn taken_by(metadata: &Metadata) -> u64 {
    taken(metadata.len()).max(metadata.blocks().saturating_mul(512))
}

/// The way to the thread that writes.
pub(super) struct Store {
    folder: PathBuf,
    limit: u64,
    shared: Arc<Shared>,
    /// There from the first image on.
    thread: Mutex<Option<Sender<Job>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<StoreState>,
    idle: Condvar,
}

#[derive(Default)]
struct StoreState {
    /// Bytes that wait to be written, and images.
    waiting: u64,
    images: usize,
    /// Something went wrong: no more is written.
    off: bool,
}

impl Store {
    pub(super) fn new(folder: PathBuf, limit: u64) -> Store {
        Store { folder, limit, shared: Arc::default(), thread: Mutex::default() }
    }

    /// Has an image written.
    pub(super) fn add(&self, name: String, image: Arc<Part>) {
        let bytes = taken(image.len() as u64);
        {
            let mut state = self.shared.state.lock();
            if state.off || bytes > self.limit || state.waiting.saturating_add(bytes) > MOST_WAITING
            {
                return;
            }
            state.waiting += bytes;
            state.images += 1;
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            *thread = self.start().inspect_err(|error| self.shared.turn_off(error)).ok();
        }
        let sent = thread.as_ref().is_some_and(|thread| thread.send((name, image)).is_ok());
        if !sent {
            self.shared.done(bytes);
        }
    }

    /// Waits until nothing waits to be written.
    pub(super) fn flush(&self, patience: Duration) {
        let mut state = self.shared.state.lock();
        // Whether it came to that or not, nobody waits longer.
        self.shared.idle.wait_while_for(&mut state, |state| state.images > 0, patience);
    }

    fn start(&self) -> io::Result<Sender<Job>> {
        let (sender, receiver) = channel();
        let mut writer = Writer {
            folder: self.folder.clone(),
            limit: self.limit,
            shared: Arc::clone(&self.shared),
            unseen: None,
            written: 0,
        };
        std::thread::Builder::new()
            .name("image-cache".into())
            .spawn(move || writer.run(&receiver))?;
        Ok(sender)
    }
}

impl Shared {
    fn done(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.waiting -= bytes;
        state.images -= 1;
        if state.images == 0 {
            self.idle.notify_all();
        }
    }

    fn turn_off(&self, error: &io::Error) {
        self.state.lock().off = true;
        tracing::warn!(%error, "the image cache cannot be written; this session's images are not kept");
    }

    fn is_off(&self) -> bool {
        self.state.lock().off
    }
}

struct Writer {
    folder: PathBuf,
    limit: u64,
    shared: Arc<Shared>,
    /// Bytes written since the folder was looked through; `None` before the first time.
    unseen: Option<u64>,
    /// Files written, for names.
    written: u64,
}

impl Writer {
    fn run(&mut self, jobs: &Receiver<Job>) {
        for (name, image) in jobs {
            let bytes = taken(image.len() as u64);
            if !self.shared.is_off()
                && let Err(error) =
                    self.write(&name, image.bytes()).and_then(|()| self.make_room(bytes))
            {
                self.shared.turn_off(&error);
            }
            drop(image);
            self.shared.done(bytes);
        }
    }

    /// Writes a file under another name first: a reader finds all of it or nothing.
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        if path.exists() {
            // Another session was quicker.
            return Ok(());
        }
        self.written += 1;
        let unfinished =
            self.folder.join(format!("{UNFINISHED}{}-{}", std::process::id(), self.written));
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&unfinished, &path));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Looks from time to time whether the files are too many.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        match &mut self.unseen {
            Some(unseen) if *unseen + bytes <= self.limit / LOOKS_AFTER_SHARE => *unseen += bytes,
            unseen => {
                *unseen = Some(0);
                trim(&self.folder, self.limit)?;
            }
        }
        Ok(())
    }
}

/// Removes the files that have not been used for longest, until those that are left have room
/// within the limit and some more can come.
fn trim(folder: &Path, limit: u64) -> io::Result<()> {
    let mut files = Vec::new();
    let now = SystemTime::now();
    // Those that are being written are not removed, but they take their room.
    let mut unfinished = 0;
    for entry in fs::read_dir(folder)?.flatten() {
        // Another session may remove it meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        // A clock that was put back leaves files of the future, of which nobody knows when they
        // were used. They must not outlast all others.
        let of_the_future = used.duration_since(now).is_ok_and(|ahead| ahead > TOLERATED);
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            if of_the_future || now.duration_since(used).is_ok_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(entry.path());
            } else {
                unfinished += taken_by(&metadata);
            }
            continue;
        }
        let used = if of_the_future { SystemTime::UNIX_EPOCH } else { used };
        files.push((used, taken_by(&metadata), entry.path()));
    }
    let mut total: u64 = unfinished + files.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
    if total <= limit {
        return Ok(());
    }
    files.sort();
    for (_, bytes, path) in files {
        if total <= limit - limit / LOOKS_AFTER_SHARE {
            break;
        }
        // It counts as gone also if another session was quicker.
        let _ = fs::remove_file(path);
        total -= bytes;
    }
    Ok(())
}
