//! What kernels print: the driver writes it to this process's standard output, failed assertions to standard error, and both belong on the
//! client's.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, MemfdFlags, OFlags};

use super::io::Replier;

/// Both standard streams, caught.
pub(crate) struct Output {
    streams: [Caught; 2],
}

/// A standard stream, caught in memory.
struct Caught {
    /// What tells the client which one it is.
    notice: u16,
    file: std::fs::File,
    /// How much of it has been sent on. Held while sending, which keeps the pieces in order.
    sent: Mutex<u64>,
}

/// Sent in one notice.
const PIECE: usize = 1 << 20;

impl Output {
    /// Puts files in memory in place of standard output and standard error. Logs must go elsewhere by now.
    pub(crate) fn catch() -> io::Result<Output> {
        let output = Caught::new(outboard_wire::notice::OUTPUT)?;
        rustix::stdio::dup2_stdout(&output.file)?;
        let errors = Caught::new(outboard_wire::notice::ERRORS)?;
        rustix::stdio::dup2_stderr(&errors.file)?;
        Ok(Output { streams: [output, errors] })
    }

    /// Sends on what has been printed since the last time. Replies that follow arrive after it.
    pub(crate) fn forward(&self, replier: &Replier) {
        // SAFETY: null flushes all C streams; the driver prints through them.
        unsafe { libc::fflush(core::ptr::null_mut()) };
        // This is done for each wait, before its answer, and nearly always in vain: so one cheap question each.
        for stream in &self.streams {
            stream.forward(replier);
        }
    }
}

impl Caught {
    fn new(notice: u16) -> io::Result<Caught> {
        let file: OwnedFd = rustix::fs::memfd_create(c"device output", MemfdFlags::CLOEXEC)?;
        // Whoever writes appends, whatever was read meanwhile.
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
        Ok(Caught { notice, file: file.into(), sent: Mutex::new(0) })
    }

    fn forward(&self, replier: &Replier) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut piece = Vec::new();
        loop {
            // Who appends moves the position of the open file, which is one for all that share it, to the end.
            let end = rustix::fs::tell(&self.file).unwrap_or(*sent);
            let count = (end - *sent).min(PIECE as u64) as usize;
            if count == 0 {
                return;
            }
            piece.resize(count, 0);
            if self.file.read_exact_at(&mut piece, *sent).is_err() {
                return;
            }
            if replier.notice(self.notice, |writer| writer.fixed(&piece)).is_err() {
                return;
            }
            // Gives the memory back; the length stays, since writers append to it.
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(self.file.as_fd(), punch, *sent, count as u64);
            *sent += count as u64;
        }
    }
}
