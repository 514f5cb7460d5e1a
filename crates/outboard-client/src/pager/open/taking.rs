//! How what the device has written reaches the program.

use std::ops::Range;

use outboard_front::backend::UnifiedPtr;
use outboard_wire::limits::MAX_COMPARED;

use super::{Open, Opens, TRIES};
use crate::pager::along::{Brought, Wait};
use crate::pager::difference::WORD;
use crate::pager::fault;
use crate::pager::moved::Moved;
use crate::pager::store::Store;

/// What has changed each time it was looked at is shown after so many looks.
const UNSETTLED: u32 = 8;
/// Most bytes that come with an answer because they are likely to have changed. A worker reads 1
/// MiB for an answer, in which there are protected pages, too.
const MOST_BROUGHT: usize = 960 << 10;

impl Opens {
    /// Names in a question, or in a wait that begins, what is to come with its answer. Only what is
    /// `likely` to have changed comes as it is. Some of the sums that an answer may compare are
    /// left.
    pub(in crate::pager) fn expect(&mut self, wait: &mut Wait, likely: bool, sums: &mut usize) {
        let mut room = if likely { MOST_BROUGHT } else { 0 };
        for open in self.ranges.values_mut() {
            let bytes = open.twin.len();
            if bytes > *sums {
                continue;
            }
            *sums -= bytes;
            wait.versions.push((open.address, open.version));
            for chunk in 0..open.chunks() {
                let (address, bytes) = open.place(chunk);
                if bytes as usize <= room && open.is_likely(chunk) {
                    room -= bytes as usize;
                    wait.places.push((address, bytes));
                } else {
                    let sum = open.sum(chunk, wait.seed);
                    wait.known.push((address, bytes, sum));
                }
            }
        }
    }

    /// Has the program see what the device has written, once a wait has ended that may have brought
    /// it. If work still runs, a program that sees a word also sees what the device has written
    /// before it.
    pub(in crate::pager) fn take(
        &mut self,
        store: &dyn Store,
        (wait, brought): (&Wait, &Brought<'_>),
        seed: u64,
        works: bool,
        moved: &mut Moved,
    ) {
        if self.is_empty() {
            return;
        }
        self.forget_news();
        let (mut missing, mut changed) = self.learn(store, wait, brought, moved);
        for _ in 0..TRIES {
            // Of what other work has written meanwhile, nothing must be missing before what was
            // written later.
            let is_settled = !works || !changed;
            if !missing && is_settled {
                break;
            }
            (missing, changed) = (false, self.ask(store, seed, moved));
        }
        self.ranges.values_mut().for_each(|open| open.version += 1);
        if wait.brings() {
            self.ranges.values_mut().for_each(Open::count_wait);
        }
        self.show(works);
    }

    /// Has the program see what the device has written while it works, as far as nothing has
    /// changed since it was asked. Whether it has written anything.
    pub(in crate::pager) fn take_look(
        &mut self,
        store: &dyn Store,
        (question, same): (&Wait, Vec<bool>),
        moved: &mut Moved,
    ) -> bool {
        self.forget_news();
        let brought = Brought { data: &[], same };
        let (_, mut changed) = self.learn(store, question, &brought, moved);
        for _ in 0..TRIES {
            if !changed {
                break;
            }
            changed = self.ask(store, question.seed, moved);
        }
        // What a kernel does not stop writing to cannot be had as it is at one time.
        self.unsettled = if changed { self.unsettled + 1 } else { 0 };
        if changed && !self.unsettled.is_multiple_of(UNSETTLED) {
            return true;
        }
        self.show(true)
    }

    /// Asks for all that is not as it is known to be. Whether there was any.
    fn ask(&mut self, store: &dyn Store, seed: u64, moved: &mut Moved) -> bool {
        let mut question = Wait::question(seed);
        let mut sums = MAX_COMPARED;
        self.expect(&mut question, false, &mut sums);
        let Some((home, _)) = self.first() else { return false };
        let mut changed = false;
        let answered = match store.compare(home.ctx, seed, question.known()) {
            Ok(same) => {
                let brought = Brought { data: &[], same };
                let (missing, news) = self.learn(store, &question, &brought, moved);
                changed = news;
                !missing
            }
            Err(_) => false,
        };
        if !answered {
            for open in self.ranges.values_mut() {
                let all = 0..open.twin.len();
                // A failure is one of the context or the connection, which the program's next call
                // reports.
                changed |= open.fetch(store, &all, Some(seed), moved).unwrap_or(false);
            }
        }
        changed
    }

    /// Takes in an answer, and fetches what is not as it was known to be. Whether something is
    /// missing, and whether anything was news.
    fn learn(
        &mut self,
        store: &dyn Store,
        wait: &Wait,
        brought: &Brought<'_>,
        moved: &mut Moved,
    ) -> (bool, bool) {
        let complete = wait.parts(brought.data).count() == wait.places.len()
            && brought.same.len() == wait.known.len();
        let versions = if complete { &wait.versions[..] } else { &[] };
        let valid: Vec<UnifiedPtr> = versions
            .iter()
            .filter(|(address, version)| {
                self.ranges.get(address).is_some_and(|open| open.version == *version)
            })
            .map(|(address, _)| *address)
            .collect();
        let missing = valid.len() < self.ranges.len();
        let mut changed = false;
        for (address, part) in wait.parts(brought.data) {
            if let Some(open) = self.at(address).filter(|open| valid.contains(&open.address)) {
                moved.fetched += part.len() as u64;
                let at = open.offset(address);
                changed |= open.learn(at, part);
            }
        }
        // Neighbours are fetched together.
        let mut behind: Vec<(UnifiedPtr, Range<usize>)> = Vec::new();
        for ((address, bytes, _), _) in
            wait.known.iter().zip(&brought.same).filter(|(_, same)| !**same)
        {
            let Some(open) = self.at(*address).filter(|open| valid.contains(&open.address)) else {
                continue;
            };
            let at = open.offset(*address);
            let end = at + *bytes as usize;
            match behind.last_mut() {
                Some((of, last)) if *of == open.address && last.end == at => last.end = end,
                _ => behind.push((open.address, at..end)),
            }
        }
        for (address, bytes) in behind {
            if let Some(open) = self.ranges.get_mut(&address) {
                // As above.
                changed |= open.fetch(store, &bytes, None, moved).unwrap_or(false);
            }
        }
        (missing, changed)
    }

    /// What was found is of no use.
    fn forget_news(&mut self) {
        self.ranges.values_mut().for_each(Open::forget);
    }

    /// Stores what is new; whether anything was. Words are stored one after the other: if work
    /// runs, whose words the program may be watching, it sees none of them before all are there.
    fn show(&mut self, works: bool) -> bool {
        let news: Vec<(UnifiedPtr, Vec<Range<usize>>)> = self
            .ranges
            .values()
            .map(|open| (open.address, open.news()))
            .filter(|(_, news)| !news.is_empty())
            .collect();
        let bytes: usize = news.iter().flat_map(|(_, news)| news).map(Range::len).sum();
        let closes = works && bytes > WORD;
        if closes {
            // Touches of what is closed wait for this thread.
            let _ = fault::arm();
        }
        let mut closed: Vec<Vec<_>> = Vec::new();
        for (address, news) in &news {
            let open = self.ranges.get(address).filter(|_| closes);
            closed.push(open.map_or_else(Vec::new, |open| open.close(news)));
        }
        for ((address, news), closed) in news.iter().zip(&closed) {
            if let Some(open) = self.ranges.get_mut(address) {
                open.show(news, closed);
            }
        }
        !news.is_empty()
    }
}
