//! What processes hold while they run, and whether that grows.

use std::fs;
use std::ops::Range;

/// Threads that there may be more or fewer at any time.
const FEW: u64 = 8;

/// What a process holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Memory of its own that is in use, in bytes: its heap and stacks, neither files nor what it
    /// shares.
    pub memory: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
}

impl Footprint {
    /// That of a process; `None` once it has ended.
    pub fn of(process: u32) -> Option<Footprint> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
        };
        // A process that has ended and was not waited for has no memory.
        let (memory, threads) = (field("RssAnon")? * 1024, field("Threads")?);
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64;
        Some(Footprint { memory, descriptors, threads })
    }
}

/// Footprints of one process, taken again and again.
#[derive(Clone, Debug, Default)]
pub struct History(Vec<Footprint>);

/// The least that a process held in two parts of its time: the second quarter, when it had warmed
/// up, and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// In the second quarter.
    pub early: Footprint,
    /// In the last.
    pub late: Footprint,
}

impl History {
    /// Adds what the process holds now, if it is there.
    pub fn take(&mut self, process: u32) {
        self.0.extend(Footprint::of(process));
    }

    /// How it has grown; `None` before there are eight footprints. What is held for a moment does
    /// not count: a process that never gives something back holds more at all times.
    pub fn growth(&self) -> Option<Growth> {
        let quarter = self.0.len() / 4;
        let least = |range: Range<usize>| {
            let of = |value: fn(&Footprint) -> u64| self.0[range.clone()].iter().map(value).min();
            Some(Footprint {
                memory: of(|f| f.memory)?,
                descriptors: of(|f| f.descriptors)?,
                threads: of(|f| f.threads)?,
            })
        };
        (quarter >= 2).then_some(())?;
        Some(Growth {
            early: least(quarter..2 * quarter)?,
            late: least(self.0.len() - quarter..self.0.len())?,
        })
    }
}

impl Growth {
    /// What has grown by more than may be: descriptors at all, threads by more than a few, as those
    /// that wait for something come and go, memory by more than this.
    pub fn excess(&self, memory: u64) -> Option<String> {
        let Growth { early, late } = self;
        let counts = [
            ("descriptors", early.descriptors, late.descriptors, 0),
            ("threads", early.threads, late.threads, FEW),
        ];
        let grown = counts.iter().find(|(_, early, late, more)| *late > early + more);
        let grown =
            grown.map(|(what, early, late, _)| format!("{what} have grown from {early} to {late}"));
        grown.or_else(|| {
            (late.memory > early.memory + memory).then(|| {
                format!("memory has grown from {} to {} KiB", early.memory >> 10, late.memory >> 10)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(count: u64, footprint: impl Fn(u64) -> (u64, u64)) -> History {
        let one = |moment| {
            let (memory, descriptors) = footprint(moment);
            Footprint { memory, descriptors, threads: 1 }
        };
        History((0..count).map(one).collect())
    }

    #[test]
    fn what_comes_and_goes_is_no_growth() {
        let growth =
            history(40, |moment| (1000 + moment % 7 * 100, 10 + moment % 3)).growth().unwrap();
        assert_eq!(growth.excess(0), None);
        assert_eq!(history(7, |_| (1, 1)).growth(), None, "too few to tell");
    }

    #[test]
    fn what_is_never_given_back_is() {
        let leak =
            history(40, |moment| (1000 + moment * 10 + moment % 7 * 100, 10)).growth().unwrap();
        assert!(leak.excess(100).unwrap().starts_with("memory has grown"));
        assert_eq!(leak.excess(1000), None);
        let leak = history(40, |moment| (1000, 10 + moment / 15 + moment % 3)).growth().unwrap();
        assert!(leak.excess(1 << 20).unwrap().starts_with("descriptors have grown"), "{leak:?}");
    }

    #[test]
    fn a_process_is_seen() {
        let own = Footprint::of(std::process::id()).unwrap();
        assert!(own.memory > 0 && own.threads > 0);
        let file = fs::File::open("/dev/null").unwrap();
        assert!(Footprint::of(std::process::id()).unwrap().descriptors > 0);
        drop(file);
        assert_eq!(Footprint::of(u32::MAX), None);
    }
}
