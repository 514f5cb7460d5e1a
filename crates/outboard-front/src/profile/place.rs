//! The file of a profile.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What stands for the number of the process.
const PROCESS: &[u8] = b"%p";

/// The file that is asked for. Set to nothing is not set.
pub(super) fn asked_for() -> Option<OsString> {
    let named = |variable| std::env::var_os(variable).filter(|path| !path.is_empty());
    named("OUTBOARD_PROFILE").or_else(|| named("OUTBOARD_STATS_FILE"))
}

/// The file for a program of this process: `NUMBER`, or `NUMBER.2` and so on if programs that the
/// process ran before, as after `execve`, have left theirs. A name without a number is one file for
/// all.
pub(super) fn of_this_program(asked_for: &OsStr) -> OsString {
    let lives = age_of_process();
    let is_of_this_process = |path: &OsStr| {
        let age = std::fs::metadata(path).and_then(|file| file.modified()).ok();
        let age = age.map(|written| written.elapsed().unwrap_or_default());
        age.zip(lives).is_some_and(|(age, lives)| age < lives)
    };
    free(asked_for, std::process::id(), is_of_this_process)
}

/// The first name that no earlier program of the process has.
fn free(asked_for: &OsStr, process: u32, is_taken: impl Fn(&OsStr) -> bool) -> OsString {
    let first = with_process(asked_for, &process.to_string());
    if first == asked_for || !is_taken(&first) {
        return first;
    }
    let later = (2_u32..).map(|program| with_process(asked_for, &format!("{process}.{program}")));
    later.into_iter().find(|path| !is_taken(path)).unwrap_or(first)
}

/// How long this process has lived, with all programs that it ran; nothing without `/proc`.
fn age_of_process() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may have spaces in it; fields are counted from 3
    // behind it, and the start, in ticks since the machine's, is the 22nd.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()?;
    let began =
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
    let now = clock_gettime(ClockId::Boottime);
    let now = Duration::new(now.tv_sec.try_into().ok()?, now.tv_nsec.try_into().ok()?);
    now.checked_sub(began)
}

/// The name, with this for each `%p`.
fn with_process(path: &OsStr, process: &str) -> OsString {
    let mut named = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(PROCESS) {
            named.extend_from_slice(process.as_bytes());
            rest = behind;
        } else {
            named.push(*first);
            rest = others;
        }
    }
    OsString::from_vec(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_put_into_the_name() {
        assert_eq!(with_process("a/%p.json".as_ref(), "7"), "a/7.json");
        assert_eq!(with_process("%p%p%".as_ref(), "12"), "1212%");
        assert_eq!(with_process("plain".as_ref(), "12"), "plain");
    }

    #[test]
    fn each_program_of_a_process_has_a_file() {
        let taken = |path: &OsStr| path == "a/7.json" || path == "a/7.2.json" || path == "plain";
        assert_eq!(free("a/%p.json".as_ref(), 7, taken), "a/7.3.json");
        assert_eq!(free("a/%p.json".as_ref(), 8, taken), "a/8.json");
        assert_eq!(free("plain".as_ref(), 7, taken), "plain");
    }

    #[test]
    fn a_file_that_is_older_than_the_process_is_not_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let asked_for = folder.path().join("%p.json");
        let first = with_process(asked_for.as_os_str(), &std::process::id().to_string());
        let file = std::fs::File::create(&first).unwrap();
        assert_ne!(of_this_program(asked_for.as_os_str()), first);
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(1 << 20)).unwrap();
        assert_eq!(of_this_program(asked_for.as_os_str()), first);
    }
}
