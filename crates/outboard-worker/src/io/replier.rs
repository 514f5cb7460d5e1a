//! Replies and notices on their way to the client.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use outboard_abi::CUresult;
use outboard_session::server::Outgoing;
use outboard_session::{ProtocolError, TooLong};
use outboard_transport::{Interest, Memory, PEER_CHECK, Readiness, Stream, shm};
use outboard_wire::notice::{FAILURE, Failure, REQUEST};
use outboard_wire::request::Request;
use outboard_wire::{ContextId, Encode, Writer};
use parking_lot::{Mutex, MutexGuard};

use super::bulk::Bulk;
use super::connection::{Connection, Current, End};
use super::link_adapters::LinkAdapters;
use super::peers::Peers;
use super::registry::Registry;
use super::requests::PendingAnswer;
use super::stays::Stay;
use outboard_control::meter::{self, Direction, Way};

/// Answers commands, from any thread, in any order.
///
/// Replies of the dispatcher's thread are gathered: it writes them when no further call has
/// arrived, after the handler's `answering`. Those of other threads are written at once. Notices
/// are gathered by the one that a handler is given with a command, and written at once by a clone.
#[derive(Debug)]
pub struct Replier {
    replies: Arc<Replies>,
    bulk: Bulk,
    peers: Peers,
    registry: Registry,
    memory: Option<Arc<Memory>>,
    gathers: bool,
}

#[derive(Debug)]
struct Replies {
    connection: Arc<Connection>,
    outgoing: Mutex<Outgoing>,
    /// Held by the one thread that writes.
    write: Mutex<Writing>,
    /// Something may be waiting to be written.
    pending: AtomicBool,
    /// Number of the last command handed to the handler.
    taken: AtomicU64,
}

/// The stream of replies.
#[derive(Debug)]
struct Writing {
    current: Current,
    /// Whether it is lost: what is to be written waits for the next one.
    lost: bool,
    /// Its first bytes, which precede all frames.
    first: Vec<u8>,
}

thread_local! {
    /// Whether this is the dispatcher's thread.
    static DISPATCHES: Cell<bool> = const { Cell::new(false) };
}

/// From now on, this thread hands commands to the handler and writes its answers.
pub(super) fn this_thread_dispatches() {
    DISPATCHES.set(true);
}

/// A client that leaves more than this unacknowledged breaks the rules, in bytes. It is told to
/// acknowledge far earlier.
const MOST_RETAINED: usize = 256 << 20;

impl Clone for Replier {
    fn clone(&self) -> Replier {
        Replier {
            replies: Arc::clone(&self.replies),
            bulk: self.bulk.clone(),
            peers: self.peers.clone(),
            registry: self.registry.clone(),
            memory: self.memory.clone(),
            gathers: false,
        }
    }
}

impl Replier {
    pub(super) fn new(
        connection: Arc<Connection>,
        bulk: Bulk,
        peers: Peers,
        registry: Registry,
    ) -> Replier {
        let current = connection.current();
        let replies = Replies {
            outgoing: Mutex::new(Outgoing::new(connection.is_resumable())),
            write: Mutex::new(Writing { current, lost: false, first: Vec::new() }),
            connection,
            pending: AtomicBool::new(false),
            taken: AtomicU64::new(0),
        };
        Replier { replies: Arc::new(replies), bulk, peers, registry, memory: None, gathers: true }
    }

    /// The session, in which nothing was said yet, has moved to the connection's new stream, with
    /// memory that both sides share.
    pub(super) fn share(&mut self, memory: Memory) {
        self.write_lock().current = self.replies.connection.current();
        // Nothing is lost there, so nothing is kept.
        *self.outgoing() = Outgoing::new(false);
        self.memory = Some(Arc::new(memory));
    }

    /// One without a supervisor: its messages go to the stream only.
    pub(crate) fn to(stream: Arc<dyn Stream>) -> io::Result<Replier> {
        let nobody =
            rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
        let connection = Arc::new(Connection::new(stream, None));
        let (bulk, peers) =
            (Bulk::new(None, Arc::default()), Peers::new(None, 1, LinkAdapters::default()));
        Ok(Replier::new(connection, bulk, peers, Registry::new(Arc::new(nobody), false)))
    }

    /// Keeps the session from being suspended while what this returns is there.
    pub(crate) fn stay(&self) -> Stay {
        self.registry.stays().stay()
    }

