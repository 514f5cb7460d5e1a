//! Looking again and again for a while before blocking.

use std::sync::atomic::{AtomicU64, Ordering};
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

/// Between two looks that offer the processor to others, which takes as long as a look at a socket,
/// so many are made where a look costs nanoseconds, and so many where it is a system call: together
/// two or three microseconds.
const QUICK_TURNS: u32 = 64;
const TURNS: u32 = 4;

impl Spin {
    /// Spins for so long on that stream.
    pub fn new(stream: &dyn Stream, budget: Duration) -> Spin {
        Spin::when(stream.capabilities().quick, budget)
    }

    /// The same where it is known whether a look costs next to nothing.
    pub fn when(quick: bool, budget: Duration) -> Spin {
        Spin { budget, quick, turns: 0, end: None }
    }

    /// Begins anew.
    pub fn restart(&mut self) {
        self.end = None;
    }

    /// Whether to look once more. The processor is offered to others now and then: the one who
    /// waits for it may be the peer itself.
    pub fn again(&mut self) -> bool {
        if self.budget.is_zero() {
            return false;
        }
        self.turns = self.turns.wrapping_add(1);
        if !self.turns.is_multiple_of(if self.quick { QUICK_TURNS } else { TURNS }) {
            std::hint::spin_loop();
            return true;
        }
        let now = Instant::now();
        std::thread::yield_now();
        now < *self.end.get_or_insert(now + self.budget)
    }
}

/// For how long to spin before blocking, found by what waits have taken.
///
/// A thread that sleeps is woken late: in 5 µs on a busy processor, in 50 or more on one that has
/// gone to sleep itself. So a wait that just missed the time makes the next ones spin for twice as
/// long as it took; one that took longer than spinning is ever worth brings them back to the least.
#[derive(Debug)]
pub struct Patience {
    least: u64,
    most: u64,
    /// What holds now. All in nanoseconds.
    window: AtomicU64,
}

impl Patience {
    /// Never spins for longer than `most`, and at first for `least`.
    pub fn new(least: Duration, most: Duration) -> Patience {
        let most = nanoseconds(most);
        let least = nanoseconds(least).min(most);
        Patience { least, most, window: AtomicU64::new(least) }
    }

    /// For how long to spin now.
    #[inline]
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.window.load(Ordering::Relaxed))
    }

    /// A wait is over, after so long. It suffices to tell of those that were longer than the
    /// window.
    #[inline]
    pub fn waited(&self, time: Duration) {
        let time = nanoseconds(time);
        if time > self.window.load(Ordering::Relaxed) {
            let window =
                if time > self.most { self.least } else { time.saturating_mul(2).min(self.most) };
            self.window.store(window, Ordering::Relaxed);
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What spinning may cost at most, as the environment says (`OUTBOARD_SPIN_US`) or by what the
/// machine is: [`least`](SpinLimits::least) for any wait, [`most`](SpinLimits::most) for waits that
/// experience shows to end within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpinLimits {
    /// Spinning for so long beats blocking whatever is waited for.
    pub least: Duration,
    /// Beyond this, what a late wake-up costs is a few hundredths of the wait.
    pub most: Duration,
}

impl SpinLimits {
    const LEAST: Duration = Duration::from_micros(50);
    const MOST: Duration = Duration::from_millis(10);
    const LANE: Duration = Duration::from_millis(1);
    /// With fewer processors, whoever spins for long keeps somebody from working.
    const ENOUGH_PROCESSORS: usize = 4;

    /// As the environment says, or the machine.
    pub fn from_env() -> SpinLimits {
        let set = std::env::var("OUTBOARD_SPIN_US").ok().and_then(|text| text.trim().parse().ok());
        match set {
            // Beyond a second, spinning is a mistake.
            Some(microseconds) => {
                SpinLimits::up_to(Duration::from_micros(microseconds).min(Duration::from_secs(1)))
            }
            None => SpinLimits::default(),
        }
    }

    /// Never more than `most`.
    pub fn up_to(most: Duration) -> SpinLimits {
        SpinLimits { least: SpinLimits::LEAST.min(most), most }
    }

    /// How long those spin that only serve others: the threads of a lane, for the next chunk, of
    /// which there are many, and those that run functions of the program.
    pub fn lane(self) -> Duration {
        self.most.min(SpinLimits::LANE)
    }

    fn on(processors: usize) -> SpinLimits {
        SpinLimits::up_to(match processors {
            // The other side cannot run meanwhile.
            0 | 1 => Duration::ZERO,
            few if few < SpinLimits::ENOUGH_PROCESSORS => SpinLimits::LEAST,
            _ => SpinLimits::MOST,
        })
    }
}

impl Default for SpinLimits {
    fn default() -> SpinLimits {
        SpinLimits::on(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn it_ends_in_time() {
        let (stream, _peer) = crate::pipe::pair().unwrap();
        assert!(!Spin::new(&*stream, Duration::ZERO).again());
        let (start, mut spin) = (Instant::now(), Spin::new(&*stream, Duration::from_millis(5)));
        while spin.again() {}
        assert!(
            start.elapsed() >= Duration::from_millis(5)
                && start.elapsed() < Duration::from_secs(20)
        );
    }

    #[test]
    fn patience_grows_with_what_just_missed_it_and_is_lost_with_what_takes_long() {
        let patience = Patience::new(MS / 20, 10 * MS);
        assert_eq!(patience.window(), MS / 20);
        patience.waited(MS / 30);
        assert_eq!(patience.window(), MS / 20, "spinning was enough");
        patience.waited(MS / 5);
        assert_eq!(patience.window(), 2 * MS / 5);
        patience.waited(9 * MS);
        assert_eq!(patience.window(), 10 * MS, "never more than that");
        patience.waited(3 * MS);
        assert_eq!(patience.window(), 10 * MS);
        patience.waited(11 * MS);
        assert_eq!(patience.window(), MS / 20, "it would have been for nothing");
        patience.waited(Duration::MAX);
        assert_eq!(patience.window(), MS / 20);
        assert_eq!(Patience::new(MS, Duration::ZERO).window(), Duration::ZERO);
    }

    #[test]
    fn who_has_few_processors_spins_little() {
        let limits = |least, most| SpinLimits { least, most };
        assert_eq!(SpinLimits::on(1), limits(Duration::ZERO, Duration::ZERO));
        assert_eq!(SpinLimits::on(2), limits(MS / 20, MS / 20));
        assert_eq!(SpinLimits::on(16), limits(MS / 20, 10 * MS));
        assert_eq!(SpinLimits::up_to(MS / 100), limits(MS / 100, MS / 100));
    }
}
