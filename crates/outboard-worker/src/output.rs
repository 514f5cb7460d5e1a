//! Output of kernels: the driver writes it to this process's standard output, and failed assertions
//! to standard error; both belong on the client's.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use outboard_transport::page::page_bytes;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::io::Replier;

/// Both standard streams, caught.
pub(crate) struct Output {
    streams: [Caught; 2],
}

/// A standard stream, caught in memory.
struct Caught {
    /// The notice that carries its text to the client.
    notice: u16,
    file: std::fs::File,
    /// Held while sending, which keeps the pieces in order.
    state: Mutex<OutputState>,
}

struct OutputState {
    /// How much of the file has been sent on.
    sent: u64,
    /// The page with what will be written next.
    page: Page,
}

/// A page of the file, which a byte that is written shows in. The file is longer than what has been
/// written to it.
struct Page {
    memory: *const AtomicU8,
    /// Where it begins in the file.
    start: u64,
}

// SAFETY: memory that is only ever read, as atomics.
unsafe impl Send for Page {}

/// Whether kernels may have printed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Printed {
    /// Anything: to ask the system costs little, compared to what has happened.
    Perhaps,
    /// Most likely nothing: a look at memory decides. Only text that begins with a zero byte
    /// escapes it, until the next time.
    Hardly,
}

impl Printed {
    /// After a wait that took so long.
    pub(crate) fn after(wait: Duration) -> Printed {
        const SHORT: Duration = Duration::from_micros(50);
        if wait < SHORT { Printed::Hardly } else { Printed::Perhaps }
    }
}

unsafe extern "C" {
    /// C's standard output.
    static stdout: *mut libc::FILE;
    /// How many bytes a stream has in its buffer.
    fn __fpending(stream: *mut libc::FILE) -> usize;
}

/// Sent in one notice.
const PIECE: usize = 1 << 20;

impl Output {
    /// Puts files in memory in place of standard output and standard error. Logs must go elsewhere
    /// by now.
    pub(crate) fn catch() -> io::Result<Output> {
        let output = Caught::new(outboard_wire::notice::OUTPUT)?;
        rustix::stdio::dup2_stdout(&output.file)?;
        let errors = Caught::new(outboard_wire::notice::ERRORS)?;
        rustix::stdio::dup2_stderr(&errors.file)?;
        Ok(Output { streams: [output, errors] })
    }

    /// Catches nothing: this process's standard output and standard error stay where they are.
    #[cfg(fuzzing)]
    pub(crate) fn aside() -> io::Result<Output> {
        let streams = [outboard_wire::notice::OUTPUT, outboard_wire::notice::ERRORS];
        let [output, errors] = streams.map(Caught::new);
        Ok(Output { streams: [output?, errors?] })
    }

    /// Sends on what has been printed since the last time. Replies that follow arrive after it.
    pub(crate) fn forward(&self, replier: &Replier, printed: Printed) {
        // This happens for each wait, before its answer, and nearly always finds nothing.
        if printed == Printed::Hardly && !self.shows_something() {
            return;
        }
        // SAFETY: null flushes all C streams; the driver prints through them.
        unsafe { libc::fflush(core::ptr::null_mut()) };
        for stream in &self.streams {
            stream.forward(replier);
        }
    }

    fn shows_something(&self) -> bool {
        // SAFETY: standard output is there as long as the process; a stream that another thread is
        // printing to may say either.
        let buffered = unsafe { __fpending(stdout) };
        buffered > 0 || self.streams.iter().any(Caught::shows_something)
    }
}

impl Page {
    /// The page of the byte at `at`. The file is made long enough.
    fn of(file: &std::fs::File, at: u64) -> io::Result<Page> {
        let start = at / page_bytes() * page_bytes();
        rustix::fs::fallocate(file, FallocateFlags::empty(), start, page_bytes())?;
        // SAFETY: a new mapping, wherever there is room; the file never gets shorter.
        let memory = unsafe {
            mmap(
                core::ptr::null_mut(),
                page_bytes() as usize,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                start,
            )?
        };
        Ok(Page { memory: memory.cast(), start })
    }

    /// Whether the byte at `at` has been written, unless it is zero.
    fn has(&self, at: u64) -> bool {
        let offset = at.wrapping_sub(self.start);
        // SAFETY: within the page, which is mapped while this lives.
        offset >= page_bytes()
            || unsafe { (*self.memory.add(offset as usize)).load(Ordering::Relaxed) != 0 }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody looks at it any more.
        let _ = unsafe { munmap(self.memory.cast_mut().cast(), page_bytes() as usize) };
    }
}

impl Caught {
    fn new(notice: u16) -> io::Result<Caught> {
        let file: OwnedFd = rustix::fs::memfd_create(c"device output", MemfdFlags::CLOEXEC)?;
        let file = file.into();
        let page = Page::of(&file, 0)?;
        Ok(Caught { notice, file, state: Mutex::new(OutputState { sent: 0, page }) })
    }

    fn shows_something(&self) -> bool {
        let state = self.state.lock();
        state.page.has(state.sent)
    }

    fn forward(&self, replier: &Replier) {
        let mut state = self.state.lock();
        let OutputState { sent, page } = &mut *state;
        let mut piece = Vec::new();
        loop {
            // A write moves the position of the open file, which all that share it use.
            let end = rustix::fs::tell(&self.file).unwrap_or(*sent);
            let count = end.saturating_sub(*sent).min(PIECE as u64) as usize;
            if count == 0 {
                if *sent / page_bytes() * page_bytes() != page.start
                    && let Ok(next) = Page::of(&self.file, *sent)
                {
                    *page = next;
                }
                return;
            }
            piece.resize(count, 0);
            if self.file.read_exact_at(&mut piece, *sent).is_err() {
                return;
            }
            if replier.notice(self.notice, |writer| writer.fixed(&piece)).is_err() {
                return;
            }
            // Gives the memory back; the length stays.
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(self.file.as_fd(), punch, *sent, count as u64);
            *sent += count as u64;
        }
    }
}