    /// Answers command `seq` with a CUresult and what it returns.
    ///
    /// If the payload is too long for a frame, nothing is sent: reply something else.
    pub fn reply(
        &self,
        seq: u64,
        status: u32,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<(), TooLong> {
        let taken = self.replies.taken.load(Ordering::Relaxed).max(seq);
        self.push(DISPATCHES.get(), |outgoing| outgoing.reply(seq, status, taken, encode))
    }
    /// Reports the failure of a posted command to the client.
    pub(crate) fn failed(&self, ctx: ContextId, error: CUresult) {
        meter::page().failed(error);
        let failure = Failure { ctx, status: error.0 };
        // A client that is gone need not know.
        let _ = self.notice(FAILURE, |writer| failure.encode(writer));
    }

    /// Tells the client something it did not ask for. It arrives before every reply that is made
    /// later.
    pub fn notice(&self, code: u16, encode: impl FnOnce(&mut Writer)) -> Result<(), TooLong> {
        let taken = self.replies.taken.load(Ordering::Relaxed);
        self.push(false, |outgoing| outgoing.notice(code, taken, encode))
    }

    /// Asks the client for something that only its process can do, and returns at once: the result
    /// is where the answer, of at most `most` bytes, will be. Notices that were made before arrive
    /// before it.
    pub fn request(
        &self,
        kind: u32,
        ctx: ContextId,
        body: &[u8],
        most: usize,
    ) -> Result<PendingAnswer, TooLong> {
        let asked = self.bulk.requests().open(most);
        let request = Request { number: asked.number(), kind, ctx, body };
        self.notice(REQUEST, |writer| writer.put(&request))?;
        Ok(asked)
    }

    /// Tells the client to do something that is not answered.
    pub fn order(&self, kind: u32, ctx: ContextId, body: &[u8]) -> Result<(), TooLong> {
        let request = Request { number: 0, kind, ctx, body };
        self.notice(REQUEST, |writer| writer.put(&request))
    }

    /// What it writes to.
    pub(super) fn connection(&self) -> &Connection {
        &self.replies.connection
    }

    /// The session's bulk transfers.
    pub fn bulk(&self) -> &Bulk {
        &self.bulk
    }

    /// The memory that the client shares, if it is on this machine.
    pub fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    /// The file that the client has handed over with this number, if it is on this machine.
    pub fn take_file(&self, number: u64) -> io::Result<OwnedFd> {
        shm::take_file(&*self.replies.connection.current().stream, number)
    }

    /// What sessions of the server share.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    fn push(
        &self,
        is_written_later: bool,
        push: impl FnOnce(&mut Outgoing) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        let mut outgoing = self.outgoing();
        push(&mut outgoing)?;
        self.replies.pending.store(true, Ordering::Relaxed);
        drop(outgoing);
        if !self.gathers && !is_written_later {
            // The dispatcher meets the same error and ends the session.
            let _ = self.flush();
        }
        Ok(())
    }

    /// Command `seq` is about to be handled.
    pub(super) fn taken(&self, seq: u64) {
        self.replies.taken.store(seq, Ordering::Relaxed);
    }

    /// Tells the client how far its commands were taken over, if it has not been told for
    /// `commands` of them. Whether it knows now.
    pub(super) fn acknowledge_after(&self, commands: u64) -> bool {
        let taken = self.replies.taken.load(Ordering::Relaxed);
        let mut outgoing = self.outgoing();
        if taken - outgoing.told().min(taken) >= commands {
            outgoing.acknowledge(taken);
            self.replies.pending.store(true, Ordering::Relaxed);
        }
        outgoing.told() >= taken
    }

    /// The client has received the frames up to that number.
    pub(super) fn received(&self, frames: u64) -> Result<(), ProtocolError> {
        self.outgoing().acknowledged(frames)
    }

