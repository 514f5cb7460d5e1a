//! How many pages are opened by one touch.

/// Which pages of a region were touched between two times at which the pager protected them.
#[derive(Debug, Default)]
pub(in crate::pager) struct Ahead {
    /// Pages opened since the last of these times.
    opened: usize,
    /// Pages that were usually opened between two of them lately.
    usual: usize,
    /// How often pages were opened between two of them.
    times: u32,
}

/// What a touch opens pages for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pager) enum Opens {
    /// Reading.
    Read,
    /// Reading or writing, where the bytes are here: only the touch is to be known.
    Known,
    /// Writing. Pages that were not written to after all are found before anything is sent.
    Compared,
    /// Writing. All that is open is sent.
    Sent,
}

/// More pages are never opened at once.
pub(in crate::pager) const MOST: usize = 1024;
/// After so many rounds the pager measures anew how much of a region is touched.
const LEARNS_EVERY: u32 = 32;

impl Opens {
    /// Pages opened at once: at least, and at most.
    fn bounds(self) -> (usize, usize) {
        match self {
            Opens::Read | Opens::Compared => (4, MOST),
            Opens::Known => (1, MOST),
            Opens::Sent => (1, 64),
        }
    }
}

impl Ahead {
    /// How many pages to open behind `walked` that are open, in a region of `all` pages. Several
    /// threads may walk through the same region, each through a part of it. If most of the region
    /// was touched before, all of it is opened at once.
    pub(in crate::pager) fn pages(&self, what: Opens, walked: usize, all: usize) -> usize {
        let (fewest, most) = what.bounds();
        if self.opens_all(what, all) { most } else { walked.clamp(fewest, most) }
    }

    /// The first page to open for a touch of `page`. What is opened at once includes pages before
    /// it: of threads that each walk through a part of a region, any may be the first to touch it.
    pub(in crate::pager) fn first(&self, what: Opens, page: usize, all: usize) -> usize {
        if self.opens_all(what, all) { page / MOST * MOST } else { page }
    }

    fn opens_all(&self, what: Opens, all: usize) -> bool {
        2 * self.usual >= all && !self.learns() && !matches!(what, Opens::Sent | Opens::Known)
    }

    /// So many more are open.
    pub(in crate::pager) fn opened(&mut self, pages: usize) {
        self.opened += pages;
    }

    /// All pages are closed again.
    pub(in crate::pager) fn begin_anew(&mut self) {
        if self.opened == 0 {
            return;
        }
        // A touch of little in between does not change what is usual, unless it is what comes when
        // that is found out.
        let kept = if self.learns() { 0 } else { self.usual - self.usual / 8 };
        self.usual = std::mem::take(&mut self.opened).max(kept);
        self.times += 1;
    }

    /// Whether only touched pages are opened this time.
    fn learns(&self) -> bool {
        self.times.is_multiple_of(LEARNS_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Touches to write to all of `parts` parts of a region, each of so many pages, in turns.
    fn touches(ahead: &mut Ahead, what: Opens, parts: usize, each: usize) -> usize {
        let mut open = vec![false; parts * each];
        let mut touches = 0;
        for page in (0..each).flat_map(|page| (0..parts).map(move |part| part * each + page)) {
            if !open[page] {
                let walked = open[..page].iter().rev().take_while(|open| **open).count();
                let end = (page + ahead.pages(what, walked, open.len())).min(open.len());
                open[page..end].fill(true);
                ahead.opened(end - page);
                touches += 1;
            }
        }
        ahead.begin_anew();
        touches
    }

    #[test]
    fn a_walk_opens_ever_more_pages() {
        let mut ahead = Ahead::default();
        // 64 images of 3 × 224 × 224 floats.
        assert_eq!(touches(&mut ahead, Opens::Compared, 1, 9_408), 18);
        assert_eq!(
            touches(&mut Ahead::default(), Opens::Sent, 1, 9_408),
            153,
            "what is opened is sent"
        );
        assert_eq!(ahead.pages(Opens::Sent, 0, 10_000), 1);
    }

    #[test]
    fn threads_that_walk_through_parts_stop_less_from_the_second_time_on() {
        let mut ahead = Ahead::default();
        assert!(touches(&mut ahead, Opens::Compared, 16, 16) <= 64);
        for _ in 1..LEARNS_EVERY - 1 {
            assert_eq!(touches(&mut ahead, Opens::Compared, 16, 16), 1);
        }
        touches(&mut ahead, Opens::Compared, 16, 16);
        assert!(
            touches(&mut ahead, Opens::Compared, 16, 16) > 1,
            "now and then it is looked whether that is so still"
        );
    }

    #[test]
    fn few_pages_of_many_are_opened_by_themselves() {
        let mut ahead = Ahead::default();
        for _ in 0..5 {
            ahead.opened(4);
            ahead.begin_anew();
        }
        assert_eq!(ahead.pages(Opens::Compared, 0, 1000), 4);
    }
}
