//! Memory that the program can always touch, and with it the system: page-locked memory of a
//! moderate size, and the first and last bytes of larger registered memory, which share a page with
//! memory that was not registered.
//!
//! The pager does not notice when the program touches it. It finds what the program has written by
//! comparison with what the device is known to have, and what the device has written by sums, after
//! each wait and now and then while work runs. Decision 81 has the reasons, and what it costs.

mod door;
mod looks;
mod range;
mod taking;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use outboard_front::backend::{ContextId, Result, UnifiedPtr};

use super::glimpse::GLIMPSE;
use super::moved::Moved;
use super::store::{Home, Store};
use range::Changed;

pub(super) use looks::Looks;
pub(super) use range::Open;

/// The most bytes of a range that stays accessible.
const MOST: usize = 1 << 20;
/// The most bytes of all such ranges of a server.
const MOST_IN_ALL: usize = 4 << 20;
/// How often words are looked at anew, at most, until none has changed meanwhile.
const TRIES: u32 = 4;

/// What a server has of such memory.
#[derive(Debug)]
pub(super) struct Opens {
    ranges: BTreeMap<UnifiedPtr, Open>,
    /// Bytes of all of them.
    bytes: usize,
    most: usize,
    /// When all of it was compared last.
    compared: Option<Instant>,
    /// How many looks in a row have ended while something changed.
    unsettled: u32,
}

impl Opens {
    pub(super) const fn new() -> Opens {
        Opens { ranges: BTreeMap::new(), bytes: 0, most: MOST, compared: None, unsettled: 0 }
    }

    /// Only memory of up to so many bytes stays accessible.
    #[cfg(test)]
    pub(super) fn limit(&mut self, most: Option<usize>) {
        self.most = most.unwrap_or(MOST);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether so many bytes may stay accessible.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.most && self.bytes + bytes <= MOST_IN_ALL
    }

    /// The device has zeros at these addresses of the program's, which stay readable and writable
    /// until they are taken out.
    pub(super) fn add(&mut self, home: Home, range: &Range<UnifiedPtr>) {
        let bytes = range.end.since(range.start) as usize;
        self.bytes += bytes;
        self.ranges.insert(range.start, Open::new(home, range.start, bytes));
    }

    /// The whole pages of all ranges.
    pub(super) fn pages(&self) -> impl Iterator<Item = Range<UnifiedPtr>> {
        let pages = self.ranges.values().map(|open| (open.address, open.pages()));
        pages.filter(|(_, pages)| !pages.is_empty()).map(|(address, pages)| {
            address.offset(pages.start as u64)..address.offset(pages.end as u64)
        })
    }

    /// Those that begin at these addresses, which are not looked after any more.
    pub(super) fn take_out(&mut self, range: &Range<UnifiedPtr>) -> Vec<Open> {
        self.take_out_where(|open| range.contains(&open.address))
    }

    /// A context has ended.
    pub(super) fn forget_context(&mut self, ctx: ContextId) {
        self.take_out_where(|open| open.home.ctx == ctx);
    }

    /// As [`Opens::take_out`], of memory that another looks after from now on: what the program has
    /// changed is sent before.
    pub(super) fn hand_over(
        &mut self,
        range: &Range<UnifiedPtr>,
        store: &dyn Store,
        moved: &mut Moved,
    ) -> Vec<Open> {
        let mut out = self.take_out(range);
        for open in &mut out {
            let changed = open.changed();
            // The next call reports bytes that cannot be sent now.
            let _ = open.send(store, &changed, moved);
        }
        out
    }

    fn take_out_where(&mut self, is: impl Fn(&Open) -> bool) -> Vec<Open> {
        let out: Vec<Open> =
            self.ranges.extract_if(.., |_, open| is(open)).map(|(_, open)| open).collect();
        self.bytes -= out.iter().map(|open| open.twin.len()).sum::<usize>();
        out
    }

    /// All ranges, as addresses.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<UnifiedPtr>> {
        self.ranges.values().map(Open::range)
    }

    /// Where one of them is.
    pub(super) fn first(&self) -> Option<(Home, UnifiedPtr)> {
        self.ranges.values().next().map(|open| (open.home, open.address))
    }

    fn at(&mut self, address: UnifiedPtr) -> Option<&mut Open> {
        let (_, open) = self.ranges.range_mut(..=address).next_back()?;
        open.range().contains(&address).then_some(open)
    }

    /// Sends what the program has changed: a kernel may have any address, from its parameters or
    /// from memory. If the device works, kernels may be
    /// looking: they see words in the order in which the program has written them, as far as one
    /// look does not come between two of them. Whether anything was sent.
    pub(super) fn flush(
        &mut self,
        store: &dyn Store,
        works: bool,
        moved: &mut Moved,
    ) -> Result<bool> {
        if self.is_empty() {
            return Ok(false);
        }
        let mut changed = self.changed();
        for _ in 0..TRIES {
            if !works || changed.is_empty() {
                break;
            }
            let again = self.changed();
            if std::mem::replace(&mut changed, again) == changed {
                break;
            }
        }
        self.compared = Some(Instant::now());
        for (address, changed) in &changed {
            if let Some(open) = self.ranges.get_mut(address) {
                open.send(store, changed, moved)?;
            }
        }
        Ok(!changed.is_empty())
    }

    fn changed(&self) -> Vec<(UnifiedPtr, Vec<Changed>)> {
        let changed = self.ranges.values().map(|open| (open.address, open.changed()));
        changed.filter(|(_, changed)| !changed.is_empty()).collect()
    }

    /// Whether all was compared a moment ago.
    pub(super) fn is_compared(&self) -> bool {
        self.compared.is_some_and(|then| then.elapsed() < GLIMPSE)
    }
}
