//! A stream over an encrypted one.
//!
//! One thread may read while another writes: each direction has its own key and its own lock, and
//! no thread blocks while it holds one. A thread that needs a next key locks `secrets` last.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::config::Fingerprint;
use super::handshake::{Handshake, Side, Step};
use super::incoming::Incoming;
use super::keys::{Key, Secrets};
use super::outgoing::Outgoing;
use crate::locks::lock;
use crate::stream::{Capabilities, Interest, Readiness, Stream};
use crate::waker::Waker;

/// TLS over another stream.
pub struct TlsStream {
    pub(super) below: Arc<dyn Stream>,
    incoming: Mutex<Incoming>,
    pub(super) outgoing: Mutex<Outgoing>,
    secrets: Mutex<Secrets>,
    /// The peer wants this side to have another key.
    wants_next_key: AtomicBool,
    /// Threads that wait for something to read.
    waiting: AtomicU32,
    /// An event that is readable while received bytes wait here rather than in the stream below:
    /// threads that wait for that stream also wait for it.
    bell: OwnedFd,
    rings: AtomicBool,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("below", &self.below).finish_non_exhaustive()
    }
}

/// The first bytes of a peer that does not speak TLS.
#[derive(Debug, thiserror::Error)]
#[error("the other side does not encrypt")]
struct InTheClear(Vec<u8>);

impl InTheClear {
    fn error(said: &[u8]) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, InTheClear(said.to_vec()))
    }
}

/// The first bytes of a peer that does not speak TLS, if the handshake has failed because of them.
pub fn in_the_clear(error: &io::Error) -> Option<&[u8]> {
    error.get_ref()?.downcast_ref().map(|InTheClear(said)| said.as_slice())
}

/// Blocks until the stream below is ready, at most until the deadline.
fn wait_below(below: &dyn Stream, interest: Interest, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    below.wait(interest, None, Some(left)).map(drop)
}

