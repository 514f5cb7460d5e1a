//! Large copies, on connections of their own.
//!
//! A transfer is announced by a command, which names its number, its chunk size and its window; its
//! bytes travel on the lanes. Lane threads read and write straight from and to the application's
//! memory. An application's thread that waits for its upload writes chunks itself: a small copy
//! needs no other thread.

mod count;
mod downloads;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod host_bytes;
mod lane;
mod lanes;
mod reading;
mod table;
mod transfer;
mod tuner;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use outboard_session::chunks::{ChunkError, Cut};
use outboard_transport::{Bell, PEER_CHECK, Signal, Stream};
use outboard_wire::handshake::resume::Point;

use super::shared::{Shared, lock};
use super::staged::Staged;
use super::{ConnectError, LinkError};
use count::Count;
pub use host_bytes::HostBytes;
use lane::Lane;
use table::{Measured, Outcome, Table};
pub use transfer::{Later, Sent, Ticket, Upload};
use tuner::Tuner;

/// Makes one more lane: a connected stream whose handshake is done. With a point, one that can go
/// on, from there; where the worker is comes back.
pub(super) type Dial = Box<
    dyn Fn(Option<Point>) -> Result<(Arc<dyn Stream>, Option<Point>), ConnectError> + Send + Sync,
>;

/// The bulk half of a link.
pub(super) struct Bulk {
    dial: Option<Dial>,
    /// For how long a lost lane tries to go on, if it can.
    grace: Option<Duration>,
    /// Whether the worker takes transfers that have no staging memory.
    queues: bool,
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
    /// Signalled when a transfer has progressed or ended.
    changed: Signal,
    /// Rung when there may be chunks to write, for the lanes' writers.
    work: Bell,
    /// Whether downloads are under way, so that lane threads look for them more eagerly.
    eager: AtomicBool,
}

impl Bulk {
    pub(super) fn new(
        dial: Option<Dial>,
        lanes: usize,
        grace: Option<Duration>,
        queues: bool,
    ) -> Bulk {
        let lanes = lanes.clamp(1, outboard_wire::limits::MAX_LANES);
        Bulk {
            dial,
            grace,
            queues,
            lanes: (0..lanes).map(|_| OnceLock::new()).collect(),
            count: Mutex::new(Count::new(lanes)),
            opening: Mutex::default(),
            opened: Condvar::new(),
            tuners: Default::default(),
            staged: OnceLock::new(),
            table: Mutex::default(),
            changed: Signal::default(),
            work: Bell::default(),
            eager: AtomicBool::new(false),
        }
    }

    /// The link is gone: everything here ends.
    pub(super) fn lose(&self) {
        for lane in self.open_lanes() {
            lane.down();
        }
        lock(&self.table).lose();
        if let Some(staged) = self.staged.get() {
            staged.lose();
        }
        self.changed.tell_all();
        self.work.ring_all();
        drop(lock(&self.opening));
        self.opened.notify_all();
    }

    /// Ends lanes whose peer no longer answers. To be called every few seconds while something is
    /// waited for.
    pub(super) fn check_lanes(&self) {
        for lane in self.open_lanes() {
            lane.check();
        }
    }

    /// In a forked child: lets go of the lanes.
    pub(super) fn abandon(&self) {
        for lane in self.open_lanes() {
            lane.abandon();
        }
    }

    /// Whether a lane can go on over another connection.
    fn is_resumable(&self) -> bool {
        self.grace.is_some()
    }

    /// Wakes the lanes and the threads that wait for one.
    fn tell_all(&self) {
        drop(lock(&self.table));
        self.work.ring_all();
        self.changed.tell_all();
    }

    /// There may be a chunk more to write.
    fn tell_one(&self) {
        // The one that is told may have no connection.
        if self.open_lanes().all(Lane::is_up) { self.work.ring_one() } else { self.work.ring_all() }
    }