    /// The connection is being replaced by `stream`, whose client has received `received` frames
    /// and is to get `welcome` first. Later frames are sent again. The old connection has been
    /// ended.
    pub(super) fn resume(
        &self,
        stream: Arc<dyn Stream>,
        received: u64,
        welcome: Vec<u8>,
    ) -> Result<(), ProtocolError> {
        let mut writing = self.write_lock();
        self.outgoing().resume(received)?;
        let current = self.replies.connection.replaced(stream);
        *writing = Writing { current, lost: false, first: welcome };
        self.replies.pending.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether something may be waiting to be written.
    pub(super) fn pending(&self) -> bool {
        self.replies.pending.load(Ordering::Relaxed)
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.outgoing().pending_bytes()
    }

    /// Writes what is pending; waits for a client that is slow to read. Replies that cannot be
    /// written are kept, if the connection may be replaced.
    pub(super) fn flush(&self) -> io::Result<()> {
        if !self.pending() {
            return Ok(());
        }
        let mut writing = self.write_lock();
        if writing.lost {
            return Ok(());
        }
        let resumable = self.replies.connection.is_resumable();
        let batch = {
            let mut outgoing = self.outgoing();
            if outgoing.retained_bytes() > MOST_RETAINED {
                let why = "the client does not acknowledge what it is sent";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            self.replies.pending.store(false, Ordering::Relaxed);
            outgoing.take()
        };
        let stream = Arc::clone(&writing.current.stream);
        let first = std::mem::take(&mut writing.first);
        let mut result = write(&*stream, &first);
        if let Some(batch) = batch {
            if let Some(pace) = self.bulk.pace() {
                pace.note_written(batch.bytes().len());
            }
            result = result.and_then(|()| write(&*stream, batch.bytes()));
            self.outgoing().done(batch);
        }
        match result {
            Err(error) if resumable => {
                writing.lost = true;
                self.replies.connection.lose(writing.current.epoch, End::of(&error));
                Ok(())
            }
            result => result,
        }
    }

    /// Says that this process lives, if that takes no wait: a client that waits for the device
    /// cannot know otherwise. Answers that wait for the dispatcher may wait for as long as a call
    /// of the driver takes; this goes ahead of them.
    pub(super) fn beat(&self) {
        // A thread that writes is a sign of life itself.
        let Some(mut writing) = self.replies.write.try_lock() else { return };
        let stream = Arc::clone(&writing.current.stream);
        let is_next = !writing.lost && writing.first.is_empty();
        // A client that is not there to hear it gets no more of it.
        let is_heard = || {
            !stream.is_unanswered()
                && stream
                    .wait(Interest::WRITE, None, Some(Duration::ZERO))
                    .is_ok_and(|ready| ready.write)
        };
        if !is_next || !is_heard() {
            return;
        }
        let taken = self.replies.taken.load(Ordering::Relaxed);
        let bytes = self.outgoing().acknowledgement(taken);
        if let Some(pace) = self.bulk.pace() {
            pace.note_written(bytes.len());
        }
        // If the connection cannot be replaced, the next write meets the same error.
        if let Err(error) = write(&*stream, &bytes)
            && self.replies.connection.is_resumable()
        {
            writing.lost = true;
            self.replies.connection.lose(writing.current.epoch, End::of(&error));
        }
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.replies.outgoing.lock()
    }

    fn write_lock(&self) -> MutexGuard<'_, Writing> {
        self.replies.write.lock()
    }
}

fn write(stream: &dyn Stream, mut bytes: &[u8]) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use outboard_session::client::{Event, Incoming};
    use outboard_transport::pipe;

    use super::*;

    #[test]
    fn a_beat_goes_ahead_of_answers_that_wait_for_the_dispatcher() {
        let (stream, client) = pipe::pair().unwrap();
        let replier = Replier::to(stream).unwrap();
        let mut incoming = Incoming::new();
        let read = |incoming: &mut Incoming| {
            let count = client.read(incoming.buffer().room())?;
            incoming.buffer().filled(count);
            io::Result::Ok(())
        };
        replier.taken(1);
        replier.reply(1, 7, |writer| writer.u32(5)).unwrap();
        // The next command is carried out, and takes long.
        replier.taken(2);
        for _ in 0..2 {
            replier.beat();
            read(&mut incoming).unwrap();
            assert_eq!(incoming.next_event().unwrap(), None);
            assert_eq!((incoming.taken(), incoming.received()), (2, 0));
        }
        assert!(replier.pending(), "the answer still waits");
        replier.flush().unwrap();
        read(&mut incoming).unwrap();
        let answer = Event::Reply { answers: 1, status: 7, payload: &[5, 0, 0, 0] };
        assert_eq!(incoming.next_event().unwrap(), Some(answer));
    }
}
