//! Where the time of a run goes: what each step and each test took, kept from run to run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::util::{self, root};

/// How many steps and how many tests the tables have.
const STEPS: usize = 20;
const TESTS: usize = 50;

/// What a step took, or a test, or a program whose tests share what they start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spent {
    pub(super) name: String,
    pub(super) taken: Duration,
    /// Processor time, with that of processes that it started and waited for.
    pub(super) used: Duration,
}

/// What a run took.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) steps: Vec<Spent>,
    pub(super) tests: Vec<Spent>,
}

impl Times {
    /// The file of the last whole run on this machine.
    pub(super) fn of_last_run() -> PathBuf {
        util::target_dir().join("times.json")
    }

    pub(super) fn read(path: &Path) -> Result<Times> {
        let text = fs::read(path).with_context(|| {
            format!("cannot read {}: `cargo xtask test` writes it", path.display())
        })?;
        serde_json::from_slice(&text)
            .with_context(|| format!("cannot understand {}", path.display()))
    }

    pub(super) fn keep(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_vec(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The most expensive steps and tests, by processor time.
    pub(super) fn tables(&self) -> String {
        format!("{}\n{}", table("steps", &self.steps, STEPS), self.of_tests())
    }

    /// The most expensive tests.
    pub(super) fn of_tests(&self) -> String {
        table("tests, without building them", &self.tests, TESTS)
    }
}

fn table(what: &str, all: &[Spent], shown: usize) -> String {
    let sum: f64 = all.iter().map(|spent| spent.used.as_secs_f64()).sum();
    let mut sorted: Vec<&Spent> = all.iter().collect();
    sorted.sort_by_key(|spent| std::cmp::Reverse(spent.used));
    let mut text = format!("{:>11} {:>5} {:>8}  {what}\n", "processor s", "share", "seconds");
    for Spent { name, taken, used } in sorted.into_iter().take(shown) {
        let (taken, used) = (taken.as_secs_f64(), used.as_secs_f64());
        let share = if sum > 0.0 { 100.0 * used / sum } else { 0.0 };
        let _ = writeln!(text, "{used:>11.1} {share:>4.0}% {taken:>8.1}  {name}");
    }
    text
}

/// What a run expects of the steps that are left, by an earlier run.
pub(super) struct Outlook {
    expected: BTreeMap<String, Duration>,
    started: Instant,
    /// What the earlier run took for the steps that this one has done.
    done: Duration,
}

/// The times that a first run goes by: those of a run of ours.
const USUAL: &str = "tests/times.json";
/// What an earlier run must have taken for steps whose time here says how fast this machine is.
const TELLING: Duration = Duration::from_secs(60);

impl Outlook {
    pub(super) fn read() -> Outlook {
        let times = Times::read(&Times::of_last_run())
            .or_else(|_| Times::read(&root().join(USUAL)))
            .unwrap_or_default();
        Outlook::of(times)
    }

    fn of(times: Times) -> Outlook {
        let expected = times.steps.into_iter().map(|step| (step.name, step.taken)).collect();
        Outlook { expected, started: Instant::now(), done: Duration::ZERO }
    }

    /// A step has ended that others waited for.
    pub(super) fn end(&mut self, step: &str) {
        self.done += self.expected.get(step).copied().unwrap_or_default();
    }

    /// How long these steps will take, one after the other; none if nobody knows.
    pub(super) fn left<'a>(&self, steps: impl IntoIterator<Item = &'a str>) -> Option<Duration> {
        let steps = steps.into_iter().filter_map(|step| self.expected.get(step));
        let left: Duration = steps.sum();
        let pace = if self.done < TELLING {
            1.0
        } else {
            self.started.elapsed().as_secs_f64() / self.done.as_secs_f64()
        };
        (!left.is_zero()).then(|| left.mul_f64(pace))
    }
}

/// The processor time of all processes that this one has started and that have ended.
pub(super) fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&stat, 2..4)
}

/// The processor time of a process that has ended and was not waited for yet, with that of all that
/// it has waited for.
pub(super) fn processor_time_of(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    ticks(&stat, 0..4)
}

/// The sum of some of the four: user's and system's ticks of a process, and of its children that
/// have ended. They are the 14th to the 17th field, counted from the process's number; the second
/// is a name in parentheses.
fn ticks(stat: &str, which: std::ops::Range<usize>) -> Duration {
    let Some((_, fields)) = stat.rsplit_once(')') else { return Duration::ZERO };
    let of_four = fields.split_whitespace().skip(11).take(4).enumerate();
    let chosen = of_four.filter(|(at, _)| which.contains(at));
    let ticks: u64 = chosen.filter_map(|(_, ticks)| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// Minutes and seconds, as people say them.
pub(super) fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(name: &str, taken: u64, used: u64) -> Spent {
        let [taken, used] = [taken, used].map(Duration::from_secs);
        Spent { name: name.to_owned(), taken, used }
    }

    #[test]
    fn the_most_expensive_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times.json");
        let steps = vec![spent("quick", 9, 1), spent("slow", 2, 3)];
        let times = Times { steps, tests: vec![spent("one", 1, 1); TESTS + 9] };
        times.keep(&path).unwrap();
        let kept = Times::read(&path).unwrap();
        assert_eq!(kept, times);
        let table = kept.tables();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "        3.0   75%      2.0  slow");
        assert_eq!(lines.len(), 1 + 2 + 1 + 1 + TESTS);
    }

    #[test]
    fn what_is_left_goes_by_the_pace_of_what_was_done() {
        let steps = vec![spent("a", 100, 0), spent("b", 40, 0), spent("c", 60, 0)];
        let mut outlook = Outlook::of(Times { steps, ..Times::default() });
        assert_eq!(outlook.left(["b", "c", "new"]), Some(Duration::from_secs(100)));
        outlook.started -= Duration::from_secs(200);
        outlook.end("a");
        let left = outlook.left(["b", "c"]).unwrap();
        assert_eq!(left.as_secs(), 200);
        assert_eq!(outlook.left(["new"]), None);
    }

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 500 60 11 22 20 0 1 0 9";
        let second = rustix::param::clock_ticks_per_second();
        assert_eq!(ticks(stat, 2..4), Duration::from_millis(33 * 1000 / second));
        assert_eq!(ticks(stat, 0..4), Duration::from_millis(593 * 1000 / second));
        assert_eq!(ticks("", 0..4), Duration::ZERO);
        let before = processor_time();
        let mut busy = std::process::Command::new("sh");
        busy.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done"]);
        assert!(busy.status().is_ok_and(|status| status.success()));
        assert!(processor_time() > before);
    }
}