/// Writes all of it, at most until the deadline.
fn write_below(below: &dyn Stream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match below.write(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_below(below, Interest::WRITE, deadline)?
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl TlsStream {
    pub(super) fn shake_hands<'a>(
        below: Arc<dyn Stream>,
        side: Side,
        first: impl FnOnce(Option<Fingerprint>) -> Cow<'a, [u8]>,
        deadline: Instant,
    ) -> io::Result<Arc<TlsStream>> {
        let mut handshake = Handshake::new(side);
        loop {
            let step = match handshake.step() {
                Ok(step) => step,
                Err(_) if let Some(said) = handshake.in_the_clear() => {
                    return Err(InTheClear::error(said));
                }
                Err(error) => {
                    // The peer is told why, if it can be.
                    let _ = write_below(&*below, &handshake.take_alert(), deadline);
                    return Err(error);
                }
            };
            match step {
                Step::Done => {}
                Step::Open => break,
                Step::Blocked => {
                    write_below(&*below, &handshake.take_to_send(), deadline)?;
                    match handshake.receive(|room| below.read(room)) {
                        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        Ok(_) => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            wait_below(&*below, Interest::READ, deadline)?;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        let first = first(handshake.certificate_of_peer());
        let mut to_send = handshake.take_to_send();
        let (incoming, outgoing, secrets) = handshake.finish()?;
        let stream = TlsStream {
            below,
            incoming: Mutex::new(incoming),
            outgoing: Mutex::new(outgoing),
            secrets: Mutex::new(secrets),
            wants_next_key: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            rings: AtomicBool::new(false),
        };
        // The last message of the handshake and the first bytes are one packet.
        to_send.extend(stream.sealed(&first)?);
        write_below(&*stream.below, &to_send, deadline)?;
        Ok(Arc::new(stream))
    }

    /// The records of some bytes, while nothing else is to be written.
    fn sealed(&self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut outgoing = lock(&self.outgoing);
        let (mut sealed, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            at +=
                outgoing.seal(&[IoSlice::new(bytes)], at, || lock(&self.secrets).next_to_send())?;
            sealed.extend_from_slice(outgoing.rest());
            let count = outgoing.rest().len();
            outgoing.advance(count);
        }
        Ok(sealed)
    }

    /// Waits until the peer ends the encrypted stream, and returns the stream below; nothing beyond
    /// that end has been read from it.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after the deadline, [`io::ErrorKind::InvalidData`] if the peer
    /// sends more, or the stream's error.
    pub fn leave(self: &Arc<Self>, deadline: Instant) -> io::Result<Arc<dyn Stream>> {
        let not_expected =
            || io::Error::new(io::ErrorKind::InvalidData, "more came than was to come");
        loop {
            match self.read(&mut [0]) {
                Ok(0) => break,
                Ok(_) => return Err(not_expected()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_below(&*self.below, Interest::READ, deadline)?;
                }
                Err(error) => return Err(error),
            }
        }
        if lock(&self.incoming).is_drained() {
            Ok(Arc::clone(&self.below))
        } else {
            Err(not_expected())
        }
    }

    /// Sends the alert that ends the stream, unless a thread is writing; the peer does not need it.
    pub(super) fn say_goodbye(&self) {
        if let Ok(mut outgoing) = self.outgoing.try_lock()
            && outgoing.is_empty()
            && outgoing.seal_the_end().is_ok()
        {
            let _ = self.flush(&mut outgoing);
        }
    }

    /// Keeps the event readable while received bytes wait in this process.
    fn ring(&self, incoming: &Incoming) {
        if incoming.is_readable() {
            if self.waiting.load(Ordering::SeqCst) > 0 && !self.rings.swap(true, Ordering::SeqCst) {
                // Its counter cannot overflow by ones.
                let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
            }
        } else if self.rings.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// The peer's next key.
    fn next_key(&self, wants_one: bool) -> io::Result<Key> {
        self.wants_next_key.fetch_or(wants_one, Ordering::Relaxed);
        lock(&self.secrets).next_to_receive()
    }

    /// Writes encrypted bytes as far as they fit; returns the plaintext of the records that are
    /// complete.
    fn flush(&self, outgoing: &mut Outgoing) -> io::Result<usize> {
        let mut plain = 0;
        while !outgoing.is_empty() {
            match self.below.write(&[IoSlice::new(outgoing.rest())]) {
                Ok(count) => plain += outgoing.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(plain)
    }
}

impl Stream for TlsStream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut incoming = lock(&self.incoming);
        let mut result = incoming.take(buffer, |wants_one| self.next_key(wants_one));
        // A killed peer sends no closing alert, and one whose network fails cannot. Callers have
        // frames with lengths, so that both may count as the end of the connection.
        while matches!(result, Ok(0)) && !incoming.is_over() {
            result = incoming.receive(
                buffer,
                |room| self.below.read(room),
                |wants_one| self.next_key(wants_one),
            );
        }
        self.ring(&incoming);
        result
    }

    /// Counts bytes only once their whole record is written: counted bytes arrive without a further
    /// call. Bytes that are encrypted and not counted are the first ones that the caller passes
    /// next time.
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut outgoing = lock(&self.outgoing);
        let mut told = self.flush(&mut outgoing)?.min(total);
        if outgoing.is_empty() && told < total {
            outgoing.wants_next_key |= self.wants_next_key.swap(false, Ordering::Relaxed);
            outgoing.seal(buffers, told, || lock(&self.secrets).next_to_send())?;
            told += self.flush(&mut outgoing)?;
        }
        if told == 0 && total > 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(told) }
    }

    fn wait(
        &self,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<Readiness> {
        if !interest.read {
            return self.below.wait(interest, waker, timeout);
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let here = lock(&self.incoming).is_readable();
        let timeout = if here { Some(Duration::ZERO) } else { timeout };
        let waited = self.below.wait_beside(self.bell.as_fd(), interest, waker, timeout);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let (mut ready, rung) = waited?;
        ready.read |= here || rung;
        Ok(ready)
    }

    fn shutdown(&self) -> io::Result<()> {
        self.say_goodbye();
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
        // A process that received the descriptor would lack the keys.
        Capabilities { descriptor: false, shares_memory: false, ..self.below.capabilities() }
    }

    fn transport(&self) -> &'static str {
        match self.below.transport() {
            "vsock" => "vsock+tls",
            "rdma" => "rdma+tls",
            "ivshmem" => "ivshmem+tls",
            _ => "tcp+tls",
        }
    }

    fn peer(&self) -> String {
        self.below.peer()
    }
}
