//! Replies and notices on their way to the client.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outboard_session::TooLong;
use outboard_session::server::Outgoing;
use outboard_transport::{Interest, Memory, PEER_CHECK, Readiness, Stream};
use outboard_wire::Writer;
use outboard_wire::notice::REQUEST;
use outboard_wire::request::Request;

use super::{Asked, Bulk, Registry};
use crate::meter::{self, Direction, Way};

/// Answers commands, from any thread, in any order.
///
/// The one that a handler is given with a command gathers replies, and the dispatcher writes them when no further
/// call is at hand. A clone, as helper threads have, writes at once.
#[derive(Debug)]
pub struct Replier {
    replies: Arc<Replies>,
    bulk: Bulk,
    registry: Registry,
    memory: Option<Arc<Memory>>,
    gathers: bool,
}

#[derive(Debug)]
struct Replies {
    stream: Arc<dyn Stream>,
    outgoing: Mutex<Outgoing>,
    /// Held by the one thread that writes.
    write: Mutex<()>,
    /// Something may be waiting to be written.
    pending: AtomicBool,
    /// Number of the last command handed to the handler.
    taken: AtomicU64,
}

impl Clone for Replier {
    fn clone(&self) -> Replier {
        Replier {
            replies: Arc::clone(&self.replies),
            bulk: self.bulk.clone(),
            registry: self.registry.clone(),
            memory: self.memory.clone(),
            gathers: false,
        }
    }
}

impl Replier {
    pub(super) fn new(stream: Arc<dyn Stream>, bulk: Bulk, registry: Registry, memory: Option<Memory>) -> Replier {
        let replies = Replies {
            stream,
            outgoing: Mutex::new(Outgoing::new(false)),
            write: Mutex::new(()),
            pending: AtomicBool::new(false),
            taken: AtomicU64::new(0),
        };
        Replier { replies: Arc::new(replies), bulk, registry, memory: memory.map(Arc::new), gathers: true }
    }

    /// One that nobody listens to: what it is asked for goes to the stream, and to no supervisor.
    pub(crate) fn to(stream: Arc<dyn Stream>) -> io::Result<Replier> {
        let nobody = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
        Ok(Replier::new(stream, Bulk::new(None), Registry::new(Arc::new(nobody), false), None))
    }

    /// Answers command `seq` with a CUresult and what it returns.
    ///
    /// If the payload is too long for a frame, nothing is sent: reply something else.
    pub fn reply(&self, seq: u64, status: u32, encode: impl FnOnce(&mut Writer)) -> Result<(), TooLong> {
        let taken = self.replies.taken.load(Ordering::Relaxed).max(seq);
        self.push(|outgoing| outgoing.reply(seq, status, taken, encode))
    }

    /// Tells the client something it did not ask for. It arrives before every reply that is made later.
    pub fn notice(&self, code: u16, encode: impl FnOnce(&mut Writer)) -> Result<(), TooLong> {
        let taken = self.replies.taken.load(Ordering::Relaxed);
        self.push(|outgoing| outgoing.notice(code, taken, encode))
    }

    /// Asks the client for something that only its process can do, and returns at once: the result is where the answer, of at most `most`
    /// bytes, will be. Notices that were made before arrive before it.
    pub fn request(&self, kind: u32, ctx: u32, body: &[u8], most: usize) -> Result<Asked, TooLong> {
        let asked = self.bulk.requests().open(most);
        let request = Request { number: asked.number(), kind, ctx, body };
        self.notice(REQUEST, |writer| writer.put(&request))?;
        Ok(asked)
    }

    /// Tells the client to do something that is not answered.
    pub fn order(&self, kind: u32, ctx: u32, body: &[u8]) -> Result<(), TooLong> {
        let request = Request { number: 0, kind, ctx, body };
        self.notice(REQUEST, |writer| writer.put(&request))
    }

    /// The session's bulk transfers.
    pub fn bulk(&self) -> &Bulk {
        &self.bulk
    }

    /// The memory that the client shares, if it is on this machine.
    pub fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    /// What sessions of the server share.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    fn push(&self, push: impl FnOnce(&mut Outgoing) -> Result<(), TooLong>) -> Result<(), TooLong> {
        let mut outgoing = self.outgoing();
        push(&mut outgoing)?;
        self.replies.pending.store(true, Ordering::Relaxed);
        drop(outgoing);
        if !self.gathers {
            // The dispatcher meets the same error and ends the session.
            let _ = self.flush();
        }
        Ok(())
    }

    /// Command `seq` is about to be handled.
    pub(super) fn taken(&self, seq: u64) {
        self.replies.taken.store(seq, Ordering::Relaxed);
    }

    /// Tells the client how far its commands were taken over, if it has not been told for `commands` of them.
    pub(super) fn acknowledge_after(&self, commands: u64) {
        let taken = self.replies.taken.load(Ordering::Relaxed);
        let mut outgoing = self.outgoing();
        if taken - outgoing.told().min(taken) >= commands {
            outgoing.acknowledge(taken);
            self.replies.pending.store(true, Ordering::Relaxed);
        }
    }

    /// Whether something may be waiting to be written.
    pub(super) fn pending(&self) -> bool {
        self.replies.pending.load(Ordering::Relaxed)
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.outgoing().pending_bytes()
    }

    /// Writes what is pending; waits for a client that is slow to read.
    pub(super) fn flush(&self) -> io::Result<()> {
        if !self.pending() {
            return Ok(());
        }
        let _writing = self.replies.write.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = {
            let mut outgoing = self.outgoing();
            self.replies.pending.store(false, Ordering::Relaxed);
            outgoing.take()
        };
        let Some(batch) = batch else { return Ok(()) };
        if let Some(pace) = self.bulk.pace() {
            pace.note_written(batch.bytes().len());
        }
        let result = self.write(batch.bytes());
        self.outgoing().done(batch);
        result
    }

    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let stream = &*self.replies.stream;
        while !bytes.is_empty() {
            match stream.write(&[IoSlice::new(bytes)]) {
                Ok(count) => {
                    meter::page().moved(Direction::Out, Way::Commands, count as u64);
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if stream.wait(Interest::WRITE, None, Some(PEER_CHECK))? == Readiness::default() {
                        stream.check_peer()?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.replies.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
