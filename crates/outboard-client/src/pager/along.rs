//! Memory that the answer to a wait brings, as the device has it then: pages that the program is
//! likely to touch after the wait, and memory whose touches the pager does not notice.
//!
//! Of a region that the device does not write to, the answer says only whether that is still so.
//!
//! Both are valid only if nothing has changed between the wait and its answer: no page of their
//! region was opened or sent, and no other wait has ended, after which the program may know of work
//! that is newer than the bytes.

use std::time::Instant;

use super::glimpse::GLIMPSE;
use super::inner::Inner;
use super::pages::page_bytes;
use super::region::MOST_ALONG;
use super::store::Kind;
use outboard_wire::UnifiedPtr;
use outboard_wire::limits::MAX_COMPARED;

/// A wait under way.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    /// The number of the latest work that it may be for.
    pub(super) latest: u64,
    /// The number of the wait, among those that bring pages.
    number: u64,
    /// Addresses and lengths of what is to come with the answer.
    pub(super) places: Vec<(UnifiedPtr, u32)>,
    pub(super) seed: u64,
    /// What is to be compared: addresses, lengths and sums.
    pub(super) known: Vec<(UnifiedPtr, u32, u64)>,
    /// Memory that stays accessible of which all comes or is compared, with its version.
    pub(super) versions: Vec<(UnifiedPtr, u64)>,
}

/// The memory that the answer to a wait has brought.
#[derive(Debug, Default)]
pub(crate) struct Brought<'a> {
    /// The bytes of its places, one after the other.
    pub(crate) data: &'a [u8],
    /// Of each region that was to be compared, whether the device has what is here.
    pub(crate) same: Vec<bool>,
}

impl Wait {
    /// One for work up to number `latest`, with which nothing comes.
    pub(super) fn of(latest: u64) -> Wait {
        Wait { latest, ..Wait::default() }
    }

    /// A question that waits for nothing.
    pub(super) fn question(seed: u64) -> Wait {
        Wait { seed, ..Wait::default() }
    }

    /// Addresses and lengths of what is to come with the answer.
    pub(crate) fn places(&self) -> &[(UnifiedPtr, u32)] {
        &self.places
    }

    /// The seed of sums.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Addresses, lengths and sums of what is to be compared for the answer.
    pub(crate) fn known(&self) -> &[(UnifiedPtr, u32, u64)] {
        &self.known
    }

    /// Whether anything is to come with the answer.
    pub(crate) fn brings(&self) -> bool {
        !self.places.is_empty() || !self.known.is_empty()
    }

    /// What has come, by address; nothing if that is not what was asked for.
    pub(super) fn parts<'a>(
        &'a self,
        data: &'a [u8],
    ) -> impl Iterator<Item = (UnifiedPtr, &'a [u8])> {
        let total: usize = self.places.iter().map(|(_, bytes)| *bytes as usize).sum();
        let places = if data.len() == total { &self.places[..] } else { &[] };
        let mut rest = data;
        places.iter().map(move |(address, bytes)| {
            let (part, behind) = rest.split_at(*bytes as usize);
            rest = behind;
            (*address, part)
        })
    }
}

impl Inner {
    /// Chooses what is to come with the answer to a wait that begins.
    pub(super) fn expect(&mut self, wait: &mut Wait) {
        let mut pages: Vec<(u32, UnifiedPtr, usize)> = Vec::new();
        let mut room = MAX_COMPARED;
        let number = self.waits + 1;
        wait.seed = self.seed;
        self.opens.expect(wait, true, &mut room);
        for (base, region) in
            self.regions.iter_mut().filter(|(_, region)| region.home.kind == Kind::Mapped)
        {
            match region.compares(room) {
                Some((bytes, sum)) => {
                    room -= bytes;
                    region.coming = Some(number);
                    wait.known.push((*base, bytes as u32, sum));
                }
                None => pages.extend(region.likely().map(|(page, times)| (times, *base, page))),
            }
        }
        if pages.is_empty() && !wait.brings() {
            return;
        }
        (self.waits, wait.number) = (number, number);
        // Those that were touched last.
        pages.sort_unstable();
        pages.truncate(MOST_ALONG);
        pages.sort_unstable_by_key(|(_, base, page)| (*base, *page));
        let mut last = None;
        for (_, base, page) in pages {
            let Some(region) = self.regions.get_mut(&base) else { continue };
            region.coming = Some(wait.number);
            match wait.places.last_mut() {
                Some((_, bytes)) if last == Some((base, page)) => *bytes += page_bytes() as u32,
                _ => wait.places.push((region.address(page), page_bytes() as u32)),
            }
            last = Some((base, page + 1));
        }
    }

    /// The regions of which what comes with the answer to this wait is as they are.
    pub(super) fn current(&self, wait: &Wait) -> Vec<UnifiedPtr> {
        if !wait.brings() {
            return Vec::new();
        }
        let current = |(base, region): (&UnifiedPtr, &super::Region)| {
            (region.coming == Some(wait.number)).then_some(*base)
        };
        self.regions.iter().filter_map(current).collect()
    }

    /// Takes in what has come with the answer to a wait, for those regions that are as they were.
    pub(super) fn take_along(
        &mut self,
        wait: &Wait,
        brought: &Brought<'_>,
        current: &[UnifiedPtr],
    ) {
        let Inner { regions, moved, outstanding, .. } = self;
        let (busy, mut came) = (!outstanding.is_empty(), false);
        let pages = wait.parts(brought.data).map(|(address, part)| (address, Ok(part)));
        let compared = wait
            .known
            .iter()
            .zip(&brought.same)
            .map(|((address, ..), same)| (*address, Err(*same)));
        for (address, what) in pages.chain(compared) {
            let region = regions.range_mut(..=address).next_back().map(|(_, region)| region);
            let Some(region) = region.filter(|region| region.range().contains(&address)) else {
                continue;
            };
            let late = !current.contains(&region.range().start);
            match what {
                Ok(part) => region.came(address, part, late, moved),
                Err(same) => region.compared(same, late),
            }
            came = true;
            if busy {
                // Work that still runs may write to it at any time.
                region.due.get_or_insert_with(|| Instant::now() + GLIMPSE);
            }
        }
        if busy && came {
            self.ring();
        }
    }
}
