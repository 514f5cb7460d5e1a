//! How many workers are wanted: as many as sessions came at once, and one fewer after each while in
//! which fewer came. Without sockets or a clock.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::bounds::Bounds;

/// Sessions that come within so much time come at once: no worker can be started between them.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How many sessions come at once.
pub(super) struct Demand {
    bounds: Bounds,
    /// How long a worker waits that the last sessions did not need.
    patience: Duration,
    /// Recent sessions, with their times.
    came: HashMap<String, Came>,
    /// As many as came at once ...
    level: usize,
    /// ... at this time, or when it last fell.
    since: Option<Instant>,
}

/// The last sessions of one holder.
struct Came {
    when: VecDeque<Instant>,
    /// Sessions that it may have at once.
    most: usize,
}

impl Demand {
    pub(super) fn new(bounds: Bounds, patience: Duration) -> Demand {
        Demand { bounds, patience, came: HashMap::new(), level: 0, since: None }
    }

    /// A session came of a holder who may have `sessions` at once; a worker takes `start` to get
    /// ready.
    pub(super) fn came(
        &mut self,
        holder: &str,
        sessions: Option<u32>,
        start: Duration,
        now: Instant,
    ) {
        let most = self.bounds.most;
        if most == 0 {
            return;
        }
        let window = AT_ONCE.max(start);
        self.came.retain(|_, came| {
            came.when.retain(|when| now.duration_since(*when) <= window);
            !came.when.is_empty()
        });
        let own = sessions.map_or(most, |sessions| most.min(sessions as usize));
        let came =
            self.came.entry(holder.to_owned()).or_insert(Came { when: VecDeque::new(), most: own });
        came.most = own;
        came.when.push_back(now);
        if came.when.len() > most {
            came.when.pop_front();
        }
        let count = self.counted().min(most);
        self.fall(now);
        if count >= self.level {
            self.level = count;
            self.since = Some(now);
        }
    }

    /// Sessions that have come at once. Nobody counts for more than the owner may have, nor, beside
    /// others, for the last quarter of the workers.
    fn counted(&self) -> usize {
        let most = self.bounds.most;
        let share = if self.came.len() > 1 { most - most / 4 } else { most };
        self.came.values().map(|came| came.when.len().min(came.most).min(share)).sum()
    }

    /// One fewer for each while that has passed.
    fn fall(&mut self, now: Instant) {
        while let Some(since) = self.since
            && self.level > 0
            && let Some(next) = since.checked_add(self.patience)
            && next <= now
        {
            self.level -= 1;
            self.since = Some(next);
        }
    }

    /// Forgets all sessions.
    pub(super) fn forget(&mut self) {
        self.came.clear();
        self.level = 0;
        self.since = None;
    }

    /// How many workers are to wait now.
    pub(super) fn wanted(&mut self, now: Instant) -> usize {
        self.fall(now);
        self.level.clamp(self.bounds.least, self.bounds.most)
    }

    /// Whether sessions come one at a time only.
    pub(super) fn is_low(&mut self, now: Instant) -> bool {
        self.fall(now);
        self.level <= 1
    }

    /// When fewer workers may be wanted if no session comes until then.
    pub(super) fn next_fall(&self) -> Option<Instant> {
        self.since
            .filter(|_| self.level > self.bounds.least)
            .and_then(|since| since.checked_add(self.patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);
    const START: Duration = Duration::from_millis(400);

    fn demand(bounds: &str) -> Demand {
        Demand::new(bounds.parse().unwrap(), PATIENCE)
    }

    fn burst(demand: &mut Demand, holder: &str, count: usize, sessions: Option<u32>, now: Instant) {
        (0..count).for_each(|_| demand.came(holder, sessions, START, now));
    }

    #[test]
    fn it_rises_with_a_burst_and_falls_one_by_one() {
        let (mut demand, now) = (demand("1-8"), Instant::now());
        assert_eq!((demand.wanted(now), demand.is_low(now), demand.next_fall()), (1, true, None));
        burst(&mut demand, "a", 5, None, now);
        assert_eq!(
            (demand.wanted(now), demand.is_low(now), demand.next_fall()),
            (5, false, Some(now + PATIENCE))
        );
        let after = |times: u32| now + PATIENCE * times;
        assert_eq!(demand.wanted(after(1) - Duration::from_millis(1)), 5);
        assert_eq!(demand.wanted(after(1)), 4);
        assert_eq!(demand.wanted(after(3)), 2);
        // A burst of as many keeps it there.
        burst(&mut demand, "a", 2, None, after(3));
        assert_eq!(
            (demand.wanted(after(4) - START), demand.wanted(after(4)), demand.wanted(after(1000))),
            (2, 1, 1)
        );
        assert_eq!((demand.next_fall(), demand.is_low(after(1000))), (None, true));
    }

    #[test]
    fn it_keeps_its_bounds() {
        let now = Instant::now();
        for (bounds, most) in [("1-8", 8), ("0-3", 3), ("2", 2), ("0", 0), ("5-5", 5)] {
            let mut demand = demand(bounds);
            burst(&mut demand, "a", 100, None, now);
            burst(&mut demand, "b", 100, None, now);
            assert_eq!(demand.wanted(now), most, "{bounds}");
            assert!(
                demand.came.values().all(|came| came.when.len() <= most),
                "what is kept has an end"
            );
        }
    }

    #[test]
    fn sessions_far_apart_are_not_at_once() {
        let (mut demand, now) = (demand("1-8"), Instant::now());
        for second in 0..20 {
            burst(&mut demand, "a", 1, None, now + Duration::from_secs(2 * second));
        }
        assert_eq!(demand.wanted(now + Duration::from_secs(40)), 1);
        // Where a worker takes long to start, they are.
        (0..4).for_each(|second| {
            demand.came("a", None, START * 20, now + Duration::from_secs(50 + 2 * second))
        });
        assert_eq!(demand.wanted(now + Duration::from_secs(57)), 4);
    }

    #[test]
    fn nobody_counts_beyond_what_is_theirs() {
        let now = Instant::now();
        let mut limited = demand("1-8");
        burst(&mut limited, "a", 50, Some(2), now);
        assert_eq!(limited.wanted(now), 2, "as many sessions as the owner may have at once");
        let mut shared = demand("1-8");
        burst(&mut shared, "b", 1, None, now);
        burst(&mut shared, "a", 50, None, now);
        assert_eq!(shared.wanted(now), 7, "three quarters for one, beside others");
        let mut alone = demand("1-8");
        burst(&mut alone, "a", 50, None, now);
        assert_eq!(alone.wanted(now), 8);
    }
}
