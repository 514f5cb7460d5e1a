//! A worker of another server of this machine, which comes by the server's Unix socket and shares
//! memory with a session's worker. It says what a test wants said.

use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use outboard_session::groups::AREA;
use outboard_transport::segment::Segment;
use outboard_transport::{Stream, passing, shm, tls};
use outboard_wire::handshake::peers::{Called, PEERS};
use outboard_wire::handshake::{Extensions, Purpose, Refusal};

use crate::raw_client::{RawClient, greet};

/// The bytes with which memory is offered.
const OFFER: &[u8] = b"OUTBOARD-RINGS-2";
/// How long the worker may take to accept it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a session's worker that has been welcomed.
#[derive(Debug)]
pub struct RawPeer(UnixStream);

/// The same once the two share memory.
#[derive(Debug)]
pub struct Sharing {
    /// What lanes carry; the link is lost with it.
    pub stream: Arc<dyn Stream>,
    /// The memory for copies and signals.
    pub area: Arc<Segment>,
}

impl RawPeer {
    /// Calls a session's worker, for a link of that number.
    pub fn call(client: &RawClient, link: u32) -> Result<RawPeer, Refusal> {
        let welcome = client.welcome();
        let local = welcome.local.as_ref().expect("the server has a socket");
        let mut stream = UnixStream::connect(&local.path).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut more = Extensions::default();
        more.set(PEERS, &Called { link });
        let key = tls::ticket(welcome.key, welcome.session, link).key;
        let purpose = Purpose::Peer { session: welcome.session, key };
        greet(&mut stream, purpose, more)?;
        Ok(RawPeer(stream))
    }

    /// Offers memory, as a peer does, with this area.
    pub fn offer(self, area: &Arc<Segment>) -> io::Result<Sharing> {
        let (deadline, area) = (Instant::now() + PATIENCE, Arc::clone(area));
        let stream = shm::Offer::new()?.move_to(self.0.into(), &[area.file()], deadline)?;
        Ok(Sharing { stream, area })
    }

    /// Sends these descriptors as an offer. Whether the worker closes the connection.
    pub fn is_turned_away(mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        use std::os::fd::AsFd;
        passing::send(self.0.as_fd(), bytes, files).expect("the socket takes it");
        matches!(self.0.read(&mut [0; 16]), Ok(0) | Err(_))
    }

    /// Sends the right words and the wrong descriptors. Whether the worker closes the connection.
    pub fn offers_in_vain(self, files: &[BorrowedFd<'_>]) -> bool {
        self.is_turned_away(OFFER, files)
    }
}

/// An area as workers make them.
pub fn area() -> Arc<Segment> {
    Arc::new(Segment::create("peer", AREA).expect("memory"))
}

impl Sharing {
    /// A word of the flags that begin at `flags`.
    pub fn word(&self, flags: u64, index: usize) -> &AtomicU32 {
        let at = flags as usize + 4 * index;
        assert!(at + 4 <= AREA);
        // SAFETY: within the area, aligned, and both sides use it as an atomic.
        unsafe { AtomicU32::from_ptr(self.area.as_ptr().add(at).cast()) }
    }

    /// Writes a word of the flags.
    pub fn set(&self, flags: u64, index: usize, value: u32) {
        self.word(flags, index).store(value, Ordering::Release);
    }

    /// Fills bytes of slots.
    pub fn fill(&self, slots: u64, bytes: usize, value: u8) {
        assert!(slots as usize + bytes <= AREA);
        // SAFETY: within the area; nothing here reads it meanwhile.
        unsafe { self.area.as_ptr().add(slots as usize).write_bytes(value, bytes) };
    }
}
