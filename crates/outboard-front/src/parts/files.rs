//! Files whose bytes programs move to and from memory of devices.

use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::backend::ContextId;
use crate::handles::{Kind, Table};

/// A file that a program has registered.
pub(crate) struct File {
    pub(crate) handle: u64,
    pub(crate) descriptor: OwnedFd,
    /// The program may write to it.
    pub(crate) writable: bool,
    pub(crate) read: Moved,
    pub(crate) written: Moved,
}

/// How many bytes have been moved in one direction.
#[derive(Default)]
pub(crate) struct Moved {
    by_reference: AtomicU64,
    through_client: AtomicU64,
}

impl Moved {
    /// So many more have gone through this process.
    pub(crate) fn through_client(&self, bytes: usize) {
        self.through_client.fetch_add(bytes as u64, Ordering::Relaxed);
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
}

impl Files {
    pub(crate) const fn new() -> Files {
        Files {
            table: Table::new(Kind::File),
            idle: Mutex::new(Vec::new()),
            buffers: Buffers::new(),
        }
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
