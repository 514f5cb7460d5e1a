//! Counting what moves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of a link since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commands posted.
    pub posted: u64,
    /// Commands waited for.
    pub calls: u64,
    /// Time spent waiting for replies, summed over all threads.
    pub waited: Duration,
    /// Writes to the command connection.
    pub sends: u64,
    /// Bytes written to the command connection.
    pub sent: u64,
    /// Bytes read from the command connection.
    pub received: u64,
    /// Bytes of bulk data sent.
    pub bulk_sent: u64,
    /// Bytes of bulk data received.
    pub bulk_received: u64,
}

/// A counter that many threads add to.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What calls and bulk data are counted by.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls: Counter,
    pub(super) waited_ns: Counter,
    pub(super) bulk_sent: Counter,
    pub(super) bulk_received: Counter,
}
