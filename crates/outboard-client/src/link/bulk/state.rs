//! The bulk half of a link: its lanes and what they know of transfers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use outboard_transport::{Bell, Signal, Stream};
use outboard_wire::handshake::resume::Point;
use outboard_wire::lane::Place;

use super::super::error::ConnectError;
use super::super::locks::lock;
use super::super::staged::Staged;
use super::count::Count;
use super::host_bytes::HostBytes;
use super::lane::Lane;
use super::lending::Lending;
use super::table::{Measured, Table};
use super::tuner::Tuner;

/// Makes one more lane: a connected stream whose handshake is done. With a point, one that can go
/// on, from there; where the worker is comes back.
pub(in super::super) type Dial = Box<
    dyn Fn(Option<Point>) -> Result<(Arc<dyn Stream>, Option<Point>), ConnectError> + Send + Sync,
>;

/// The bulk half of a link.
pub(in super::super) struct Bulk {
    pub(super) dial: Option<Dial>,
    /// For how long a lost lane tries to go on, if it can.
    pub(super) grace: Option<Duration>,
    /// Whether the worker takes transfers that have no staging memory.
    pub(super) queues: bool,
    /// The lanes; those that are open are there.
    pub(super) lanes: Box<[OnceLock<Lane>]>,
    /// How many lanes there are to be.
    pub(super) count: Mutex<Count>,
    pub(super) opening: Mutex<Opening>,
    /// Told when a lane is open, or will not be.
    pub(super) opened: Condvar,
    pub(super) tuners: [Mutex<Tuner>; 2],
    /// For copies through shared memory, which need no lanes.
    pub(super) staged: OnceLock<Staged>,
    pub(super) table: Mutex<Table>,
    /// Memory that an adapter of the server's reads and writes itself.
    pub(in super::super) lending: Arc<Lending>,
    /// Signalled when a transfer has progressed or ended.
    pub(super) changed: Signal,
    /// Rung when there may be chunks to write, for the lanes' writers.
    pub(super) work: Bell,
    /// Whether downloads are under way, so that lane threads look for them more eagerly.
    pub(super) eager: AtomicBool,
}

impl Bulk {
    pub(in super::super) fn new(
        dial: Option<Dial>,
        lanes: usize,
        grace: Option<Duration>,
        queues: bool,
        lending: Arc<Lending>,
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
            lending,
            changed: Signal::default(),
            work: Bell::default(),
            eager: AtomicBool::new(false),
        }
    }

    /// The link is gone: everything here ends.
    pub(in super::super) fn lose(&self) {
        for lane in self.open_lanes() {
            lane.down();
        }
        self.lending.end();
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
    pub(in super::super) fn check_lanes(&self) {
        for lane in self.open_lanes() {
            lane.check();
        }
    }

    /// In a forked child: lets go of the lanes.
    pub(in super::super) fn abandon(&self) {
        for lane in self.open_lanes() {
            lane.abandon();
        }
        self.lending.abandon();
    }

    /// Whether a lane can go on over another connection.
    pub(super) fn is_resumable(&self) -> bool {
        self.grace.is_some()
    }

    /// Lends the memory of a transfer, if that can be: frames on lanes that can go on tell of it.
    pub(super) fn lent(&self, host: &HostBytes, len: u64) -> Option<Place> {
        if self.is_resumable() { self.lending.lend(host, len) } else { None }
    }

    /// Whether a copy from there to the device needs no staging memory, as an adapter moves it.
    pub(in super::super) fn needs_no_staging(&self, host: &HostBytes, len: u64) -> bool {
        self.lending.takes_unstaged(len) && self.lent(host, len).is_some()
    }

    /// Wakes the lanes and the threads that wait for one.
    pub(super) fn tell_all(&self) {
        drop(lock(&self.table));
        self.work.ring_all();
        self.changed.tell_all();
    }

    /// There may be a chunk more to write.
    pub(super) fn tell_one(&self) {
        // The one that is told may have no connection.
        if self.open_lanes().all(Lane::is_up) { self.work.ring_one() } else { self.work.ring_all() }
    }

    pub(super) fn open_lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter_map(OnceLock::get)
    }

    /// What copies through shared memory of `bytes` need, with so many threads to help.
    pub(in super::super) fn staged(&self, bytes: usize, threads: usize) -> &Staged {
        self.staged.get_or_init(|| Staged::new(bytes, threads))
    }

    pub(super) fn set_eager(&self, table: &Table) {
        self.eager.store(table.downloads.is_any(), Ordering::Relaxed);
    }

    /// Takes in what transfers that have ended say of the link. Whether it is to have more lanes.
    pub(super) fn learn(&self, measured: &[Measured]) -> bool {
        let mut more = false;
        for one in measured {
            let (direction, len) = (one.direction as usize, one.cut.len());
            lock(&self.tuners[direction]).took(len, one.cut.chunk(), one.time);
            more |= lock(&self.count).took(direction, self.open_lanes().count(), len, one.time);
        }
        more
    }
}

/// How far opening the lanes has come.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// Lanes that were begun with.
    pub(super) begun: usize,
    /// Of these, the ones that could not be opened.
    pub(super) failed: usize,
}
