//! A stream whose records the kernel makes: what is written to the socket is encrypted, and what is
//! read from it was decrypted.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::socket::{self, Received};
use super::socket_of;
use crate::locks::lock;
use crate::stream::{Capabilities, Interest, Readiness, Stream};
use crate::tls::incoming::{Told, told};
use crate::tls::keys::{Kind, RECORD, wrong};
use crate::tls::outgoing::CLOSE_NOTIFY;
use crate::waker::Waker;

/// TLS over TCP, by the kernel.
#[derive(Debug)]
pub(crate) struct KernelStream {
    pub(super) below: Arc<dyn Stream>,
    use_of_key: Mutex<UseOfKey>,
    /// The peer has ended its direction.
    is_over: AtomicBool,
    /// A wait has ended because there is something to read, and nothing has been read since.
    is_promised: AtomicBool,
    /// There was nothing, though a wait had ended: part of a record.
    has_part: AtomicBool,
    /// What was found out while nobody read.
    failure: Mutex<Option<io::Error>>,
}

/// How long a thread that waits for the rest of a record sleeps before it looks again.
const PAUSE: Duration = Duration::from_millis(1);

/// How much the key has encrypted with which this side sends.
#[derive(Debug)]
struct UseOfKey {
    /// A connection ends when its key has made so many records.
    limit: u64,
    /// Records that it has made, as far as is known here.
    records: u64,
    /// With how many of them the kernel is asked how many there are.
    asks_at: u64,
}

impl UseOfKey {
    /// Of a key that may make so many. What is under way when it has made most of them may be more
    /// than one record, and is much less than the rest.
    fn new(records_of_a_key: u64) -> UseOfKey {
        UseOfKey { limit: records_of_a_key - records_of_a_key / 8, records: 0, asks_at: 0 }
    }

    /// Takes note of what one write has sent. The kernel may have made more records of it.
    fn note(&mut self, bytes: usize) {
        self.records = self.records.saturating_add(bytes.div_ceil(RECORD) as u64);
    }

    /// Whether the key is used up, by the kernel's own count whenever an eighth of the rest may be.
    fn is_up(&mut self, made: impl FnOnce() -> io::Result<u64>) -> io::Result<bool> {
        if self.records >= self.asks_at {
            self.records = made()?;
            self.asks_at = self.records + self.limit.saturating_sub(self.records) / 8;
        }
        Ok(self.records >= self.limit)
    }
}

/// A connection that has to end because a side needs another key. Whoever can resume does so: it is
/// no violation of TLS.
fn needs_another_key(who: &str) -> io::Error {
    let why = format!("{who} needs another key, for which the kernel takes another connection");
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
}

