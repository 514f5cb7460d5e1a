//! Large copies, on connections of their own.
//!
//! A transfer is announced by a command, which names its number, its chunk size and its window; its
//! bytes travel on the lanes. Lane threads read and write straight from and to the application's
//! memory. An application's thread that waits for its upload writes chunks itself: a small copy
//! needs no other thread.

mod count;
pub(super) mod direction;
mod downloads;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
pub(super) mod host_bytes;
mod lane;
mod lanes;
pub(super) mod lending;
mod reading;
pub(super) mod sizes;
pub(super) mod state;
mod table;
mod transfer;
mod tuner;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use outboard_transport::PEER_CHECK;
use outboard_wire::lane::Lent;

use super::error::LinkError;
use super::locks::lock;
use super::shared::Shared;
pub use direction::Direction;
pub use host_bytes::HostBytes;
pub use sizes::suggested_chunk;
use sizes::{cut, overlapping_chunk};
use table::{Outcome, Table};
pub use transfer::{Later, Sent, Ticket, Upload};

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
const STUCK_AFTER: Duration = Duration::from_millis(20);

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
    let pause = if bulk.queues { STUCK_AFTER } else { PEER_CHECK };
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
    let is_first = behind.is_empty();
    let transfer = table.open_download(cut, to, behind, &outcome);
    shared.bulk.set_eager(&table);
    drop(table);
    if is_first && let Some(place) = shared.bulk.lent(&to, len) {
        lock(&shared.bulk.table).downloads.lend(transfer);
        lanes::lend(shared, transfer, &Lent { place, bytes: len, chunk: cut.chunk() });
    }
    Ok(Ticket { shared: Arc::clone(shared), transfer, cut, outcome })
}
