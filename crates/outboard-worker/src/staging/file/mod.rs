//! Copies between a file and device memory, beside the program's streams.
//!
//! A few threads take the parts of a copy in turn. Each reads a part of the file into page-locked
//! memory and has the device copy it from there, or the other way round, so that the file and the
//! device work at the same time.

mod shared_out;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use outboard_abi::CUresult;
use outboard_driver::{Table, call};
use outboard_wire::DevicePtr;
use rustix::io::Errno;

use self::shared_out::{Outcome, Progress, Short, share_out};
use super::memory::Pool;
use crate::contexts::{Context, current};
use crate::files::{UsedFile, errno_of};
use crate::helpers::Helpers;
use crate::objects::Handle;

pub(crate) use self::shared_out::FileThreads;

/// Bytes of a part: a processor's cache holds them until the device has read them.
const PART: usize = 2 << 20;
/// Threads that one copy has at most.
const MOST_THREADS: usize = 4;
/// A read of the file may be silent for so long; then the client may read it. A write is waited
/// for: if it came to the file later, it might replace what the client has written meanwhile.
const SILENCE: Duration = Duration::from_secs(10);

/// A copy between a file and device memory.
pub(crate) struct FileCopy {
    pub(crate) table: &'static Table,
    pub(crate) context: Context,
    pub(crate) pool: Arc<Pool>,
    pub(crate) helpers: Helpers,
    pub(crate) threads: Arc<FileThreads>,
    pub(crate) file: UsedFile,
    /// Where in the file it begins, in bytes.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) device: DevicePtr,
    pub(crate) to_device: bool,
}

/// How many bytes were moved, and the `errno` of what ended it early; 0: nothing did, or the file
/// ended.
pub(crate) type Moved = (u64, u32);

impl FileCopy {
    /// Does it. Waits for the file and the device.
    pub(crate) fn run(self) -> Result<Moved, CUresult> {
        let (helpers, threads) = (self.helpers.clone(), Arc::clone(&self.threads));
        let (parts, bytes) = (self.bytes.div_ceil(PART as u64), self.bytes);
        let patience = self.to_device.then_some(SILENCE);
        let most = MOST_THREADS.min(usize::try_from(parts).unwrap_or(MOST_THREADS));
        let work = move |progress: &Progress| {
            call!(self.table, cuCtxSetCurrent(current(&self.context)))?;
            self.move_parts(progress)
        };
        Ok(match share_out(&helpers, &threads, (most, parts), patience, work)? {
            Outcome::Whole => (bytes, 0),
            Outcome::Short(short) => (short.part * PART as u64 + short.bytes as u64, short.errno),
            Outcome::GivenUp => (0, libc::ETIMEDOUT as u32),
        })
    }

    /// Moves parts until none is left.
    fn move_parts(&self, progress: &Progress) -> Result<(), CUresult> {
        let piece = self.pool.take(self.table, PART)?;
        let stream = self.pool.file_stream(self.table)?;
        let moved = self.move_through(piece.view().slot(0), stream, progress);
        if !matches!(moved, Ok(true)) {
            // The device may go on to use the memory, and the stream; or the context may be gone.
            piece.leak();
            return moved.map(drop);
        }
        self.pool.return_file_stream(stream);
        Ok(())
    }

    /// Whether the file may be used so; else an `errno`.
    fn check(&self) -> Result<(), Errno> {
        match self.to_device {
            true => self.file.check_read(self.offset, self.bytes),
            false => self.file.check_write(),
        }
    }

    /// As [`FileCopy::move_parts`], through this memory and in this stream. `false` if the copy has
    /// been given up meanwhile.
    fn move_through(
        &self,
        slot: *mut u8,
        stream: Handle<outboard_abi::CUstream_st>,
        progress: &Progress,
    ) -> Result<bool, CUresult> {
        let mut checked = None;
        while let Some(part) = progress.take() {
            if let Err(errno) = *checked.get_or_insert_with(|| self.check()) {
                let errno = errno.raw_os_error() as u32;
                progress.ends(Short { part, bytes: 0, errno });
                continue;
            }
            let from = part * PART as u64;
            let bytes = (self.bytes - from).min(PART as u64) as usize;
            // SAFETY: a slot of that many bytes, which the device does not use: each of its copies
            // has been waited for.
            let memory = unsafe { std::slice::from_raw_parts_mut(slot, bytes) };
            let device = self.device.offset(from).0;
            let (moved, errno) = if self.to_device {
                let (read, errno) = read(self.file.descriptor(), memory, self.offset + from);
                let copy = || {
                    if read > 0 {
                        let (table, stream) = (self.table, stream.get());
                        call!(table, cuMemcpyHtoDAsync_v2(device, slot.cast(), read, stream))?;
                        call!(table, cuStreamSynchronize(stream))?;
                    }
                    Ok(())
                };
                let Some(copied) = progress.unless_given_up(copy) else { return Ok(false) };
                copied?;
                (read, errno)
            } else {
                call!(self.table, cuMemcpyDtoHAsync_v2(slot.cast(), device, bytes, stream.get()))?;
                call!(self.table, cuStreamSynchronize(stream.get()))?;
                write(self.file.descriptor(), memory, self.offset + from)
            };
            if moved < bytes {
                progress.ends(Short { part, bytes: moved, errno });
            }
        }
        Ok(true)
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
