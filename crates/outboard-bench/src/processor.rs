//! CPU time of other processes.

use std::collections::BTreeMap;
use std::fs;

/// CPU time that a process has used, its ended threads included, in seconds. `None` if it is not
/// there.
pub(crate) fn used(process: u32) -> Option<f64> {
    let mut clock = 0;
    // SAFETY: both calls write to locals only.
    let time = unsafe {
        if libc::clock_getcpuclockid(process as libc::pid_t, &mut clock) != 0 {
            return None;
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        if libc::clock_gettime(clock, &mut time) != 0 {
            return None;
        }
        time
    };
    Some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

/// A process and all below it, with the CPU time each has used.
#[derive(Debug, Default)]
pub(crate) struct Family(BTreeMap<u32, f64>);

impl Family {
    /// The state now.
    pub(crate) fn of(process: u32) -> Family {
        let parents = parents();
        let mut found = BTreeMap::new();
        let mut waiting = vec![process];
        while let Some(next) = waiting.pop() {
            if let Some(time) = used(next)
                && found.insert(next, time).is_none()
            {
                waiting.extend(
                    parents.iter().filter(|(_, parent)| *parent == next).map(|(child, _)| *child),
                );
            }
        }
        Family(found)
    }

    /// CPU time used since an earlier state. What a process used that ended in between is lost.
    pub(crate) fn since(&self, earlier: &Family) -> f64 {
        self.0
            .iter()
            .map(|(process, time)| time - earlier.0.get(process).copied().unwrap_or(0.0))
            .sum()
    }
}

/// Every process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = |process: u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // Behind the name in parentheses: state, parent.
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    processes.filter_map(|process| Some((process, parent(process)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn work_of_this_process_is_seen() {
        let before = Family::of(std::process::id());
        let own = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let milliseconds =
            |time: rustix::time::Timespec| time.tv_sec * 1000 + time.tv_nsec / 1_000_000;
        let begun = milliseconds(own());
        let mut sum = 0u64;
        while milliseconds(own()) < begun + 30 {
            sum = std::hint::black_box(sum.wrapping_mul(7).wrapping_add(1));
        }
        let worked = Family::of(std::process::id()).since(&before);
        assert!(worked > 0.005, "{worked}");
    }

    #[test]
    fn a_process_below_belongs_to_the_family() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let family = Family::of(std::process::id());
        let seen = family.0.contains_key(&child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen, "{family:?}");
        assert_eq!(used(child.id()), None);
    }
}