    fn open_lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter_map(OnceLock::get)
    }

    /// What copies through shared memory of `bytes` need, with so many threads to help.
    pub(super) fn staged(&self, bytes: usize, threads: usize) -> &Staged {
        self.staged.get_or_init(|| Staged::new(bytes, threads))
    }

    fn set_eager(&self, table: &Table) {
        self.eager.store(table.downloads.is_any(), Ordering::Relaxed);
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

/// A chunk size to begin with for a transfer of `len` bytes: small enough that its parts overlap,
/// large enough to be worth the work for each. Up to half a mebibyte, waking threads for the parts
/// costs more than it gains, and chunks are so small that the thread that has them sends them
/// itself.
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

/// A chunk size for a transfer of `len` bytes, by what others have shown. A transfer that
/// `is_queued` may be one of many that overlap.
pub(super) fn chunk(shared: &Shared, direction: Direction, len: u64, is_queued: bool) -> u32 {
    let tuned = lock(&shared.bulk.tuners[direction as usize]).chunk(len);
    if is_queued && lock(&shared.bulk.table).is_busy(direction) {
        tuned.max(overlapping_chunk(len))
    } else {
        tuned
    }
}

/// The smallest chunk size for a transfer of `len` bytes while others go the same way, in bytes:
/// the lanes are busy with those, so that its own parts need not overlap, and each chunk costs both
/// sides time. Long transfers keep the size that was found best for them.
fn overlapping_chunk(len: u64) -> u32 {
    const ONE_CHUNK: u64 = 1 << 20;
    const LONG: u64 = 8 << 20;
    if len <= LONG { len.next_power_of_two().min(ONE_CHUNK) as u32 } else { 0 }
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

/// How long an upload waits for staging memory while no other transfer gives any back.
const STUCK: Duration = Duration::from_millis(20);

/// Opens an upload of `len` bytes in chunks of `chunk`; waits for staging memory. `None` if none
/// comes free and the worker queues it all the same.
pub(super) fn open_upload(
    shared: &Arc<Shared>,
    len: u64,
    chunk: u32,
) -> Result<Option<Upload<'_>>, LinkError> {
    let cut = cut(len, chunk)?;
    lanes::open(shared)?;
    let (outcome, taken) = (Arc::new(Outcome::default()), Arc::new(Outcome::default()));
    let bulk = &shared.bulk;
    let pause = if bulk.queues { STUCK } else { PEER_CHECK };
    let mut table = lock(&bulk.table);
    loop {
        if table.is_lost() {
            return Err(shared.lost());
        }
        if let Some(transfer) = table.open_upload(cut, &outcome, &taken) {
            return Ok(Some(Upload { shared, transfer, cut, outcome, taken, goes_on: false }));
        }
        if bulk.queues && table.is_stuck() {
            return Ok(None);
        }
        let released = table.released();
        // Other changes also signal it.
        let still = |table: &mut Table| table.released() == released && !table.is_lost();
        let (again, timed_out) = bulk.changed.wait_timeout_while(table, pause, still);
        table = again;
        if !timed_out {
            continue;
        }
        if bulk.queues {
            table.set_stuck();
        } else {
            drop(table);
            shared.check_for_life(PEER_CHECK);
            table = lock(&bulk.table);
        }
    }
}

/// Opens an upload that has no staging memory.
pub(super) fn open_queued_upload(
    shared: &Arc<Shared>,
    len: u64,
    chunk: u32,
) -> Result<Upload<'_>, LinkError> {
    let cut = cut(len, chunk)?;
    let (outcome, taken) = (Arc::new(Outcome::default()), Arc::new(Outcome::default()));
    let mut table = lock(&shared.bulk.table);
    if table.is_lost() {
        return Err(shared.lost());
    }
    let transfer = table.open_queued_upload(cut, &outcome, &taken);
    drop(table);
    Ok(Upload { shared, transfer, cut, outcome, taken, goes_on: false })
}

/// Opens a download to `to`, behind those of `behind` that are under way.
///
/// # Safety
/// The bytes there must stay valid for writes, and be left alone, until the ticket says that the
/// transfer has ended.
pub(super) unsafe fn open_download(
    shared: &Arc<Shared>,
    to: HostBytes,
    len: u64,
    chunk: u32,
    behind: Vec<u64>,
) -> Result<Ticket, LinkError> {
    let cut = cut(len, chunk)?;
    lanes::open(shared)?;
    let outcome = Arc::new(Outcome::default());
    let mut table = lock(&shared.bulk.table);
    if table.is_lost() {
        return Err(shared.lost());
    }
    let transfer = table.open_download(cut, to, behind, &outcome);
    shared.bulk.set_eager(&table);
    drop(table);
    Ok(Ticket { shared: Arc::clone(shared), transfer, cut, outcome })
}

pub(super) fn cut(len: u64, chunk: u32) -> Result<Cut, LinkError> {
    match Cut::new(len, chunk) {
        Ok(cut) if !cut.is_empty() => Ok(cut),
        Ok(_) => Err(LinkError::Transfer(ChunkError::Cut { len, chunk })),
        Err(error) => Err(LinkError::Transfer(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_transfers_that_overlap_are_one_chunk() {
        for (len, chunk) in [
            (100 << 10, 128 << 10),
            (256 << 10, 256 << 10),
            (1 << 20, 1 << 20),
            (8 << 20, 1 << 20),
            ((8 << 20) + 1, 0),
        ] {
            assert_eq!(overlapping_chunk(len), chunk, "{len}");
        }
    }
}
