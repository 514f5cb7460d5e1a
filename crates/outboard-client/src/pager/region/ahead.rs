//! How many pages are opened by one touch.

/// Read-ahead of a thread that walks through the pages.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The page behind those that the last fault opened.
    pub(super) next: usize,
    /// Pages to open at once.
    pages: usize,
}

/// Pages opened for reading by a touch out of order, and by one in order at most.
const FEWEST: usize = 4;
const MOST: usize = 1024;
/// Pages opened for writing at once at most: all of them count as written. Out of order it is one.
const MOST_WRITTEN: usize = 64;

impl Ahead {
    /// How many pages to open at `page`, for writing or only for reading.
    pub(super) fn take(&mut self, page: usize, write: bool) -> usize {
        let (fewest, most) = if write { (1, MOST_WRITTEN) } else { (FEWEST, MOST) };
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
            let count = ahead.take(page, false);
            ahead.next = page + count;
            opened.push(count);
        }
        assert_eq!(opened, [4, 8, 16, 32]);
        assert_eq!(ahead.take(1000, false), FEWEST, "a jump starts anew");
        assert_eq!(ahead.take(2000, true), 1, "what is opened for writing is sent");
    }
}
