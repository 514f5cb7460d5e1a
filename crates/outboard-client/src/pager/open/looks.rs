//! When memory is looked at that the program and running kernels may both be watching.

use std::time::{Duration, Instant};

use crate::pager::glimpse::{GLIMPSE, GLIMPSES};

/// While nothing changes, the next look comes after this part of the time since something did.
const PART: u32 = 8;
/// And after no more than this.
const LONGEST: Duration = Duration::from_millis(16);
/// While no work runs, its beginning is looked for so often, and then not any more.
const IDLE: u32 = 32;

/// The looks of one server's memory.
#[derive(Debug)]
pub(in crate::pager) struct Looks {
    /// When something changed last, or work began.
    changed: Option<Instant>,
    due: Option<Instant>,
    /// How often nothing was found to run.
    idle: u32,
    /// Tests count what is fetched without them.
    #[cfg(test)]
    is_paused: bool,
}

impl Looks {
    pub(in crate::pager) const fn new() -> Looks {
        Looks {
            changed: None,
            due: None,
            idle: 0,
            #[cfg(test)]
            is_paused: false,
        }
    }

    /// When the next one is due.
    pub(in crate::pager) fn due(&self) -> Option<Instant> {
        #[cfg(test)]
        if self.is_paused {
            return None;
        }
        self.due
    }

    /// No look is due while they are paused.
    #[cfg(test)]
    pub(in crate::pager) fn pause(&mut self, now: bool) {
        (self.is_paused, self.due) = (now, None);
    }

    /// Work begins where none ran. Whether the thread that looks is to be woken.
    pub(in crate::pager) fn begin(&mut self) -> bool {
        let now = Instant::now();
        (self.changed, self.idle) = (Some(now), 0);
        let sleeps = self.due.is_none();
        self.due.get_or_insert(now + GLIMPSE);
        sleeps
    }

    /// Nothing runs.
    pub(in crate::pager) fn found_nothing(&mut self) {
        self.idle += 1;
        self.due = (self.idle < IDLE).then(|| Instant::now() + 2 * GLIMPSE);
    }

    /// A look has taken so long, and found a change or none.
    pub(in crate::pager) fn looked(&mut self, took: Duration, changed: bool) {
        let now = Instant::now();
        self.idle = 0;
        let since = match self.changed {
            Some(then) if !changed => now - then,
            _ => Duration::ZERO,
        };
        if changed || self.changed.is_none() {
            self.changed = Some(now);
        }
        let wait = (since / PART).clamp(GLIMPSE, LONGEST).max(GLIMPSES * took);
        self.due = Some(now + wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rare_where_nothing_changes_and_end_where_nothing_runs() {
        let mut looks = Looks::new();
        assert!(looks.begin() && !looks.begin());
        let wait = |looks: &Looks| looks.due().map(|due| due - Instant::now());
        looks.looked(Duration::ZERO, false);
        assert!(wait(&looks) <= Some(GLIMPSE));
        looks.changed = looks.changed.map(|then| then - Duration::from_secs(1));
        looks.looked(Duration::ZERO, false);
        assert!(wait(&looks) > Some(LONGEST / 2) && wait(&looks) <= Some(LONGEST));
        looks.looked(Duration::ZERO, true);
        assert!(wait(&looks) <= Some(GLIMPSE));
        looks.looked(Duration::from_secs(1), true);
        assert!(wait(&looks) > Some(Duration::from_secs(7)), "the thread has other things to do");
        (0..IDLE).for_each(|_| looks.found_nothing());
        assert!(looks.due().is_none() && looks.begin());
    }
}
