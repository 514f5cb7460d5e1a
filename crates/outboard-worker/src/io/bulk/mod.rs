//! The worker's half of bulk transfers: from lanes into staging memory, and from staging memory
//! onto lanes. At the lanes' other end is the client, or the worker of another server ([`peer`]).
//!
//! The command that announces a transfer may be dispatched before or after its first bytes arrive.
//! Bytes that are early wait a moment for their command, and are then parked in ordinary memory, so
//! that they hold up nothing behind them on their lane: what is behind them may be what the
//! dispatcher waits for.

mod direct;
#[cfg(fuzzing)]
mod fuzzing;
mod known;
mod lane;
mod lanes;
mod origin;
mod peer;
mod table;
mod told;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use outboard_session::chunks::{ChunkError, Cut};
use outboard_transport::segment::Segment;
use outboard_transport::{Bell, Signal, SpinLimits, Stream};
use outboard_wire::handshake::resume::Point;
use outboard_wire::lane::{LaneHeader, LaneKind};

use super::pace::Pace;
use super::requests::Requests;
pub(in crate::io) use direct::Direct;
#[cfg(fuzzing)]
pub use fuzzing::hostile_peer;
pub(crate) use known::KnownMemory;
use lane::Lane;
pub use origin::DeviceBytes;
use origin::Origin;
pub(crate) use peer::Half;
use peer::Nudge;
pub(in crate::io) use peer::Order;
use peer::Peer;
use table::Table;

/// Where the chunks of an incoming transfer go.
///
/// # Safety
/// For every chunk whose index has been granted, [`slot`](Self::slot) must return memory that is
/// valid for writes of `len` bytes, and that nothing else uses, until [`filled`](Self::filled) is
/// called with the same index. Memory of a [`device`](Self::device) is valid for what that writes.
pub unsafe trait Sink: Send + Sync {
    /// The memory for chunk `index`, of `len` bytes. Called in any order, from any thread, and
    /// again if a chunk has not come whole.
    fn slot(&self, index: u32, len: u32) -> *mut u8;

    /// The device whose memory it is; none if it is this process's own.
    fn device(&self) -> Option<&dyn DeviceBytes> {
        None
    }

    /// The chunk is there.
    fn filled(&self, index: u32);
}

/// All bulk transfers of a session.
#[derive(Clone)]
pub struct Bulk {
    inner: Arc<Inner>,
}

struct Inner {
    table: Mutex<Table>,
    /// Told when a transfer has been announced.
    announced: Signal,
    lanes: RwLock<Vec<Arc<Lane>>>,
    /// Their answers come on lanes.
    requests: Requests,
    out: Mutex<Out>,
    /// Rung when there is something to write.
    work: Bell,
    /// How long the lanes' threads spin for the next chunk.
    spin: Duration,
    /// How fast bytes may go, if that matters.
    pace: Option<Arc<Pace>>,
    /// The other end, if that is another server's worker.
    peer: Option<Peer>,
    /// The memory that it shares with this worker.
    area: OnceLock<Arc<Segment>>,
    /// What moves chunks itself, if something does.
    direct: Arc<Direct>,
}

/// Frames and chunks that wait to be written.
#[derive(Default)]
struct Out {
    /// Frames without bytes; they go first.
    control: VecDeque<LaneHeader>,
    chunks: VecDeque<Chunk>,
}

/// A chunk to be written, from memory that stays valid until `sent` is called.
struct Chunk {
    header: LaneHeader,
    from: Origin,
    sent: Box<dyn FnOnce() + Send>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Bulk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bulk").finish_non_exhaustive()
    }
}

impl Inner {
    /// Has a chunk written; a small one by this thread, if it `has_time`.
    fn queue(&self, chunk: Chunk, has_time: bool) {
        let chunk = match &self.peer {
            Some(peer) => peer.admit(chunk),
            None => Some(chunk),
        };
        let Some(chunk) = chunk else { return };
        let left = if has_time { self.write_small(chunk) } else { Some(chunk) };
        if let Some(chunk) = left {
            lock(&self.out).chunks.push_back(chunk);
            self.tell_a_writer();
        }
    }

    fn lanes(&self) -> RwLockReadGuard<'_, Vec<Arc<Lane>>> {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bulk {
    pub(super) fn new(pace: Option<Arc<Pace>>, direct: Arc<Direct>) -> Bulk {
        Bulk::with(pace, None, direct)
    }

