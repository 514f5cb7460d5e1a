//! Copies between a file and device memory, beside the program's streams.
//!
//! A few threads take the parts of a copy in turn. Each reads a part of the file into page-locked
//! memory and has the device copy it from there, or the other way round, so that the file and the
//! device work at the same time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use outboard_abi::CUresult;
use outboard_driver::{Table, call};
use outboard_wire::DevicePtr;
use parking_lot::{Condvar, Mutex};

use super::memory::Pool;
use crate::contexts::{Context, current};
use crate::files::errno_of;
use crate::helpers::Helpers;
use crate::objects::Handle;

/// Bytes of a part: a processor's cache holds them until the device has read them.
const PART: usize = 2 << 20;
/// Threads that one copy has at most.
const LANES: usize = 4;
/// Threads that all copies of a session have at most; each holds a part's memory.
const ALL_LANES: usize = 16;

/// The threads that file copies of a session may have.
pub(crate) struct FileLanes {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Default for FileLanes {
    fn default() -> FileLanes {
        FileLanes { free: Mutex::new(ALL_LANES), freed: Condvar::new() }
    }
}

/// Some of them.
struct Taken<'a>(&'a FileLanes, usize);

impl FileLanes {
    /// At most so many, at least one: waits for that.
    fn take(&self, most: usize) -> Taken<'_> {
        let mut free = self.free.lock();
        while *free == 0 {
            self.freed.wait(&mut free);
        }
        let taken = most.clamp(1, *free);
        *free -= taken;
        Taken(self, taken)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += self.1;
        self.0.freed.notify_all();
    }
}

/// A copy between a file and device memory.
pub(crate) struct FileCopy {
    pub(crate) table: &'static Table,
    pub(crate) context: Context,
    pub(crate) pool: Arc<Pool>,
    pub(crate) helpers: Helpers,
    pub(crate) lanes: Arc<FileLanes>,
    pub(crate) file: Arc<crate::files::OpenFile>,
    /// Where in the file it begins, in bytes.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) device: DevicePtr,
    pub(crate) to_device: bool,
}

/// How many bytes were moved, and the `errno` of what ended it early; 0: nothing did, or the file
/// ended.
pub(crate) type Moved = (u64, u32);

/// Where a copy ended early: its first part that did not come whole.
#[derive(Clone, Copy)]
struct Short {
    part: u64,
    bytes: usize,
    errno: u32,
}

/// What the threads of a copy have in common.
struct Progress {
    /// The next part that nobody has taken.
    next: AtomicU64,
    short: Mutex<Option<Short>>,
}

impl Progress {
    /// That part and all behind it will not be whole.
    fn ends(&self, found: Short) {
        let mut short = self.short.lock();
        if short.is_none_or(|known| found.part < known.part) {
            *short = Some(found);
        }
    }

    fn is_over(&self, part: u64) -> bool {
        self.short.lock().is_some_and(|short| short.part < part)
    }
}

impl FileCopy {
    /// Does it. Waits for the file and the device; the context is current.
    pub(crate) fn run(self) -> Result<Moved, CUresult> {
        let parts = self.bytes.div_ceil(PART as u64);
        let lanes = Arc::clone(&self.lanes);
        let taken = lanes.take(LANES.min(parts as usize));
        let progress = Progress { next: AtomicU64::new(0), short: Mutex::new(None) };
        let shared = Arc::new((self, progress));
        let (done, outcomes) = channel();
        for _ in 1..taken.1 {
            let (shared, done) = (Arc::clone(&shared), done.clone());
            let helpers = shared.0.helpers.clone();
            helpers.run(move || {
                let (copy, progress) = &*shared;
                let entered = call!(copy.table, cuCtxSetCurrent(current(&copy.context)));
                // The other threads end with this one's error, too.
                let _ = done.send(entered.and_then(|()| copy.move_parts(progress)));
            });
        }
        drop(done);
        let (copy, progress) = &*shared;
        let own = copy.move_parts(progress);
        let all = outcomes.iter().fold(own, Result::and);
        all.map(|()| match *progress.short.lock() {
            Some(short) => (short.part * PART as u64 + short.bytes as u64, short.errno),
            None => (copy.bytes, 0),
        })
    }

    /// Moves parts until none is left.
    fn move_parts(&self, progress: &Progress) -> Result<(), CUresult> {
        let piece = self.pool.take(self.table, PART)?;
        let stream = self.pool.file_stream(self.table)?;
        let moved = self.move_through(piece.view().slot(0), stream, progress);
        if moved.is_err() {
            // The device may go on to use the memory, and the stream.
            piece.leak();
            progress.next.store(u64::MAX / 2, Ordering::Release);
            return moved;
        }
        self.pool.return_file_stream(stream);
        Ok(())
    }

    fn move_through(
        &self,
        slot: *mut u8,
        stream: Handle<outboard_abi::CUstream_st>,
        progress: &Progress,
    ) -> Result<(), CUresult> {
        loop {
            let part = progress.next.fetch_add(1, Ordering::AcqRel);
            let Some(from) = part.checked_mul(PART as u64).filter(|from| *from < self.bytes) else {
                return Ok(());
            };
            if progress.is_over(part) {
                return Ok(());
            }
            let bytes = (self.bytes - from).min(PART as u64) as usize;
            // SAFETY: a slot of that many bytes, which the device does not use: each of its copies
            // has been waited for.
            let memory = unsafe { std::slice::from_raw_parts_mut(slot, bytes) };
            let device = self.device.offset(from).0;
            let (moved, errno) = if self.to_device {
                let (read, errno) = read(&self.file.file, memory, self.offset + from);
                if read > 0 {
                    call!(
                        self.table,
                        cuMemcpyHtoDAsync_v2(device, slot.cast(), read, stream.get())
                    )?;
                    call!(self.table, cuStreamSynchronize(stream.get()))?;
                }
                (read, errno)
            } else {
                call!(self.table, cuMemcpyDtoHAsync_v2(slot.cast(), device, bytes, stream.get()))?;
                call!(self.table, cuStreamSynchronize(stream.get()))?;
                write(&self.file.file, memory, self.offset + from)
            };
            if moved < bytes {
                progress.ends(Short { part, bytes: moved, errno });
            }
        }
    }
}

/// Reads until the memory is full or the file ends; how many bytes, and the `errno` of an error.
fn read(file: &File, memory: &mut [u8], offset: u64) -> (usize, u32) {
    let mut read = 0;
    while read < memory.len() {
        match file.read_at(&mut memory[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (read, errno_of(&error)),
        }
    }
    (read, 0)
}

/// Writes it all; likewise.
fn write(file: &File, memory: &[u8], offset: u64) -> (usize, u32) {
    let mut written = 0;
    while written < memory.len() {
        match file.write_at(&memory[written..], offset + written as u64) {
            Ok(0) => return (written, libc::EIO as u32),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, errno_of(&error)),
        }
    }
    (written, 0)
}
