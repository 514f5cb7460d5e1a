//! Connections whose other side is waited for, each by a thread: only so many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outboard_wire::limits::MAX_LANES;

/// The places for such connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<AtomicUsize>);

/// One of them, which is free again when this is dropped.
pub(super) struct Place(Arc<AtomicUsize>);

impl Places {
    /// A place, unless all are taken.
    pub(super) fn take(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.0));
        (self.0.fetch_add(1, Ordering::Relaxed) < MAX_LANES).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_and_those_left_can_be_taken_again() {
        let places = Places::default();
        let mut taken: Vec<Place> = (0..MAX_LANES).map(|_| places.take().unwrap()).collect();
        assert!(places.take().is_none() && places.take().is_none());
        taken.pop();
        taken.push(places.take().unwrap());
        assert!(places.take().is_none());
    }
}
