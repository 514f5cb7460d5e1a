//! Spinning: polling for a while before blocking.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::stream::Stream;

/// Spinning, until its time is up. The clock starts at the first turn.
#[derive(Debug)]
pub struct Spin {
    budget: Duration,
    quick: bool,
    turns: u32,
    end: Option<Instant>,
}

/// How many polls to make before offering the processor to other threads, which takes as long as
/// polling a socket: where a poll costs nanoseconds, and where it is a system call. Either takes
/// two or three microseconds.
const QUICK_TURNS: u32 = 64;
const TURNS: u32 = 4;

impl Spin {
    /// Spins for so long on that stream.
    pub fn new(stream: &dyn Stream, budget: Duration) -> Spin {
        Spin::when(stream.capabilities().quick, budget)
    }

    /// The same where the caller knows whether a poll costs nanoseconds.
    pub fn when(quick: bool, budget: Duration) -> Spin {
        Spin { budget, quick, turns: 0, end: None }
    }

    /// Begins anew.
    pub fn restart(&mut self) {
        self.end = None;
    }

    /// Whether to poll once more. Now and then it offers the processor to other threads: the peer
    /// itself may be waiting for it.
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

/// For how long to spin before blocking, learned from earlier waits.
///
/// Waking a thread takes 5 µs on a busy processor, 50 µs or more on one that sleeps itself. If a
/// wait ends shortly after the spinning, the next waits spin for twice as long as it took; if it
/// takes longer than spinning is ever worth, they spin for the least time again.
#[derive(Debug)]
pub struct Patience {
    least: u64,
    most: u64,
    /// The present values, in nanoseconds.
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

    /// A wait has ended after that time. Waits within the present window need not be reported.
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

/// The limits of spinning, from the environment (`OUTBOARD_SPIN_US`) or by the machine's
/// processors: [`least`](SpinLimits::least) for any wait, [`most`](SpinLimits::most) for waits that
/// have ended within it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpinLimits {
    /// Spinning for this long beats blocking in every wait.
    pub least: Duration,
    /// Beyond this, a late wake-up costs a few hundredths of the wait.
    pub most: Duration,
}

impl SpinLimits {
    const LEAST: Duration = Duration::from_micros(50);
    const MOST: Duration = Duration::from_millis(10);
    const LANE: Duration = Duration::from_millis(1);
    /// With fewer processors, a spinning thread takes the processor from one that works.
    const ENOUGH_PROCESSORS: usize = 4;

    /// As the environment says, or the machine.
    pub fn from_env() -> SpinLimits {
        SpinLimits::from_env_or(SpinLimits::default())
    }

    /// As the environment says, or these.
    pub fn from_env_or(usual: SpinLimits) -> SpinLimits {
        let set = std::env::var("OUTBOARD_SPIN_US").ok().and_then(|text| text.trim().parse().ok());
        match set {
            // Beyond a second, spinning is a mistake.
            Some(microseconds) => {
                SpinLimits::up_to(Duration::from_micros(microseconds).min(Duration::from_secs(1)))
            }
            None => usual,
        }
    }

    /// Never more than `most`.
    pub fn up_to(most: Duration) -> SpinLimits {
        SpinLimits { least: SpinLimits::LEAST.min(most), most }
    }

    /// How long threads spin that no call of the program waits for: the many threads of lanes, for
    /// the next chunk, and those that run host callbacks.
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
