//! When a request that must wait could be served, if leases end when they must.

use super::Placement;
use crate::state::Pool;
use crate::words::{Granted, LeaseNumber, Request};
use jiff::Timestamp;

/// Devices that a request can have from some time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// When the last of the leases ends that must end before.
    pub at: Timestamp,
    /// The devices, some of which are in use until then.
    pub devices: Vec<Granted>,
}

/// The earliest time at which the request can be served of what the pool has now, and by which
/// devices. `ends` says when each lease ends at the latest. Nothing, if it can be served at once,
/// or not even when all leases are over: some servers give out nothing now.
///
/// The request can be served at that time whatever becomes of the other devices, as long as these
/// are given only to leases that end by then.
#[must_use]
pub fn foresee(
    how: &impl Placement,
    pool: &Pool,
    request: &Request,
    ends: impl IntoIterator<Item = (Timestamp, LeaseNumber)>,
) -> Option<Foreseen> {
    let mut ends: Vec<(Timestamp, LeaseNumber)> = ends.into_iter().collect();
    ends.sort_unstable();
    let without_first = |count: usize| {
        let mut later = pool.clone();
        later.set_apart([]);
        for (_, lease) in &ends[..count] {
            later.release(*lease);
        }
        how.place(&later, request).ok()
    };
    let mut devices = without_first(ends.len())?;
    // With fewer than `low` leases over it cannot be served, with `high` it can.
    let (mut low, mut high) = (0, ends.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match without_first(middle) {
            Some(found) => {
                devices = found;
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    let (at, _) = *ends.get(high.checked_sub(1)?)?;
    Some(Foreseen { at, devices })
}
