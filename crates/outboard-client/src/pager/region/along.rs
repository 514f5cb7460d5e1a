//! Which pages come along with the answer to a wait: those that were touched after one of the last.

use std::ops::Range;

/// Pages that come with one answer, at most.
pub(in crate::pager) const MOST: usize = 16;
/// A page that was fetched this often without being touched is not fetched with answers any more.
const MOST_UNTOUCHED: u32 = 8;
/// After so many fetched pages of which none was touched, no page of the region is fetched with
/// answers ...
const MOST_WASTED: usize = 64;
/// ... until the device has been asked for pages of it so many times.
const PAUSE: u32 = 64;

/// Pages of a region that the program is likely to touch when it has waited.
#[derive(Debug, Default)]
pub(super) struct Along {
    /// Pages, ascending, with how often each has come since it was touched last.
    pages: Vec<(usize, u32)>,
    /// Pages that the device was asked for since a wait began.
    fetched: usize,
    /// Pages that have come since one of them was touched.
    wasted: usize,
    /// The device will be asked so many times before pages are remembered again.
    rest: u32,
}

impl Along {
    /// The device was asked for these pages, since one of them was touched.
    pub(super) fn fetched(&mut self, pages: &Range<usize>) {
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        self.fetched += pages.len();
        if self.fetched > MOST {
            // Nothing is won if some come along and others do not.
            self.pages.clear();
            return;
        }
        for page in pages.clone() {
            match self.pages.binary_search_by_key(&page, |(page, _)| *page) {
                Ok(at) => self.pages[at].1 = 0,
                Err(at) => self.pages.insert(at, (page, 0)),
            }
        }
        while self.pages.len() > MOST {
            let most = self.pages.iter().map(|(_, times)| *times).max();
            let at = self.pages.iter().position(|(_, times)| Some(*times) == most);
            self.pages.remove(at.unwrap_or(0));
        }
    }

    /// A wait begins: the pages that are to come with its answer, and how often each has come since
    /// it was touched last.
    pub(super) fn likely(&mut self) -> &[(usize, u32)] {
        self.fetched = 0;
        if self.wasted >= MOST_WASTED {
            *self = Along { rest: PAUSE, ..Along::default() };
        }
        self.pages.retain(|(_, times)| *times < MOST_UNTOUCHED);
        &self.pages
    }

    /// These pages have come.
    pub(super) fn came(&mut self, pages: &Range<usize>) {
        self.wasted += pages.len();
        self.times(pages).for_each(|times| *times += 1);
    }

    /// Of these pages, which had come, one was touched.
    pub(super) fn touched(&mut self, pages: &Range<usize>) {
        self.wasted = 0;
        self.times(pages).for_each(|times| *times = 0);
    }

    fn times(&mut self, pages: &Range<usize>) -> impl Iterator<Item = &mut u32> {
        self.pages.iter_mut().filter(|(page, _)| pages.contains(page)).map(|(_, times)| times)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A region whose program touches pages after each wait: pages that were brought in time,
    /// fetched, and brought in vain.
    #[derive(Default)]
    struct Loop {
        along: Along,
        fetches: usize,
        wasted: usize,
    }

    impl Loop {
        fn step(&mut self, touched: &[usize]) {
            let came: BTreeSet<usize> = self.along.likely().iter().map(|(page, _)| *page).collect();
            assert!(came.len() <= MOST);
            came.iter().for_each(|page| self.along.came(&(*page..page + 1)));
            for page in touched {
                match came.contains(page) {
                    true => self.along.touched(&(*page..page + 1)),
                    false => {
                        self.fetches += 1;
                        self.along.fetched(&(*page..page + 1));
                    }
                }
            }
            self.wasted += came.iter().filter(|page| !touched.contains(page)).count();
        }
    }

    #[test]
    fn what_is_touched_again_comes() {
        let mut one = Loop::default();
        (0..100).for_each(|_| one.step(&[7, 8, 90]));
        assert_eq!((one.fetches, one.wasted), (3, 0));
        let mut turns = Loop::default();
        (0..99).for_each(|step| turns.step(&[step % 3]));
        assert_eq!(turns.fetches, 3, "pages in turns come each time");
        let mut seldom = Loop::default();
        (0..100).for_each(|step| seldom.step(if step % 5 == 0 { &[3] } else { &[] }));
        assert_eq!(
            (seldom.fetches, seldom.wasted),
            (1, 80),
            "waits for something else may be in between"
        );
    }

    #[test]
    fn what_is_not_touched_any_more_does_not_come_for_long() {
        let mut all = Loop::default();
        all.step(&[1, 2, 3]);
        (0..100).for_each(|_| all.step(&[]));
        assert_eq!(all.wasted, 3 * MOST_UNTOUCHED as usize);
        let mut some = Loop::default();
        some.step(&[1, 2, 3]);
        (0..100).for_each(|_| some.step(&[2]));
        assert_eq!((some.fetches, some.wasted), (3, 2 * MOST_UNTOUCHED as usize));
    }

    #[test]
    fn much_does_not_come_in_part() {
        let mut along = Along::default();
        along.fetched(&(0..MOST));
        assert_eq!(along.likely().len(), MOST);
        along.fetched(&(0..MOST));
        along.fetched(&(MOST..MOST + 1));
        assert!(along.likely().is_empty());
    }

    /// Whatever a program touches: what comes in vain is bounded by what was touched.
    #[test]
    fn wasted_pages_are_bounded() {
        let mut seed = 1u64;
        let mut random = move |below: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for pages in [2, 10, 30, 1000] {
            let (mut all, mut touched) = (Loop::default(), 0);
            for _ in 0..5000 {
                let now: BTreeSet<usize> = (0..random(3)).map(|_| random(pages)).collect();
                touched += now.len();
                all.step(&now.into_iter().collect::<Vec<_>>());
            }
            // A page that is touched comes along a few times afterwards.
            assert!(
                all.wasted <= MOST_UNTOUCHED as usize * touched,
                "{} of {pages} pages, {touched} touched",
                all.wasted
            );
        }
        let mut fresh = Loop::default();
        (0..10_000).for_each(|step| fresh.step(&[step]));
        assert!(
            fresh.wasted < 10_000 + 100,
            "{} pages came in vain for 10,000 that were touched",
            fresh.wasted
        );
    }
}
