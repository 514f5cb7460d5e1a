//! Large copies, on connections of their own.
//!
//! A transfer is announced by a command, which names its number, its chunk size and its window; its bytes travel on
//! the lanes. Lane threads read and write straight from and to the application's memory. An application's thread that
//! waits for its upload writes chunks itself: a small copy needs no other thread.

mod count;
mod lanes;
mod place;
mod table;
mod tuner;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use outboard_session::chunks::{ChunkError, Cut};
use outboard_transport::{Bell, Stream};

use super::LinkError;
use super::shared::{Shared, lock};
use super::staged::Staged;
use count::Count;
use lanes::Lane;
pub use place::Place;
use table::{End, Measured, Outcome, Table};
use tuner::Tuner;

/// Makes one more lane: a connected stream whose handshake is done.
pub(super) type Dial = Box<dyn Fn() -> io::Result<Arc<dyn Stream>> + Send + Sync>;

/// The bulk half of a link.
pub(super) struct Bulk {
    dial: Option<Dial>,
    /// The lanes; those that are open are there.
    lanes: Box<[OnceLock<Lane>]>,
    /// How many lanes there are to be.
    count: Mutex<Count>,
    opening: Mutex<lanes::Opening>,
    /// Told when a lane is open, or will not be.
    opened: Condvar,
    tuners: [Mutex<Tuner>; 2],
    /// For copies through shared memory, which need no lanes.
    staged: OnceLock<Staged>,
    table: Mutex<Table>,
    /// Told when a transfer has moved on or ended, for those who wait for one.
    changed: Condvar,
    /// Rung when there may be chunks to write, for the lanes' writers.
    work: Bell,
    /// Whether downloads are under way, so that lane threads look for them more eagerly.
    eager: AtomicBool,
}

/// A transfer to the worker that has been opened and not started.
///
/// Post the command that announces it, with [`number`](Self::number), [`chunk`](Self::chunk) and
/// [`window`](Self::window), then start it. Dropped without being started, it is forgotten: fine as long as no command
/// has announced it.
#[derive(Debug)]
pub struct Upload<'a> {
    shared: &'a Arc<Shared>,
    transfer: u64,
    cut: Cut,
    outcome: Arc<Outcome>,
    taken: Arc<Outcome>,
    /// Whether it goes on without this value.
    goes_on: bool,
}

/// A transfer to the worker that is ready to be started. It must be: whoever waits for the transfer waits for that too.
#[derive(Debug)]
pub struct Later {
    shared: Arc<Shared>,
    transfer: u64,
    from: Place,
}

/// A transfer to the worker whose bytes have been read.
#[derive(Debug)]
#[must_use = "the device has its bytes only when this has been waited for"]
pub struct Sent {
    shared: Arc<Shared>,
    taken: Arc<Outcome>,
}

/// A transfer under way, in either direction.
#[derive(Debug)]
pub struct Ticket {
    shared: Arc<Shared>,
    transfer: u64,
    cut: Cut,
    outcome: Arc<Outcome>,
}

impl Bulk {
    pub(super) fn new(dial: Option<Dial>, lanes: usize) -> Bulk {
        let lanes = lanes.clamp(1, outboard_wire::limits::MAX_LANES);
        Bulk {
            dial,
            lanes: (0..lanes).map(|_| OnceLock::new()).collect(),
            count: Mutex::new(Count::new(lanes)),
            opening: Mutex::default(),
            opened: Condvar::new(),
            tuners: Default::default(),
            staged: OnceLock::new(),
            table: Mutex::default(),
            changed: Condvar::new(),
            work: Bell::default(),
            eager: AtomicBool::new(false),
        }
    }

    /// The link is gone: everything here ends.
    pub(super) fn lose(&self) {
        for lane in self.open_lanes() {
            // It may be shut down already.
            let _ = lane.stream.shutdown();
        }
        lock(&self.table).lose();
        if let Some(staged) = self.staged.get() {
            staged.lose();
        }
        self.changed.notify_all();
        self.work.ring_all();
        drop(lock(&self.opening));
        self.opened.notify_all();
    }

    /// In a forked child: lets go of the lanes.
    pub(super) fn abandon(&self) {
        for lane in self.open_lanes() {
            // The child has no one to tell of an error.
            let _ = lane.stream.abandon();
        }
    }

