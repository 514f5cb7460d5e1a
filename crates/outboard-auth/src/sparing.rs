//! Log lines that strangers can cause: a few of each kind are written, and then how many were not.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines of one kind that come at once, ...
const BURST: u32 = 20;
/// ... and one more each time that so much time has passed.
const EACH: Duration = Duration::from_secs(1);

/// Lines that strangers cause, of this process.
pub static STRANGERS: Sparing = Sparing::new();

/// Which lines are written.
#[derive(Debug)]
pub struct Sparing(Mutex<BTreeMap<&'static str, Kind>>);

#[derive(Debug)]
struct Kind {
    /// Lines that may be written, at that time.
    may: u32,
    at: Instant,
    left_out: u64,
}

/// Lines of its kind that were not written before one that is; nothing if there were none.
pub type LeftOut = Option<u64>;

impl Sparing {
    const fn new() -> Sparing {
        Sparing(Mutex::new(BTreeMap::new()))
    }

    /// Whether a line of that kind is to be written now.
    pub fn admits(&self, kind: &'static str) -> Option<LeftOut> {
        self.admits_at(kind, Instant::now())
    }

    fn admits_at(&self, kind: &'static str, now: Instant) -> Option<LeftOut> {
        let mut kinds = self.0.lock();
        let kind = kinds.entry(kind).or_insert(Kind { may: BURST, at: now, left_out: 0 });
        kind.refill(now);
        if kind.may == 0 {
            kind.left_out += 1;
            return None;
        }
        kind.may -= 1;
        Some(kind.take())
    }

    /// Kinds of which lines were left out, and how many, where nothing was written since. They
    /// count as told.
    pub fn left_out(&self) -> Vec<(&'static str, u64)> {
        let mut kinds = self.0.lock();
        kinds.iter_mut().filter_map(|(name, kind)| Some((*name, kind.take()?))).collect()
    }
}

impl Kind {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        let more = u32::try_from(passed.as_nanos() / EACH.as_nanos()).unwrap_or(u32::MAX);
        if more > 0 {
            self.may = self.may.saturating_add(more).min(BURST);
            self.at = now;
        }
    }

    fn take(&mut self) -> LeftOut {
        Some(std::mem::take(&mut self.left_out)).filter(|left_out| *left_out > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_becomes_a_few_and_a_number() {
        let sparing = Sparing::new();
        let start = Instant::now();
        let written = (0..10_000).filter(|_| sparing.admits_at("flood", start).is_some()).count();
        assert_eq!(written, BURST as usize);
        assert_eq!(sparing.admits_at("other", start), Some(None), "another kind has its own lines");
        assert_eq!(sparing.admits_at("flood", start + EACH), Some(Some(10_000 - u64::from(BURST))));
        assert_eq!(sparing.admits_at("flood", start + EACH), None);
        assert_eq!(sparing.left_out(), [("flood", 1)]);
        assert!(sparing.left_out().is_empty());
        let later = start + EACH * 1000;
        let written = (0..100).filter(|_| sparing.admits_at("flood", later).is_some()).count();
        assert_eq!(written, BURST as usize, "quiet times are not saved up");
    }
}
