//! Where the lanes of a warp must be brought into step.
//!
//! A thread runs until it waits, so what a converged warp of a GPU does in one instruction after
//! another, one thread here does ahead of the next. That shows only where lanes touch the same
//! memory: where an access may follow, with no barrier or warp operation between, one of the other
//! kind by another lane to the same bytes. Before such an access the thread lets the lanes behind
//! it catch up.
//!
//! Shared memory is stepped wherever it cannot be shown that lanes stay apart, and so are accesses
//! to device memory that are volatile or ordered. Other accesses to device memory are stepped where
//! it is known that they touch the same: there, nothing is known of most, and a kernel that never
//! waits runs several times as fast as one whose threads are switched.

mod conflict;
mod divide;
mod flow;
mod linear;
mod regions;
mod registers;

pub(crate) use conflict::Gap;
pub(crate) use flow::{Reach, find, reach};
pub(crate) use linear::Atom;

use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Most tests at one step; with more of them lanes step always.
pub(crate) const MOST_GAPS: usize = 3;

/// A place in a body: block and instruction.
pub(crate) type Place = (u32, u32);

/// What to do before an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// The lanes step if one of these is near; always without any.
    pub(crate) gaps: Vec<Gap>,
    /// Only where warps span rows of the block.
    pub(crate) across_rows: bool,
    /// Only accesses to generic addresses are in question.
    pub(crate) generic: bool,
}

/// The steps of a body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps {
    pub(crate) at: BTreeMap<Place, Step>,
}

impl Steps {
    fn any(&self, property: impl Fn(&Step) -> bool) -> bool {
        self.at.values().any(property)
    }

    /// Whether lanes of any launch step, in kernels with shared memory or not.
    pub(crate) fn always(&self) -> bool {
        self.any(|step| !step.across_rows && !step.generic)
    }

    pub(crate) fn with_shared(&self) -> bool {
        self.any(|step| !step.across_rows)
    }

    pub(crate) fn across_rows(&self) -> bool {
        self.any(|step| !step.generic)
    }

    pub(crate) fn with_shared_across_rows(&self) -> bool {
        !self.at.is_empty()
    }
}
