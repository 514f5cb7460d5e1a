//! How many pages are opened by one touch.

/// Read-ahead of a thread that walks through the pages.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The page behind those that the last fault opened.
    pub(super) next: usize,
    /// Pages to open at once.
    pages: usize,
}

/// What a touch opens pages for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opens {
    /// Reading.
    Read,
    /// Writing. What is not written to after all is found out before anything is sent.
    Compared,
    /// Writing. All that is open is sent.
    Sent,
}

impl Opens {
    /// Pages opened by a touch out of order, and by one in order at most.
    fn bounds(self) -> (usize, usize) {
        match self {
            Opens::Read => (4, 1024),
            Opens::Compared => (1, 1024),
            Opens::Sent => (1, 64),
        }
    }
}

impl Ahead {
    /// How many pages to open at `page`.
    pub(super) fn take(&mut self, page: usize, what: Opens) -> usize {
        let (fewest, most) = what.bounds();
        self.pages = if page == self.next { (self.pages * 2).clamp(fewest, most) } else { fewest };
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_opens_ever_more_pages() {
        let mut ahead = Ahead::default();
        let mut opened = Vec::new();
        for _ in 0..4 {
            let page = ahead.next;
            let count = ahead.take(page, Opens::Read);
            ahead.next = page + count;
            opened.push(count);
        }
        assert_eq!(opened, [4, 8, 16, 32]);
        assert_eq!(ahead.take(1000, Opens::Read), 4, "a jump starts anew");
        assert_eq!(ahead.take(2000, Opens::Sent), 1, "what is opened for writing is sent");
    }

    #[test]
    fn a_walk_that_writes_a_batch_of_images_stops_seldom() {
        let stops = |what| {
            let (mut ahead, mut stops) = (Ahead::default(), 0);
            // 64 images of 3 × 224 × 224 floats.
            while ahead.next < 9_408 {
                ahead.next += ahead.take(ahead.next, what);
                stops += 1;
            }
            stops
        };
        assert_eq!((stops(Opens::Compared), stops(Opens::Sent)), (19, 153));
    }
}
