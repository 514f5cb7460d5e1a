//! Which pages of a region something is true of.

use std::ops::Range;

/// A set of pages.
#[derive(Debug)]
pub(super) struct Marks {
    marks: Vec<bool>,
    count: usize,
}

impl Marks {
    /// None, or all, of so many pages.
    pub(super) fn new(pages: usize, all: bool) -> Marks {
        Marks { marks: vec![all; pages], count: if all { pages } else { 0 } }
    }

    /// Those that are so marked.
    pub(super) fn of(marks: Vec<bool>) -> Marks {
        let count = marks.iter().filter(|mark| **mark).count();
        Marks { marks, count }
    }

    /// Adds or takes out pages.
    pub(super) fn set(&mut self, pages: &Range<usize>, now: bool) {
        for mark in &mut self.marks[pages.clone()] {
            self.count = self.count + usize::from(now) - usize::from(*mark);
            *mark = now;
        }
    }

    /// Runs of pages of the set among these.
    pub(super) fn runs(&self, pages: &Range<usize>) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        if self.count == 0 {
            return runs;
        }
        for page in pages.clone().filter(|page| self.marks[*page]) {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_of_what_is_set() {
        let mut marks = Marks::new(10, false);
        assert!(marks.runs(&(0..10)).is_empty());
        marks.set(&(2..5), true);
        marks.set(&(4..7), true);
        marks.set(&(3..4), false);
        assert_eq!(marks.runs(&(0..10)), [2..3, 4..7]);
        assert_eq!(marks.runs(&(5..10)), std::iter::once(5..7).collect::<Vec<_>>());
        marks.set(&(0..10), false);
        assert!(marks.count == 0 && marks.runs(&(0..10)).is_empty());
        assert_eq!(Marks::of(vec![true, false, true]).runs(&(0..3)), [0..1, 2..3]);
        assert_eq!(Marks::new(3, true).count, 3);
    }
}
