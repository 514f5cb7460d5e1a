//! Assigns areas of the shared memory for copies.

use std::sync::{Mutex, MutexGuard, PoisonError};

use outboard_session::groups::BLOCK;
use outboard_session::ranges::Blocks;

/// Part of the shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// Whether the device has done with an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Over,
    GoesOn,
    /// Nobody will ever know.
    Unknown,
}

/// What is taken and what is free.
#[derive(Debug)]
pub(super) struct Areas(Mutex<AreasState>);

#[derive(Debug)]
struct AreasState {
    free: Blocks,
    /// Areas that only the device uses still.
    draining: Vec<Draining>,
}

struct Draining {
    area: Area,
    state: Box<dyn Fn() -> Use + Send>,
}

impl std::fmt::Debug for Draining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.area.fmt(f)
    }
}

impl Areas {
    /// Of a segment of `bytes`.
    pub(super) fn new(bytes: usize) -> Areas {
        Areas(Mutex::new(AreasState {
            free: Blocks::new(BLOCK, bytes / BLOCK),
            draining: Vec::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, AreasState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An area, if there is one now. It lies within a block; blocks that are in use come first,
    /// since the device knows them already.
    pub(super) fn take(&self, bytes: usize) -> Option<Area> {
        self.take_of(bytes, usize::MAX)
    }

    /// The same, of the first `most` blocks.
    pub(super) fn take_of(&self, bytes: usize, most: usize) -> Option<Area> {
        let mut state = self.state();
        state.drain();
        Some(Area { at: state.free.take(bytes, most)?, bytes })
    }

    /// Takes back areas that the device no longer uses.
    pub(super) fn drain(&self) {
        self.state().drain();
    }

    /// Nobody uses any of it any more.
    pub(super) fn lose(&self) {
        self.state().draining.clear();
    }

    /// An area is free again.
    pub(super) fn give_back(&self, area: Area) {
        self.state().give_back(area);
    }

    /// An area is free again when `state` says that its use is over.
    pub(super) fn give_back_when(&self, area: Area, state: impl Fn() -> Use + Send + 'static) {
        match state() {
            Use::Over => self.give_back(area),
            Use::GoesOn => self.state().draining.push(Draining { area, state: Box::new(state) }),
            Use::Unknown => {}
        }
    }
}

impl AreasState {
    fn give_back(&mut self, area: Area) {
        self.free.give_back(area.at, area.bytes);
    }

    fn drain(&mut self) {
        let over: Vec<Area> = self
            .draining
            .extract_if(.., |one| (one.state)() != Use::GoesOn)
            .filter(|one| (one.state)() == Use::Over)
            .map(|one| one.area)
            .collect();
        over.into_iter().for_each(|area| self.give_back(area));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn areas_lie_within_blocks_and_come_back_when_the_device_lets_go() {
        let areas = Areas::new(2 * BLOCK + 5);
        let first = areas.take(BLOCK / 2 + 1).unwrap();
        let second = areas.take(BLOCK / 2 + 1).unwrap();
        assert_eq!((first.at, second.at), (0, BLOCK));
        assert_eq!(areas.take(BLOCK / 2 + 1), None);
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        areas.give_back_when(first, move || {
            if seen.load(Ordering::Relaxed) { Use::Over } else { Use::GoesOn }
        });
        assert_eq!(areas.take(BLOCK / 2 + 1), None, "the device still uses it");
        over.store(true, Ordering::Relaxed);
        assert_eq!(areas.take(BLOCK / 2 + 1), Some(first));
        areas.give_back_when(second, || Use::Unknown);
        assert_eq!(areas.take(BLOCK), None, "never again");
    }

    #[test]
    fn some_keep_to_the_first_blocks() {
        let areas = Areas::new(3 * BLOCK);
        assert_eq!(areas.take_of(BLOCK, 1).unwrap().at, 0);
        assert_eq!(areas.take_of(1, 1), None);
        assert_eq!(areas.take(BLOCK).unwrap().at, BLOCK);
        assert_eq!(areas.take_of(1, 2), None);
        assert_eq!(areas.take_of(1, 9).unwrap().at, 2 * BLOCK);
    }
}
