//! What workers log: each has a pipe, and this process writes their lines to its own log. So no
//! worker has a descriptor of the log, which it could empty, and none writes a line that looks as
//! if it were another's, or more than a bounded number.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use outboard_wire::plain;
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::Value;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

use super::logs::{self, Format};

/// Of a longer line the rest is left out.
const LONGEST: usize = 8 << 10;
/// Bytes that a worker may say at once, ...
const BURST: usize = 256 << 10;
/// ... and each second, ...
const EACH_SECOND: usize = 16 << 10;
/// ... or so many times more where the operator has chosen what is logged.
const IF_CHOSEN: usize = 1 << 10;
/// What waits to be read when there is too much stays in the pipe, and what does not fit there the
/// worker throws away.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes that are read at once.
const PIECE: usize = 16 << 10;

/// The end for this process, and the one for a worker, which never waits there.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}

/// Writes what comes through a pipe to the log, in a task of its own until nobody has the other
/// end. A worker may have kept something else than the pipe.
pub(super) fn relay(from: &OwnedFd, worker: u32, format: Format) -> io::Result<()> {
    if FileType::from_raw_mode(fstat(from)?.st_mode) != FileType::Fifo {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "what a worker has kept is no pipe",
        ));
    }
    // The worker has what was handed to it, and could have reading there wait.
    let own = format!("/proc/self/fd/{}", from.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let from = rustix::fs::open(own, flags, Mode::empty())?;
    // SAFETY: an open descriptor that the AsyncFd owns; nothing takes it out or changes what it
    // refers to.
    let from = unsafe { AsyncFd::register_with_interest(from, Interest::READABLE) }
        .map_err(io::Error::from)?;
    tokio::task::spawn_local(async move {
        let mut lines = Lines::new(worker, format, logs::is_chosen());
        // Without the log there is nobody to tell.
        let _ = pass_on(&from, &mut lines, &mut |text| {
            let _ = io::stderr().lock().write_all(text);
        })
        .await;
    });
    Ok(())
}

async fn pass_on(
    from: &AsyncFd<OwnedFd>,
    lines: &mut Lines,
    write: &mut impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let mut ready = from.readable().await?;
        let read = match rustix::io::read(from.get_ref(), &mut piece[..]) {
            Ok(read) => read,
            Err(Errno::AGAIN) => {
                ready.clear_ready();
                continue;
            }
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        drop(ready);
        let text = if read == 0 { lines.end() } else { lines.take(&piece[..read], Instant::now()) };
        write(&text);
        if read == 0 {
            return Ok(());
        }
        if lines.are_too_many() {
            sleep(PAUSE).await;
        } else {
            // Others are to have their turn.
            tokio::task::yield_now().await;
        }
    }
}

/// The lines of one worker.
struct Lines {
    worker: u32,
    format: Format,
    unfinished: Vec<u8>,
    /// Whether the rest of the line is left out.
    cut: bool,
    /// Bytes that it may say, at that time.
    may: usize,
    at: Instant,
    most: usize,
    each_second: usize,
    left_out: u64,
}

impl Lines {
    fn new(worker: u32, format: Format, chosen: bool) -> Lines {
        let times = if chosen { IF_CHOSEN } else { 1 };
        let (most, each_second) = (BURST * times, EACH_SECOND * times);
        let (unfinished, cut, at, left_out) = (Vec::new(), false, Instant::now(), 0);
        Lines { worker, format, unfinished, cut, may: most, at, most, each_second, left_out }
    }

    fn are_too_many(&self) -> bool {
        self.may == 0
    }