    /// The transfers to and from another session's worker. `on_loss` is called when there are to be
    /// no more.
    pub(super) fn to_peer(
        pace: Option<Arc<Pace>>,
        order: Order,
        on_loss: impl FnOnce() + Send + 'static,
    ) -> Bulk {
        Bulk::with(pace, Some(Peer::new(order, on_loss)), Arc::default())
    }

    fn with(pace: Option<Arc<Pace>>, peer: Option<Peer>, direct: Arc<Direct>) -> Bulk {
        let inner = Inner {
            table: Mutex::default(),
            announced: Signal::default(),
            lanes: RwLock::default(),
            requests: Requests::default(),
            out: Mutex::default(),
            work: Bell::default(),
            spin: SpinLimits::from_env().lane(),
            pace,
            peer,
            area: OnceLock::new(),
            direct,
        };
        Bulk { inner: Arc::new(inner) }
    }

    /// How fast bytes may go, if that matters.
    pub(in crate::io) fn pace(&self) -> Option<&Pace> {
        self.inner.pace.as_deref()
    }

    /// The peer shares memory with this worker. It does so once.
    pub(super) fn share(&self, area: Arc<Segment>) -> io::Result<()> {
        let twice = |_| lanes::invalid("a peer shares memory with this worker twice");
        self.inner.area.set(area).map_err(twice)
    }

    /// The memory that the peer shares with this worker.
    pub(crate) fn area(&self) -> Option<&Arc<Segment>> {
        self.inner.area.get()
    }

    /// Takes one more lane into use.
    pub(super) fn add_lane(&self, stream: Arc<dyn Stream>) -> io::Result<()> {
        lanes::start(&self.inner, stream)
    }

    /// Takes a lane into use that goes on where an earlier connection stopped, or that may go on
    /// over a later one. `welcome` is told how many frames have been received, and returns what the
    /// client is told.
    pub(super) fn resume_lane(
        &self,
        stream: Arc<dyn Stream>,
        point: Point,
        welcome: impl FnOnce(u64) -> Vec<u8>,
    ) -> io::Result<()> {
        lanes::resume(&self.inner, stream, point, welcome)
    }

    /// Ends lanes whose peer no longer answers. To be called every few seconds.
    pub(super) fn check_lanes(&self) {
        for lane in self.inner.lanes().iter() {
            lane.check();
        }
    }

    /// The session's requests to its client.
    pub fn requests(&self) -> &Requests {
        &self.inner.requests
    }

    /// A command announced transfer `transfer` towards the worker: its chunks go to `sink`, the
    /// cut's [`window`](Cut::window) at once, the others as they are [`grant`](Self::grant)ed. When
    /// all have come, the sink is dropped; say [`done`](Self::done) when its memory is free for
    /// other transfers.
    ///
    /// An error means that the client broke the rules.
    pub fn receive(&self, transfer: u64, cut: Cut, sink: Arc<dyn Sink>) -> Result<(), ChunkError> {
        self.announce(transfer, cut, cut.window(), Some(sink))
    }

    /// The client has announced a number to this worker and its peer. `nudge` is called when the
    /// peer has said something about it.
    ///
    /// An error means that the client broke the rules.
    pub(crate) fn begin(&self, number: u64, nudge: Nudge) -> io::Result<Arc<Half>> {
        let no_peer = || lanes::invalid("the client announces to a peer what it sends itself");
        self.inner.peer.as_ref().ok_or_else(no_peer)?.begin(number, nudge)
    }

    /// This worker's half of such a number has ended.
    pub(crate) fn end(&self, number: u64) {
        if let Some(peer) = &self.inner.peer {
            peer.end(number);
        }
    }

    /// Tells the peer that what a number stands for has happened here, or never will.
    pub(crate) fn reached(&self, number: u64, well: bool) {
        let (kind, index) = (LaneKind::Reached, (!well).into());
        self.inner.say(LaneHeader { kind, transfer: number, index, len: 0 });
    }

    /// The bytes of a transfer from a peer go nowhere from now on, and some may not come.
    pub(crate) fn forsake(&self, transfer: u64) {
        lock(&self.inner.table).forsake(transfer);
    }

    /// A transfer that was [expected](Self::expect) from a peer will not be asked for.
    pub(crate) fn withdraw(&self, transfer: u64) {
        lock(&self.inner.table).withdraw(transfer);
    }

    /// Ends a link to a peer, as if its connections had broken.
    pub(super) fn lose(&self) {
        self.inner.lose_peer();
    }

