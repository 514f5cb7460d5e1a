//! Mapped memory that the device does not write to: a launch parameter only looks like its address,
//! or kernels only read it. Sums compare the device's bytes with those here, so that no bytes move;
//! they travel with the answers to waits, so that there is no further round trip.

use std::time::Instant;

use outboard_wire::sum::sum;

use crate::pager::glimpse::GLIMPSE;

/// The device leaves memory alone that it has not changed so many times in a row, of those between
/// which pages were closed.
const TIMES: u32 = 2;
/// A touch has the next waits compare, so many.
const WAITS: u32 = 8;

/// The history of the device's writes to a region.
#[derive(Debug)]
pub(super) struct Quiet {
    seed: u64,
    /// How many times in a row the device had what is here, wherever it was asked.
    times: u32,
    /// Whether it was asked since pages were closed last.
    asked: bool,
    /// It had something else then.
    changed: bool,
    /// How many waits compare sums, unless the program touches the region before.
    waits: u32,
    /// While the device works, until when it is taken to have what is here.
    until: Option<Instant>,
    /// The sum of what is here.
    sum: Option<u64>,
}

impl Quiet {
    pub(super) fn new(seed: u64) -> Quiet {
        Quiet { seed, times: 0, asked: false, changed: false, waits: 0, until: None, sum: None }
    }

    /// The seed of sums, if what is here is likely to be what the device has.
    pub(super) fn seed(&self) -> Option<u64> {
        (self.times >= TIMES).then_some(self.seed)
    }

    /// Whether the next wait is to compare.
    pub(super) fn compares(&self) -> bool {
        self.seed().is_some() && self.waits > 0
    }

    /// The sum of all that is here, if it has not been written to since it was told last.
    pub(super) fn sum(&mut self, bytes: &[u8]) -> u64 {
        *self.sum.get_or_insert_with(|| sum(self.seed, bytes))
    }

    /// What is here has changed.
    pub(super) fn written(&mut self) {
        self.sum = None;
    }

    /// A touch was noticed.
    pub(super) fn touched(&mut self) {
        self.waits = WAITS;
    }

    /// The device was asked for some of it: whether it has what is here.
    pub(super) fn asked(&mut self, same: bool) {
        self.changed |= !same;
        self.asked = true;
        if !same {
            self.times = 0;
        }
    }

    /// Pages are closed.
    pub(super) fn begin_anew(&mut self) {
        if std::mem::take(&mut self.asked) && !std::mem::take(&mut self.changed) {
            self.times = self.times.saturating_add(1);
        }
    }

    /// A wait has compared all of it.
    pub(super) fn compared(&mut self, same: bool) {
        self.waits = self.waits.saturating_sub(1);
        self.asked(same);
        self.begin_anew();
    }

    /// All of the region is known to be what the device has now.
    pub(super) fn trust(&mut self) {
        self.until = self.seed().map(|_| Instant::now() + GLIMPSE);
    }

    /// Until when the device is taken to have what is here.
    pub(super) fn trusted(&self) -> Option<Instant> {
        self.until.filter(|until| *until > Instant::now())
    }

    /// The device may have something else from now on. Whether it was taken to have what is here.
    pub(super) fn distrust(&mut self) -> bool {
        self.until.take().is_some()
    }
}
