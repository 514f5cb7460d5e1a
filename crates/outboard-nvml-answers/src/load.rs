//! How busy processes keep this machine's processors, which is how busy a device is that they are.

use std::time::{Duration, Instant};

/// Processor time is counted in steps of 10 ms: over less than this it says nothing.
const WINDOW: Duration = Duration::from_millis(100);

/// What the processes had used of the processors at one time.
pub(crate) struct Load {
    since: Instant,
    /// Processor time of each process then.
    then: Vec<(u32, Duration)>,
    /// What was measured last; it holds for a while, so that asking for every device takes no
    /// longer than for one.
    last: Option<u32>,
}

impl Load {
    /// Measures these processes from now on.
    pub(crate) fn begin(processes: &[u32]) -> Load {
        Load { since: Instant::now(), then: processor_time(processes), last: None }
    }

    /// Percent of all processors since the last time. `processes` gives those that there are now.
    pub(crate) fn percent(&mut self, processes: impl FnOnce() -> Vec<u32>) -> u32 {
        if let Some(last) = self.last.filter(|_| self.since.elapsed() < WINDOW) {
            return last;
        }
        std::thread::sleep(WINDOW.saturating_sub(self.since.elapsed()));
        let (then, window) = (std::mem::take(&mut self.then), self.since.elapsed());
        *self = Load::begin(&processes());
        let before = |process| {
            then.iter()
                .find(|(other, _)| *other == process)
                .map_or(Duration::ZERO, |(_, time)| *time)
        };
        let busy: Duration =
            self.then.iter().map(|(process, time)| time.saturating_sub(before(*process))).sum();
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let percent = (100.0 * busy.as_secs_f64() / (window.as_secs_f64() * processors))
            .round()
            .clamp(0.0, 100.0) as u32;
        self.last = Some(percent);
        percent
    }
}

/// Processor time of each process that is there.
fn processor_time(processes: &[u32]) -> Vec<(u32, Duration)> {
    processes.iter().filter_map(|process| Some((*process, time_of(*process)?))).collect()
}

/// Processor time of a process.
fn time_of(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name in parentheses, from the state on: the 12th and 13th are user and system time.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_processor_time() {
        assert!(time_of(std::process::id()).is_some());
        assert!(time_of(0).is_none());
    }

    #[test]
    fn a_busy_process_is_seen() {
        let own = vec![std::process::id()];
        let mut load = Load::begin(&own);
        let begin = Instant::now();
        while begin.elapsed() < 3 * WINDOW {
            std::hint::spin_loop();
        }
        let busy = load.percent(|| own.clone());
        assert!((1..=100).contains(&busy), "{busy}");
        assert_eq!(load.percent(Vec::new), busy, "it holds for a while");
        assert_eq!(Load::begin(&[]).percent(Vec::new), 0);
    }
}