    fn open_lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter_map(OnceLock::get)
    }

    /// What copies through shared memory of `bytes` need, with so many threads to help.
    pub(super) fn staged(&self, bytes: usize, threads: usize) -> &Staged {
        self.staged.get_or_init(|| Staged::new(bytes, threads))
    }

    fn set_eager(&self, table: &Table) {
        self.eager.store(table.downloads_pending(), Ordering::Relaxed);
    }

    /// Takes in what transfers that have ended say of the link. Whether it is to have more lanes.
    fn learn(&self, measured: &[Measured]) -> bool {
        let mut more = false;
        for one in measured {
            let (direction, len) = (one.direction as usize, one.cut.len());
            lock(&self.tuners[direction]).took(len, one.cut.chunk(), one.time);
            more |= lock(&self.count).took(direction, self.open_lanes().count(), len, one.time);
        }
        more
    }
}

/// A chunk size to begin with for a transfer of `len` bytes: small enough that its parts overlap, large enough to be worth
/// the work for each. Up to half a mebibyte, waking threads for the parts costs more than it gains, and chunks are so
/// small that the thread that has them sends them itself.
pub fn suggested_chunk(len: u64) -> u32 {
    const ALONE: u64 = 512 << 10;
    const SMALLEST: u64 = 256 << 10;
    const LARGEST: u64 = 2 << 20;
    match len {
        ..=ALONE => 128 << 10,
        _ => (len / 8).next_power_of_two().clamp(SMALLEST, LARGEST) as u32,
    }
}

/// Which way a transfer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the worker.
    Up,
    /// From the worker.
    Down,
}

/// A chunk size for a transfer of `len` bytes, by what others have shown.
pub(super) fn chunk(shared: &Shared, direction: Direction, len: u64) -> u32 {
    lock(&shared.bulk.tuners[direction as usize]).chunk(len)
}

/// Begins to open the lanes, if that has not begun.
pub(super) fn open_lanes_ahead(shared: &Arc<Shared>) {
    lanes::begin(shared);
}

/// Opens the lanes, the first time; returns when one is there.
pub(super) fn open_lanes(shared: &Arc<Shared>) -> Result<(), LinkError> {
    lanes::open(shared)
}

/// Answers a request of the worker. The lanes are open.
pub(super) fn answer(shared: &Shared, request: u64, status: u32, body: &[u8]) -> io::Result<()> {
    lanes::answer(shared, request, status, body)
}

/// Opens an upload of `len` bytes in chunks of `chunk`; waits for staging memory.
pub(super) fn open_upload(shared: &Arc<Shared>, len: u64, chunk: u32) -> Result<Upload<'_>, LinkError> {
    let cut = cut(len, chunk)?;
    lanes::open(shared)?;
    let (outcome, taken) = (Arc::new(Outcome::default()), Arc::new(Outcome::default()));
    let transfer = when_there_is_room(shared, |table| table.open_upload(cut, &outcome, &taken))?;
    Ok(Upload { shared, transfer, cut, outcome, taken, goes_on: false })
}

/// Opens a download to `to`; waits for staging memory.
///
/// # Safety
/// The bytes there must stay valid for writes, and be left alone, until the ticket says that the transfer has ended.
pub(super) unsafe fn open_download(shared: &Arc<Shared>, to: Place, len: u64, chunk: u32) -> Result<Ticket, LinkError> {
    let cut = cut(len, chunk)?;
    lanes::open(shared)?;
    let outcome = Arc::new(Outcome::default());
    let transfer = when_there_is_room(shared, |table| table.open_download(cut, to, &outcome))?;
    Ok(Ticket { shared: Arc::clone(shared), transfer, cut, outcome })
}

pub(super) fn cut(len: u64, chunk: u32) -> Result<Cut, LinkError> {
    match Cut::new(len, chunk) {
        Ok(cut) if !cut.is_empty() => Ok(cut),
        Ok(_) => Err(LinkError::Transfer(ChunkError::Cut { len, chunk })),
        Err(error) => Err(LinkError::Transfer(error)),
    }
}

fn when_there_is_room(shared: &Shared, mut open: impl FnMut(&mut Table) -> Option<u64>) -> Result<u64, LinkError> {
    let bulk = &shared.bulk;
    let mut table = lock(&bulk.table);
    loop {
        if table.is_lost() {
            return Err(shared.lost());
        }
        if let Some(transfer) = open(&mut table) {
            bulk.set_eager(&table);
            return Ok(transfer);
        }
        table = bulk.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
    }
}

