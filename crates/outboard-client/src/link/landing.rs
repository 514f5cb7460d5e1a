//! Reads the bytes that a command returns straight into the program's memory, not through the
//! link's buffer and the answer.
//!
//! Only the thread that waits for the answer reads it so, while it reads for all. No other thread
//! ever writes the program's memory, and none does after the call has returned. A thread that stops
//! reading in the middle of an answer copies the received bytes into the buffer.

use std::io;

use outboard_session::client::Incoming;
use rustix::io::Errno;

/// Fewer bytes are copied in less time than a system call more takes.
const LEAST_LANDING: usize = 16 << 10;

/// Where the bytes of an answer belong.
#[derive(Debug)]
pub(super) struct Landing {
    /// The command's number.
    seq: u64,
    to: *mut u8,
    len: usize,
}

impl Landing {
    /// The `len` bytes that command `seq` returns belong at `to`; none if they are too few.
    ///
    /// # Safety
    /// The memory is valid for writes, and nobody else uses it, while the result lives.
    pub(super) unsafe fn new(seq: u64, to: *mut u8, len: usize) -> Option<Landing> {
        (len >= LEAST_LANDING).then_some(Landing { seq, to, len })
    }

    /// The number of the command.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// How much to read at most so that the answer can be opened, if that is what comes next.
    pub(super) fn most_before(incoming: &mut Incoming) -> usize {
        match Incoming::HEAD.checked_sub(incoming.buffer().unread().len()) {
            None | Some(0) => usize::MAX,
            Some(missing) => missing,
        }
    }

    /// Opens the answer, if it is what comes next.
    pub(super) fn open(
        &self,
        incoming: &mut Incoming,
    ) -> Result<bool, outboard_session::ProtocolError> {
        incoming.open(self.seq, self.len)
    }

    /// Reads bytes of the open answer with `read`: how many, and whether those were the last ones.
    /// `None` if the memory cannot be written now, as when its pages are protected.
    pub(super) fn read(
        &self,
        incoming: &mut Incoming,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<(usize, bool)>> {
        let come = incoming.open_bytes().unwrap_or(self.len);
        // SAFETY: by the contract of `new`, and `come` is not beyond the end.
        let rest = unsafe { std::slice::from_raw_parts_mut(self.to.add(come), self.len - come) };
        match read(rest) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(Some((count, incoming.came_elsewhere(count)))),
            Err(error) if error.raw_os_error() == Some(Errno::FAULT.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// This thread reads no more, or not to there: what has come goes on in the buffer.
    pub(super) fn leave(&self, incoming: &mut Incoming) {
        if let Some(come) = incoming.open_bytes() {
            // SAFETY: the system has written these bytes, so they can be read.
            incoming.close(unsafe { std::slice::from_raw_parts(self.to, come) });
        }
    }
}
