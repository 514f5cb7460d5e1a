//! What comes along with the answer to a wait: pages that the program is likely to touch when it has waited, as the device has them then.
//!
//! They are of use only if nothing has changed between the question and the answer: no page of their region was opened or sent meanwhile, and
//! no other wait has ended, since the program may then know of work that the bytes are older than.

use std::time::Instant;

use super::inner::Inner;
use super::region::MOST_ALONG;
use super::store::Kind;
use super::{GLIMPSE, PAGE, fault};

/// A wait under way.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    /// The number of the latest work that it may be for.
    pub(super) latest: u64,
    /// The number of the wait, among those that bring pages.
    number: u64,
    /// Addresses and lengths of what is to come with the answer.
    places: Vec<(u64, u32)>,
}

impl Wait {
    /// One for work up to number `latest`, with which nothing comes.
    pub(super) fn of(latest: u64) -> Wait {
        Wait { latest, ..Wait::default() }
    }

    /// Addresses and lengths of what is to come with the answer.
    pub(crate) fn places(&self) -> &[(u64, u32)] {
        &self.places
    }
}

impl Inner {
    /// Chooses what is to come with the answer to a wait that begins.
    pub(super) fn expect(&mut self, wait: &mut Wait) {
        let mut pages: Vec<(u32, u64, usize)> = Vec::new();
        for (base, region) in self.regions.iter_mut().filter(|(_, region)| region.home.kind == Kind::Mapped) {
            pages.extend(region.likely().map(|(page, times)| (times, *base, page)));
        }
        if pages.is_empty() {
            return;
        }
        // Those that were touched last.
        pages.sort_unstable();
        pages.truncate(MOST_ALONG);
        pages.sort_unstable_by_key(|(_, base, page)| (*base, *page));
        self.waits += 1;
        wait.number = self.waits;
        let mut last = None;
        for (_, base, page) in pages {
            let Some(region) = self.regions.get_mut(&base) else { continue };
            region.coming = Some(wait.number);
            match wait.places.last_mut() {
                Some((_, bytes)) if last == Some((base, page)) => *bytes += PAGE as u32,
                _ => wait.places.push((region.address(page), PAGE as u32)),
            }
            last = Some((base, page + 1));
        }
    }

    /// The regions of which what comes with the answer to this wait is as they are.
    pub(super) fn current(&self, wait: &Wait) -> Vec<u64> {
        if wait.places.is_empty() {
            return Vec::new();
        }
        let current = |(base, region): (&u64, &super::Region)| (region.coming == Some(wait.number)).then_some(*base);
        self.regions.iter().filter_map(current).collect()
    }

    /// Takes in what has come with the answer to a wait, for those regions that are as they were.
    pub(super) fn take_along(&mut self, wait: &Wait, data: &[u8], current: &[u64]) {
        let total: usize = wait.places.iter().map(|(_, bytes)| *bytes as usize).sum();
        if data.is_empty() || data.len() != total {
            return;
        }
        let busy = !self.outstanding.is_empty();
        let mut rest = data;
        for (address, bytes) in &wait.places {
            let (part, behind) = rest.split_at(*bytes as usize);
            rest = behind;
            let mut moved = self.moved;
            let Some(region) = self.region(*address) else { continue };
            region.came(*address, part, !current.contains(&region.range().start), &mut moved);
            if busy {
                // Work that goes on may write to it at any time.
                region.due = region.due.max(Some(Instant::now() + GLIMPSE));
            }
            self.moved = moved;
        }
        if busy {
            fault::ring();
        }
    }
}
