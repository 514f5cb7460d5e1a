//! Files whose bytes programs move to and from memory of devices.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use outboard_ranges::FileNumbers;
use parking_lot::Mutex;

use crate::backend::{ContextId, ObjectId};
use crate::handles::{Kind, Table};
use crate::parts::tensors::Tensors;
use crate::profile::FileBytes;

/// A file that a program has registered.
pub(crate) struct File {
    pub(crate) handle: u64,
    pub(crate) descriptor: OwnedFd,
    /// The program may write to it.
    pub(crate) writable: bool,
    pub(crate) read: Moved,
    pub(crate) written: Moved,
    pub(crate) served: Mutex<Served>,
}

/// How a file stands with each server, by a context there.
#[derive(Default)]
pub(crate) struct Served(Vec<(ContextId, Standing)>);

/// How a file stands with a server.
#[derive(Clone, Copy)]
pub(crate) enum Standing {
    /// The server has it open under that name; so often it has been opened.
    Open(ObjectId, u32),
    /// The server uses this process's descriptor, under that name.
    Given(ObjectId),
    /// It is to be opened, so often as it has been already.
    Closed(u32),
    /// Its bytes go through this process.
    Never,
}

impl Served {
    /// With the server of a context.
    pub(crate) fn at(&mut self, ctx: ContextId) -> &mut Standing {
        let place = self.0.iter().position(|(known, _)| known.has_server_of(ctx));
        let place = place.unwrap_or_else(|| {
            self.0.push((ctx, Standing::Closed(0)));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }

    /// A context of each server that has it open, and its name there.
    pub(crate) fn open(&self) -> impl Iterator<Item = (ContextId, ObjectId)> {
        self.0.iter().filter_map(|(ctx, standing)| match standing {
            Standing::Open(name, _) | Standing::Given(name) => Some((*ctx, *name)),
            _ => None,
        })
    }
}

/// How many bytes have been moved in one direction.
#[derive(Default)]
pub(crate) struct Moved {
    by_reference: AtomicU64,
    through_client: AtomicU64,
}

impl Moved {
    const fn new() -> Moved {
        Moved { by_reference: AtomicU64::new(0), through_client: AtomicU64::new(0) }
    }

    /// So many more, read or written by a server or through this process.
    pub(crate) fn count(&self, bytes: usize, by_server: bool) {
        let count = if by_server { &self.by_reference } else { &self.through_client };
        count.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// By reference, and through this process.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.by_reference, &self.through_client].map(|count| count.load(Ordering::Relaxed))
    }
}

/// The files of a process, and what moving their bytes needs.
pub(crate) struct Files {
    pub(crate) table: Table<File>,
    /// Streams that no file uses just now: context and handle.
    pub(crate) idle: Mutex<Vec<(ContextId, u64)>>,
    pub(crate) buffers: Buffers,
    /// Whether copies from memory that is a file's name the file; found out by the first copy.
    maps: OnceLock<bool>,
    /// Files that are the program's memory, the oldest first.
    pub(crate) mapped: Mutex<Vec<(FileNumbers, Arc<File>)>>,
    /// Where the tensors of mapped files are, the oldest first.
    pub(crate) tensors: Mutex<Vec<(FileNumbers, Arc<Tensors>)>>,
    /// The sums of all files.
    pub(crate) read: Moved,
    pub(crate) written: Moved,
    /// Contexts of servers that share no files.
    share_none: Mutex<Vec<ContextId>>,
    /// Why files go through this process, and how many.
    reasons: Mutex<BTreeMap<String, u64>>,
}

/// Asks for copies from memory that is a file's to name the file.
const VARIABLE: &str = "OUTBOARD_FILES";
/// So many reasons are told apart.
const MOST_REASONS: usize = 32;

impl Files {
    pub(crate) const fn new() -> Files {
        Files {
            table: Table::new(Kind::File),
            idle: Mutex::new(Vec::new()),
            buffers: Buffers::new(),
            maps: OnceLock::new(),
            mapped: Mutex::new(Vec::new()),
            tensors: Mutex::new(Vec::new()),
            read: Moved::new(),
            written: Moved::new(),
            share_none: Mutex::new(Vec::new()),
            reasons: Mutex::new(BTreeMap::new()),
        }
    }

    /// Whether copies from memory that is a file's name the file.
    #[inline]
    pub(crate) fn maps(&self) -> bool {
        let is_wanted = || std::env::var_os(VARIABLE).is_some_and(|value| value == "mapped");
        *self.maps.get_or_init(is_wanted)
    }

    /// Whether the context's server is known to share no files.
    pub(crate) fn shares_none(&self, ctx: ContextId) -> bool {
        self.share_none.lock().iter().any(|known| known.has_server_of(ctx))
    }

    /// The context's server shares no files.
    pub(crate) fn note_none(&self, ctx: ContextId) {
        self.share_none.lock().push(ctx);
    }

    /// A file goes through this process, for that reason.
    pub(crate) fn note(&self, reason: String) {
        let mut reasons = self.reasons.lock();
        if reasons.len() < MOST_REASONS || reasons.contains_key(&reason) {
            *reasons.entry(reason).or_default() += 1;
        }
    }

    /// What was moved of all files.
    pub(crate) fn bytes(&self) -> FileBytes {
        let ([read_by_servers, read_here], [written_by_servers, written_here]) =
            (self.read.counts(), self.written.counts());
        let reasons = self.reasons.lock().clone();
        FileBytes { read_by_servers, read_here, written_by_servers, written_here, reasons }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

/// Buffers that nothing uses just now.
pub(crate) struct Buffers(Mutex<Vec<Box<[u8]>>>);

/// A buffer that goes back when it is dropped.
pub(crate) struct Buffer<'a> {
    of: &'a Buffers,
    bytes: Box<[u8]>,
}

impl Buffers {
    /// The size of each.
    pub(crate) const BYTES: usize = 8 << 20;
    /// So many are kept.
    const KEPT: usize = 8;

    pub(crate) const fn new() -> Buffers {
        Buffers(Mutex::new(Vec::new()))
    }

    pub(crate) fn take(&self) -> Buffer<'_> {
        let kept = self.0.lock().pop();
        let bytes = kept.unwrap_or_else(|| vec![0; Buffers::BYTES].into_boxed_slice());
        Buffer { of: self, bytes }
    }
}

impl Deref for Buffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let mut kept = self.of.0.lock();
        if kept.len() < Buffers::KEPT {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}
