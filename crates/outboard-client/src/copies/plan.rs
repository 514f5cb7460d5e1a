//! Which way the bytes of a copy take.

use outboard_front::backend::CopyMode;
use outboard_wire::limits::MAX_INLINE;

use crate::link::bulk::Direction;

/// A way that the bytes of a copy between the program's memory and the device take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In the command, or in its answer.
    Inline,
    /// Through memory that the worker shares; this thread copies.
    Staged,
    /// The same, while this thread continues. Copies for which that memory has no room use lanes.
    Background,
    /// On connections of their own.
    Lanes,
    /// So, when the worker asks for them: something before the copy in its stream may still write
    /// them.
    Late,
}

/// What decides it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) direction: Direction,
    pub(super) bytes: u64,
    pub(super) mode: CopyMode,
    /// Whether the worker shares memory with this process.
    pub(super) shares_memory: bool,
    /// Whether work that the client must not wait for writes the source before the stream reaches
    /// the copy.
    pub(super) is_written_before: bool,
}

/// Chooses the way. The first that fits is the fastest.
pub(super) fn plan(facts: &Facts) -> Way {
    let to_device = facts.direction == Direction::Up;
    // The answer to a copy to the host is waited for.
    let waits = facts.mode != CopyMode::Pinned;
    if to_device && facts.is_written_before {
        Way::Late
    } else if facts.bytes <= MAX_INLINE as u64 && (to_device || waits) {
        Way::Inline
    } else if facts.shares_memory {
        if waits { Way::Staged } else { Way::Background }
    } else {
        Way::Lanes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts() -> impl Strategy<Value = Facts> {
        let around = MAX_INLINE as u64 - 1..MAX_INLINE as u64 + 2;
        let bytes = prop_oneof![1u64..4, around, Just(1u64 << 40)];
        let modes = vec![CopyMode::Synchronous, CopyMode::Pageable, CopyMode::Pinned];
        (any::<bool>(), bytes, proptest::sample::select(modes), any::<bool>(), any::<bool>())
            .prop_map(|(up, bytes, mode, shares_memory, is_written_before)| {
                let direction = if up { Direction::Up } else { Direction::Down };
                Facts { direction, bytes, mode, shares_memory, is_written_before }
            })
    }

    proptest! {
        /// What each way needs is there, and each copy goes the first way whose needs are met.
        #[test]
        fn a_way_has_what_it_needs(facts in facts()) {
            let small = facts.bytes <= MAX_INLINE as u64;
            let asynchronous = facts.mode == CopyMode::Pinned;
            match plan(&facts) {
                Way::Inline => prop_assert!(small && !(asynchronous && facts.direction == Direction::Down)),
                Way::Staged => prop_assert!(!small && facts.shares_memory && !asynchronous),
                Way::Background => {
                    let inline = small && facts.direction == Direction::Up;
                    prop_assert!(facts.shares_memory && asynchronous && !inline);
                }
                Way::Late => prop_assert!(facts.is_written_before && facts.direction == Direction::Up),
                Way::Lanes => prop_assert!(!facts.shares_memory && (asynchronous || !small)),
            }
        }
    }

    /// All there is to say, as a table.
    #[test]
    fn the_plan() {
        use CopyMode::{Pageable, Pinned, Synchronous};
        use Direction::{Down, Up};
        let (small, large) = (MAX_INLINE as u64, MAX_INLINE as u64 + 1);
        for (direction, bytes, mode, over_tcp, shared) in [
            (Up, small, Synchronous, Way::Inline, Way::Inline),
            (Up, small, Pageable, Way::Inline, Way::Inline),
            (Up, small, Pinned, Way::Inline, Way::Inline),
            (Up, large, Synchronous, Way::Lanes, Way::Staged),
            (Up, large, Pageable, Way::Lanes, Way::Staged),
            (Up, large, Pinned, Way::Lanes, Way::Background),
            (Down, small, Synchronous, Way::Inline, Way::Inline),
            (Down, small, Pageable, Way::Inline, Way::Inline),
            (Down, small, Pinned, Way::Lanes, Way::Background),
            (Down, large, Synchronous, Way::Lanes, Way::Staged),
            (Down, large, Pageable, Way::Lanes, Way::Staged),
            (Down, large, Pinned, Way::Lanes, Way::Background),
        ] {
            let facts =
                Facts { direction, bytes, mode, shares_memory: false, is_written_before: false };
            assert_eq!(plan(&facts), over_tcp, "{facts:?}");
            let facts = Facts { shares_memory: true, ..facts };
            assert_eq!(plan(&facts), shared, "{facts:?}");
            let facts = Facts { is_written_before: true, ..facts };
            assert_eq!(plan(&facts), if direction == Up { Way::Late } else { shared }, "{facts:?}");
        }
    }
}