    /// What the log gets of bytes that come now.
    fn take(&mut self, bytes: &[u8], now: Instant) -> Vec<u8> {
        let since = now.saturating_duration_since(self.at).as_millis();
        let more =
            usize::try_from(since).unwrap_or(usize::MAX).saturating_mul(self.each_second) / 1000;
        if more > 0 {
            self.may = self.may.saturating_add(more).min(self.most);
            self.at = now;
        }
        let mut out = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = LONGEST - self.unfinished.len();
            self.cut |= text.len() > room;
            self.unfinished.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                self.finish(&mut out);
            }
        }
        out
    }

    /// What is left when the worker has ended.
    fn end(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.unfinished.is_empty() {
            self.finish(&mut out);
        }
        if self.left_out > 0 {
            self.tell(&mut out);
        }
        out
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        let line = std::mem::take(&mut self.unfinished);
        let cut = std::mem::take(&mut self.cut);
        if self.may < line.len() {
            self.may = 0;
            self.left_out += 1;
            return;
        }
        self.may -= line.len();
        if self.left_out > 0 {
            self.tell(out);
        }
        let text = String::from_utf8_lossy(&line);
        self.write(&if cut { format!("{text}...") } else { text.into_owned() }, out);
    }

    fn tell(&mut self, out: &mut Vec<u8>) {
        let left_out = std::mem::take(&mut self.left_out);
        self.write(&format!("{left_out} or more lines of this worker were left out"), out);
    }

    fn write(&self, text: &str, out: &mut Vec<u8>) {
        let worker = self.worker;
        let line = match self.format {
            Format::Text => format!("worker {worker}: {}", plain(text)),
            Format::Json => {
                let said = match serde_json::from_str(text) {
                    Ok(Value::Object(said)) => said,
                    _ => serde_json::Map::from_iter([("message".to_owned(), text.into())]),
                };
                let said = said.into_iter().chain([("worker".to_owned(), worker.into())]);
                Value::Object(said.collect()).to_string()
            }
        };
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &mut Lines, bytes: &[u8]) -> String {
        let now = lines.at;
        String::from_utf8(lines.take(bytes, now)).unwrap()
    }

    #[test]
    fn each_line_says_whose_it_is() {
        let mut lines = Lines::new(7, Format::Text, false);
        assert_eq!(
            text(&mut lines, b"2026 INFO a server's own line\nha"),
            "worker 7: 2026 INFO a server's own line\n"
        );
        assert_eq!(
            text(&mut lines, b"lf\r\x1b[2J\n\xff\n"),
            "worker 7: half??[2J\nworker 7: \u{fffd}\n"
        );
        assert_eq!(text(&mut lines, b"the last"), "");
        assert_eq!(lines.end(), b"worker 7: the last\n");
        let mut lines = Lines::new(7, Format::Json, false);
        for (said, expected) in [
            (&b"{\"level\":\"INFO\",\"worker\":1}\n"[..], "{\"level\":\"INFO\",\"worker\":7}\n"),
            (b"panicked\n", "{\"message\":\"panicked\",\"worker\":7}\n"),
            (b"{\"a\":1}{\n", "{\"message\":\"{\\\"a\\\":1}{\",\"worker\":7}\n"),
        ] {
            assert_eq!(text(&mut lines, said), expected);
        }
    }

    #[test]
    fn a_line_has_an_end_and_a_worker_does_not_fill_the_log() {
        let mut lines = Lines::new(7, Format::Text, false);
        let long = [&vec![b'x'; 3 * LONGEST], &b"\nshort\n"[..]].concat();
        let said = text(&mut lines, &long);
        assert!(said.len() < LONGEST + 100 && said.ends_with("x...\nworker 7: short\n"));
        let flood = b"a line of forty bytes, which is not long\n".repeat(1 << 16);
        let said = text(&mut lines, &flood);
        assert!(said.len() < 2 * BURST && lines.are_too_many(), "{}", said.len());
        // A second later it may say a little again.
        let later = lines.at + Duration::from_secs(1);
        let said = String::from_utf8(lines.take(&flood, later)).unwrap();
        assert!(said.contains("lines of this worker were left out"), "{said}");
        assert!(said.len() < 2 * EACH_SECOND, "{}", said.len());
        let chosen = Lines::new(7, Format::Text, true);
        assert!(chosen.may > 100 * BURST);
    }

    #[tokio::test]
    async fn what_is_no_pipe_is_not_read() {
        let file = tempfile::tempfile().unwrap();
        assert!(relay(&file.into(), 7, Format::Text).is_err());
    }

    #[tokio::test]
    async fn a_worker_that_has_the_other_end_cannot_have_the_server_wait() {
        let (kept, to) = pipe().unwrap();
        let read = async {
            relay(&kept, 7, Format::Text).unwrap();
            rustix::fs::fcntl_setfl(&kept, OFlags::empty()).unwrap();
            // It takes away what has made the pipe readable.
            for _ in 0..100 {
                rustix::io::write(&to, b"x").unwrap();
                rustix::io::read(&kept, &mut [0; 16]).unwrap();
                tokio::task::yield_now().await;
            }
        };
        let tasks = tokio::task::LocalSet::new();
        let all = tasks.run_until(read);
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("nobody waits");
    }
}