    /// Whether a link to a peer is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.inner.peer.as_ref().is_some_and(Peer::is_lost)
    }

    /// A command announced a transfer towards the worker whose bytes the client sends when it is
    /// asked for them; its window of chunks may come then. They are thrown away unless they have a
    /// [place](Self::place).
    ///
    /// An error means that the client broke the rules.
    pub fn expect(&self, transfer: u64, cut: Cut) -> Result<(), ChunkError> {
        // A peer sends nothing before it is told that there is a place for it.
        let granted = if self.inner.peer.is_some() { 0 } else { cut.window() };
        lock(&self.inner.table).expect(transfer, cut, granted)?;
        self.inner.announced.tell_all();
        Ok(())
    }

    /// The chunks of a transfer that was [expected](Self::expect) go to `sink`. As for
    /// [`receive`](Self::receive), otherwise.
    pub fn set_sink(&self, transfer: u64, sink: Arc<dyn Sink>) {
        lock(&self.inner.table).set_sink(transfer, sink);
    }

    /// A command announced a transfer that cannot be carried out: its chunks are read and thrown
    /// away.
    pub fn discard(&self, transfer: u64, cut: Cut) -> Result<(), ChunkError> {
        self.announce(transfer, cut, cut.count(), None)?;
        self.inner.say(LaneHeader { kind: LaneKind::Grant, transfer, index: cut.count(), len: 0 });
        Ok(())
    }

    fn announce(
        &self,
        transfer: u64,
        cut: Cut,
        granted: u32,
        sink: Option<Arc<dyn Sink>>,
    ) -> Result<(), ChunkError> {
        let parked = lock(&self.inner.table).announce(transfer, cut, granted, sink)?;
        self.inner.announced.tell_all();
        for chunk in parked {
            self.inner.place_parked(&chunk)?;
        }
        Ok(())
    }

    /// Chunks of the transfer with an index below `granted` may come: they have a place to go.
    pub fn grant(&self, transfer: u64, granted: u32) {
        lock(&self.inner.table).grant(transfer, granted);
        self.inner.say(LaneHeader { kind: LaneKind::Grant, transfer, index: granted, len: 0 });
    }

    /// The staging memory of a transfer towards the worker is free again. `well`: all of its bytes
    /// are where they belong.
    pub fn done(&self, transfer: u64, well: bool) {
        lock(&self.inner.table).release(transfer);
        self.inner.direct.forget(transfer);
        self.inner.say(LaneHeader {
            kind: LaneKind::Done,
            transfer,
            index: (!well).into(),
            len: 0,
        });
    }

    /// Sends chunk `index` of a transfer towards the client: the `len` bytes at `from`; a small one
    /// in this thread, if it `has_time`. Calls `sent` when they are needed no longer, in whatever
    /// thread: when the client has them or, if a lost lane ends the session, when they have been
    /// read.
    ///
    /// # Safety
    /// The bytes must stay valid for reads until `sent` is called.
    pub unsafe fn send(
        &self,
        transfer: u64,
        index: u32,
        from: *const u8,
        len: u32,
        has_time: bool,
        sent: impl FnOnce() + Send + 'static,
    ) {
        let header = LaneHeader { kind: LaneKind::Chunk, transfer, index, len };
        self.inner
            .queue(Chunk { header, from: Origin::Host(from), sent: Box::new(sent) }, has_time);
    }

    /// The same for bytes at an address of a device, which an adapter knows. They are needed until
    /// they have left the device, whether or not the client has them.
    ///
    /// # Safety
    /// As of [`send`](Self::send).
    pub(crate) unsafe fn send_from_device(
        &self,
        transfer: u64,
        (index, len): (u32, u32),
        (address, device): (u64, Arc<dyn DeviceBytes>),
        sent: impl FnOnce() + Send + 'static,
    ) {
        let header = LaneHeader { kind: LaneKind::Chunk, transfer, index, len };
        let from = Origin::Device(address, device);
        self.inner.queue(Chunk { header, from, sent: Box::new(sent) }, false);
    }

    /// Of a transfer towards the client, `sent` chunks were given to [`send`](Self::send), and no
    /// more will be.
    pub fn cancel(&self, transfer: u64, sent: u32) {
        if sent == 0 {
            self.inner.direct.forget(transfer);
        }
        self.inner.say(LaneHeader { kind: LaneKind::Cancelled, transfer, index: sent, len: 0 });
    }
}