impl Upload<'_> {
    /// The transfer's number, for the command that announces it.
    pub fn number(&self) -> u64 {
        self.transfer
    }

    /// Bytes of each chunk but the last.
    pub fn chunk(&self) -> u32 {
        self.cut.chunk()
    }

    /// Chunks that may come before the worker grants any.
    pub fn window(&self) -> u32 {
        self.cut.window()
    }

    /// Sends the bytes at `from`. Returns when all of them have been read; whether they are where they belong, [`Sent::wait`] tells.
    ///
    /// # Safety
    /// The bytes must be valid for reads until this returns.
    pub unsafe fn send(self, from: impl Into<Place>) -> Result<Sent, LinkError> {
        // The worker does well to know of the transfer before its bytes come. If this fails, so will the transfer.
        let _ = self.shared.flush();
        let (shared, transfer, outcome) = self.start(from.into());
        lanes::help_with(shared, transfer, &outcome);
        result(shared, &outcome)?;
        Ok(Sent { shared: Arc::clone(shared), taken: Arc::clone(&self.taken) })
    }

    /// Sends the bytes at `from`, while this thread goes on.
    ///
    /// # Safety
    /// The bytes must be valid for reads until the ticket says that the transfer has ended.
    pub unsafe fn send_in_background(self, from: impl Into<Place>) -> Ticket {
        let cut = self.cut;
        let (shared, transfer, outcome) = self.start(from.into());
        shared.bulk.work.ring_all();
        Ticket { shared: Arc::clone(shared), transfer, cut, outcome }
    }

    /// Gets everything ready to send the bytes at `from`, once [`Later::start`] is called.
    ///
    /// # Safety
    /// The bytes must be valid for reads until the ticket says that the transfer has ended.
    pub unsafe fn later(mut self, from: impl Into<Place>) -> (Ticket, Later) {
        self.goes_on = true;
        let (shared, transfer, cut) = (Arc::clone(self.shared), self.transfer, self.cut);
        let ticket = Ticket { shared: Arc::clone(&shared), transfer, cut, outcome: Arc::clone(&self.outcome) };
        (ticket, Later { shared, transfer, from: from.into() })
    }

    fn start(&self, from: Place) -> (&'_ Arc<Shared>, u64, Arc<Outcome>) {
        lock(&self.shared.bulk.table).start_upload(self.transfer, from);
        (self.shared, self.transfer, Arc::clone(&self.outcome))
    }
}

impl Sent {
    /// Waits until the device has the bytes. [`LinkError::Cancelled`] if it never will.
    pub fn wait(self) -> Result<(), LinkError> {
        wait_for(&self.shared, &self.taken);
        result(&self.shared, &self.taken)
    }
}

impl Later {
    /// The transfer's number.
    pub fn number(&self) -> u64 {
        self.transfer
    }

    /// Sends the bytes, while this thread goes on.
    pub fn start(self) {
        lock(&self.shared.bulk.table).start_upload(self.transfer, self.from);
        self.shared.bulk.work.ring_all();
        // The link may be lost, and the transfer with it.
        self.shared.bulk.changed.notify_all();
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if self.goes_on {
            return;
        }
        lock(&self.shared.bulk.table).abandon_upload(self.transfer);
        self.shared.bulk.changed.notify_all();
    }
}

impl Ticket {
    /// The transfer's number, for the command that announces it.
    pub fn number(&self) -> u64 {
        self.transfer
    }

    /// Bytes of each chunk but the last.
    pub fn chunk(&self) -> u32 {
        self.cut.chunk()
    }

    /// How many chunks of staging memory the worker may take.
    pub fn window(&self) -> u32 {
        self.cut.window()
    }

    /// Whether the transfer has ended, well or not: the application's memory is its own again.
    pub fn has_ended(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// Waits for the end. An upload has ended well when all bytes have been read from the application's memory, a
    /// download when all have been written to it.
    pub fn wait(&self) -> Result<(), LinkError> {
        if !self.has_ended() {
            // The command that announces the transfer may still be in the queue. If this fails, so does the transfer.
            let _ = self.shared.flush();
        }
        wait_for(&self.shared, &self.outcome);
        result(&self.shared, &self.outcome)
    }
}

/// Waits until there is an outcome: looks at first, then sleeps.
fn wait_for(shared: &Shared, outcome: &Outcome) {
    let bulk = &shared.bulk;
    let start = Instant::now();
    let window = shared.patience.window();
    while outcome.get().is_none() && start.elapsed() < window {
        std::thread::yield_now();
    }
    if outcome.get().is_some() {
        return;
    }
    let mut table = lock(&bulk.table);
    while outcome.get().is_none() {
        table = bulk.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
    }
    drop(table);
    shared.patience.waited(start.elapsed());
}

fn result(shared: &Shared, outcome: &Outcome) -> Result<(), LinkError> {
    match outcome.get() {
        Some(End::Complete) => Ok(()),
        Some(End::Cancelled) => Err(LinkError::Cancelled),
        Some(End::Lost) | None => Err(shared.lost()),
    }
}
