//! Looking again and again for a short while before sleeping.

use std::time::{Duration, Instant};

use crate::Stream;

/// Spinning, until its time is up. The clock starts at the first turn.
#[derive(Debug)]
pub struct Spin {
    budget: Duration,
    quick: bool,
    turns: u32,
    end: Option<Instant>,
}

/// Where a look costs nanoseconds, so many are made between two that offer the processor to others: together about two microseconds.
const QUICK_TURNS: u32 = 32;

impl Spin {
    /// Spins for so long on that stream.
    pub fn new(stream: &dyn Stream, budget: Duration) -> Spin {
        Spin { budget, quick: stream.capabilities().quick, turns: 0, end: None }
    }

    /// Begins anew.
    pub fn restart(&mut self) {
        self.end = None;
    }

    /// Whether to look once more. The processor is offered to others now and then: the one who waits for it may be the peer itself.
    pub fn again(&mut self) -> bool {
        if self.budget.is_zero() {
            return false;
        }
        self.turns = self.turns.wrapping_add(1);
        if self.quick && !self.turns.is_multiple_of(QUICK_TURNS) {
            std::hint::spin_loop();
            return true;
        }
        let now = Instant::now();
        std::thread::yield_now();
        now < *self.end.get_or_insert(now + self.budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_in_time() {
        let (stream, _peer) = crate::pipe::pair().unwrap();
        assert!(!Spin::new(&*stream, Duration::ZERO).again());
        let (start, mut spin) = (Instant::now(), Spin::new(&*stream, Duration::from_millis(5)));
        while spin.again() {}
        assert!(start.elapsed() >= Duration::from_millis(5) && start.elapsed() < Duration::from_secs(20));
    }
}
