//! The thread that writes posted commands.
//!
//! It looks at the queue about every microsecond and decides by what it sees: a batch leaves when
//! it is full, when the queue has stopped growing, or when the oldest command in it has waited for
//! more than a small share of the time that the burst has lasted so far. The first commands of a
//! burst therefore leave at once, a long burst leaves in large batches, and no command is delayed
//! by more than that share of its burst. Without commands the thread sleeps.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_transport::{Interest, PEER_CHECK, Readiness};

use super::queue::GAP;
use super::shared::Shared;

/// A batch of this size leaves at once, in bytes.
const FULL_BATCH: usize = 16 << 10;
/// Time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_micros(1);
/// The share of a burst's age for which a command may be held back.
const HOLD_SHARE: u32 = 32;
/// No command is held back for longer.
const LONGEST_HOLD: Duration = Duration::from_millis(1);
/// After the last call, replies are left to callers for this long; then this thread reads notices.
const CALLERS_READ: Duration = Duration::from_millis(50);

/// Starts the thread. Nobody joins it: it ends with the connection.
pub(super) fn start(shared: Arc<Shared>) -> io::Result<()> {
    outboard_threads::start("outboard-send", move || run(&shared))
}

fn run(shared: &Shared) {
    let mut burst: Option<Burst> = None;
    let mut idle_since: Option<Instant> = None;
    let mut calls = 0;
    while !shared.is_lost() {
        if shared.connection.is_broken() {
            shared.reconnect();
            continue;
        }
        let pending = shared.queue.shown();
        let now = Instant::now();
        if pending == 0 {
            if now.duration_since(*idle_since.get_or_insert(now)) < shared.config.spin {
                pause_until(now + BETWEEN_LOOKS);
                continue;
            }
            burst = None;
            idle_since = None;
            sleep(shared, &mut calls);
            continue;
        }
        idle_since = None;
        let burst = burst.get_or_insert_with(|| Burst::new(now));
        if burst.should_send(pending, now) {
            // A failure has been told to everyone by then.
            let _ = shared.flush();
            burst.sent(now);
        } else {
            pause_until(burst.next_look(now));
        }
    }
}

/// The sender's observations of a burst of posted commands.
struct Burst {
    start: Instant,
    /// When the sender first saw the oldest command of this batch.
    first_seen: Option<Instant>,
    /// The queue's size at the last look at which it had grown, and when that was.
    grown: (usize, Instant),
    /// When the last batch left.
    sent: Option<Instant>,
}

impl Burst {
    fn new(now: Instant) -> Burst {
        Burst { start: now, first_seen: None, grown: (0, now), sent: None }
    }

    fn should_send(&mut self, pending: usize, now: Instant) -> bool {
        let first_seen = *self.first_seen.get_or_insert(now);
        if pending != self.grown.0 {
            self.grown = (pending, now);
        }
        let hold = (now.duration_since(self.start) / HOLD_SHARE).min(LONGEST_HOLD);
        if pending >= FULL_BATCH {
            return true;
        }
        let is_due = now.duration_since(first_seen) >= hold
            || now.duration_since(self.grown.1) >= (hold / 2).max(BETWEEN_LOOKS);
        is_due && self.sent.is_none_or(|sent| now.duration_since(sent) >= GAP)
    }

    /// When to look again: each look takes the cache line with the queue's size from the posting
    /// thread's processor, so the sender looks only when it could act.
    fn next_look(&self, now: Instant) -> Instant {
        let soon = now + BETWEEN_LOOKS;
        self.sent.map_or(soon, |sent| soon.max(sent + GAP))
    }

    fn sent(&mut self, now: Instant) {
        self.sent = Some(now);
        self.first_seen = None;
        self.grown.0 = 0;
    }
}

/// Passes the time until the next look is due, and lets others have the processor.
fn pause_until(time: Instant) {
    while Instant::now() < time {
        std::thread::yield_now();
    }
}

/// Sleeps until there is something to write or to read, or the connection ends. While callers come
/// and go, it leaves reading to them, and to the listener while there is one: to be woken by each
/// of their replies would slow them down.
fn sleep(shared: &Shared, calls: &mut u64) {
    shared.queue.set_asleep(true);
    let look = shared.when_idle.get().and_then(|look| look(Instant::now()));
    if shared.queue.is_empty() {
        let made = shared.counters.calls.get();
        let (interest, timeout) = if made == *calls && !shared.listening.is_on() {
            (Interest { read: true, write: false, hangup: true }, None)
        } else {
            (Interest::HANGUP, Some(CALLERS_READ))
        };
        *calls = made;
        let current = shared.connection.current();
        // While bytes are under way, the system does not probe an idle peer.
        let timeout =
            if current.stream.is_unanswered() { timeout.or(Some(PEER_CHECK)) } else { timeout };
        let timeout = timeout.into_iter().chain(look).min();
        let waited = current.stream.wait(interest, Some(shared.queue.waker()), timeout);
        let checked = |ready| {
            if ready == Readiness::default() {
                current.stream.check_peer().map(|()| ready)
            } else {
                Ok(ready)
            }
        };
        match waited.and_then(checked) {
            Ok(ready) if ready.hangup => shared.read_to_the_end(),
            Ok(ready) if ready.read => shared.read_unasked(),
            Ok(_) => {}
            Err(error) => shared.broken(current.epoch, &error),
        }
    }
    shared.queue.set_asleep(false);
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 10_000;
    const SIZE: usize = 100;

    /// A burst of commands, one every `interval`, as the sender's looks see it: how many batches
    /// leave, and how long each one's oldest command waited, with the age of the burst at that
    /// time.
    fn burst(interval: Duration) -> Vec<(Duration, Duration)> {
        let start = Instant::now();
        let mut batches = Vec::new();
        let mut burst = Burst::new(start);
        let (mut appended, mut gone, mut age) = (1, 0, Duration::ZERO);
        while gone < COUNT {
            appended =
                COUNT.min(1 + (age.as_nanos() / interval.as_nanos().max(1)) as usize).max(appended);
            let pending = (appended - gone) * SIZE;
            if pending > 0 && burst.should_send(pending, start + age) {
                let oldest = interval * gone as u32;
                batches.push((age.saturating_sub(oldest), age));
                gone = appended;
                burst.sent(start + age);
            }
            age += BETWEEN_LOOKS;
        }
        batches
    }

    #[test]
    fn a_burst_of_any_speed_leaves_in_few_batches_and_none_waits_long() {
        for nanoseconds in [20, 100, 500, 1_000, 2_500, 5_000, 10_000, 25_000] {
            let interval = Duration::from_nanos(nanoseconds);
            let batches = burst(interval);
            assert!(batches.len() <= 500, "{} batches at {interval:?}", batches.len());
            assert_eq!(batches[0].1, Duration::ZERO, "the first command leaves at once");
            for (waited, age) in batches {
                // The sender looks once in a while, so it may be late by a look or by one command.
                let fair =
                    (age / HOLD_SHARE).min(LONGEST_HOLD) + GAP + 2 * BETWEEN_LOOKS + interval;
                assert!(
                    waited <= fair,
                    "a command waited {waited:?} in a burst of age {age:?} at {interval:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_left_when_a_burst_stops_leaves_soon() {
        let start = Instant::now();
        let mut burst = Burst::new(start);
        let age = Duration::from_millis(100);
        assert!(!burst.should_send(SIZE, start + age));
        assert!(!burst.should_send(2 * SIZE, start + age + BETWEEN_LOOKS));
        assert!(burst.should_send(2 * SIZE, start + age + BETWEEN_LOOKS + LONGEST_HOLD / 2));
    }
}