impl KernelStream {
    /// Over a socket that has both keys.
    pub(super) fn new(below: Arc<dyn Stream>, records_of_a_key: u64) -> KernelStream {
        let use_of_key = UseOfKey::new(records_of_a_key).into();
        KernelStream {
            below,
            use_of_key,
            is_over: AtomicBool::new(false),
            is_promised: AtomicBool::new(false),
            has_part: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        socket_of(&*self.below).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// All of a record that is not data, of which the reader's memory has the beginning.
    fn rest_of(&self, begun: &[u8], kind: Kind, mut is_whole: bool) -> io::Result<Vec<u8>> {
        let mut plain = begun.to_vec();
        while !is_whole {
            // The kernel has decrypted it already.
            let mut room = [0; 256];
            let more = socket::receive(self.fd()?, &mut room)?;
            if more.kind != Some(kind as u8) || plain.len() + more.count > RECORD {
                return Err(wrong("a message of the peer is cut off"));
            }
            plain.extend_from_slice(&room[..more.count]);
            is_whole = more.is_whole;
        }
        Ok(plain)
    }

    /// Ends what the peer sends for every thread that waits for it.
    fn end_incoming(&self) -> io::Result<()> {
        self.is_over.store(true, Ordering::Release);
        match rustix::net::shutdown(self.fd()?, rustix::net::Shutdown::Read) {
            // The peer was faster.
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a read would find something.
    fn has_record(&self) -> bool {
        self.fd().and_then(socket::has_record).unwrap_or_else(|error| {
            // The kernel says it once.
            lock(&self.failure).get_or_insert(error);
            true
        })
    }

    fn read_records(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = lock(&self.failure).take() {
            return Err(error);
        }
        while !self.is_over.load(Ordering::Acquire) {
            let Received { count, kind, is_whole } = socket::receive(self.fd()?, buffer)?;
            // A killed peer sends no closing alert: see `TlsStream`.
            let Some(kind) = kind else { return Ok(0) };
            let kind = Kind::of(kind)?;
            if kind == Kind::Data {
                match count {
                    0 => continue,
                    count => return Ok(count),
                }
            }
            match told(kind, &self.rest_of(&buffer[..count], kind, is_whole)?)? {
                Told::Nothing => {}
                Told::End => self.end_incoming()?,
                Told::NextKey { .. } => {
                    self.shutdown()?;
                    return Err(needs_another_key("the other side"));
                }
            }
        }
        Ok(0)
    }
}

impl Stream for KernelStream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let was_promised = self.is_promised.swap(false, Ordering::Relaxed);
        let result = self.read_records(buffer);
        let kind = result.as_ref().err().map(io::Error::kind);
        let has_part = kind == Some(io::ErrorKind::WouldBlock)
            && (was_promised || self.has_part.load(Ordering::Relaxed));
        self.has_part.store(has_part, Ordering::Relaxed);
        if kind == Some(io::ErrorKind::InvalidData) {
            // The kernel says it once, and then waits for more.
            self.is_over.store(true, Ordering::Release);
            let _ = self.below.shutdown();
        }
        result
    }

    /// The kernel keeps what it counts, and sends it without a further call.
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            // It would be a record.
            return Ok(0);
        }
        let mut used = lock(&self.use_of_key);
        if used.is_up(|| socket::records_sent(self.fd()?))? {
            drop(used);
            self.shutdown()?;
            return Err(needs_another_key("this side"));
        }
        let count = self.below.write(buffers)?;
        used.note(count);
        Ok(count)
    }

    fn wait(
        &self,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<Readiness> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let left = || deadline.map(|end| end.saturating_duration_since(Instant::now()));
        loop {
            let ready = self.below.wait(interest, waker, left())?;
            // Some kernels (Linux 6.1) take part of a record for something to read.
            let in_vain = ready.read
                && !ready.hangup
                && self.has_part.load(Ordering::Relaxed)
                && !self.has_record();
            if !in_vain {
                self.is_promised.fetch_or(ready.read, Ordering::Relaxed);
                return Ok(ready);
            }
            if ready.write || ready.woken {
                return Ok(Readiness { read: false, ..ready });
            }
            let pause = left().map_or(PAUSE, |left| left.min(PAUSE));
            let other =
                self.below.wait(Interest { read: false, ..interest }, waker, Some(pause))?;
            if other != Readiness::default() || left() == Some(Duration::ZERO) {
                return Ok(other);
            }
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        // The peer does not need it.
        let _ = self.fd().and_then(|fd| socket::send(fd, Kind::Alert, &mut CLOSE_NOTIFY.clone()));
        self.below.shutdown()
    }

    fn abandon(&self) -> io::Result<()> {
        self.below.abandon()
    }

    fn check_peer(&self) -> io::Result<()> {
        self.below.check_peer()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.below.socket()
    }

    fn is_unanswered(&self) -> bool {
        self.below.is_unanswered()
    }

    fn error(&self) -> Option<io::Error> {
        self.below.error()
    }

    fn capabilities(&self) -> Capabilities {
        // A process that received the descriptor would not know what it is.
        Capabilities { descriptor: false, ..self.below.capabilities() }
    }

    fn transport(&self) -> &'static str {
        "tcp+tls"
    }

    fn peer(&self) -> String {
        self.below.peer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked_seldom_and_a_key_never_makes_more_records() {
        // The kernel makes five times as many records as are noted.
        let (mut used, mut made, mut asked) = (UseOfKey::new(1 << 24), 5, 0);
        while !used
            .is_up(|| {
                asked += 1;
                Ok(made)
            })
            .unwrap()
        {
            used.note(1);
            made += 5;
        }
        assert!(made < 1 << 24, "{made}");
        assert!(made >= (1 << 24) / 8 * 7 && asked < 400, "{made}, {asked} times");
        let mut used = UseOfKey::new(8);
        assert!(!used.is_up(|| Ok(6)).unwrap());
        assert!(used.is_up(|| Ok(7)).unwrap());
        assert!(!UseOfKey::new(u64::MAX).is_up(|| Ok(1 << 60)).unwrap());
    }
}
