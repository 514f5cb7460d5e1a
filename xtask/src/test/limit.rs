//! The time limit of tests. A program of tests runs several of them at once, says nothing of those
//! that have begun, and has no limit of its own: so it is watched from outside.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::util;

/// How long no test of a program may end. A test that takes longer hangs; others that run beside it
/// put the end off only until they have ended.
const LIMIT: Duration = Duration::from_secs(300);
/// How often what a program has said is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for a program of tests. One in which no test ends for [`LIMIT`] is ended, with all that it
/// has started; what was found then is the second value.
pub(super) fn wait(
    program: &Path,
    child: &mut Child,
    said: &Path,
) -> Result<(ExitStatus, Option<String>)> {
    wait_for(LIMIT, || list(program), child, said)
}

fn wait_for(
    limit: Duration,
    tests: impl Fn() -> Vec<String>,
    child: &mut Child,
    said: &Path,
) -> Result<(ExitStatus, Option<String>)> {
    let (mut size, mut ended, mut since) = (0, HashSet::new(), Instant::now());
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a program of tests")? {
            return Ok((status, None));
        }
        let length = fs::metadata(said).map_or(0, |file| file.len());
        if length != size {
            size = length;
            let now = ended_tests(&String::from_utf8_lossy(&fs::read(said).unwrap_or_default()));
            if now.len() > ended.len() {
                (ended, since) = (now, Instant::now());
            }
        }
        if since.elapsed() > limit {
            let below = below(child.id());
            let found = report(limit, &tests(), &ended, &below);
            child.kill().context("cannot end a program of tests")?;
            below.iter().for_each(Process::kill);
            let status = child.wait().context("cannot wait for a program of tests")?;
            return Ok((status, Some(found)));
        }
        std::thread::sleep(LOOK);
    }
}

/// The tests whose outcome has been said: `test name ... ok`. libtest-mimic fills names up.
fn ended_tests(said: &str) -> HashSet<String> {
    let of_line = |line: &str| {
        let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
        (!outcome.is_empty()).then(|| name.trim().to_owned())
    };
    said.lines().filter_map(of_line).collect()
}

/// The tests of a program, in the order in which it begins them.
fn list(program: &Path) -> Vec<String> {
    let output = Command::new(program).args(["--list", "--format", "terse"]).output();
    let said = output.map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    said.lines().filter_map(|line| line.strip_suffix(": test").map(str::to_owned)).collect()
}

/// As the program itself would say it of tests that failed. Which have begun it does not say, but
/// it begins them in order, as many at once as there are processors.
fn report(limit: Duration, tests: &[String], ended: &HashSet<String>, below: &[Process]) -> String {
    let left: Vec<&String> = tests.iter().filter(|test| !ended.contains(*test)).collect();
    let begun = &left[..left.len().min(util::processors())];
    let mut text = String::from("\n");
    for test in begun {
        text += &format!("test {test} ... FAILED: it has not ended\n");
    }
    text += &format!("No test has ended for {} s, so the rest were not run.\n", limit.as_secs());
    for process in below {
        text += &format!("    process {} was there yet: {}\n", process.id, process.command);
    }
    // A program of which no test is known to hang hangs itself.
    let failed = begun.len().max(1);
    text + &format!(
        "test result: FAILED. {} passed; {failed} failed; 0 ignored; finished in {}s\n",
        ended.len(),
        limit.as_secs()
    )
}

/// A process that a program of tests has started, itself or by another one.
struct Process {
    id: u32,
    command: String,
}

impl Process {
    fn kill(&self) {
        let id = i32::try_from(self.id).ok().and_then(rustix::process::Pid::from_raw);
        // One that has ended meanwhile is as good.
        let _ = id.map(|id| rustix::process::kill_process(id, rustix::process::Signal::KILL));
    }
}

fn below(ancestor: u32) -> Vec<Process> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((id, parent))
        })
        .collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        next += 1;
    }
    let process = |id: &u32| {
        let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
        Process { id: *id, command }
    };
    found[1..].iter().map(process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn is_alive(process: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"));
        // A zombie has not been waited for yet, perhaps by nobody.
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_has_started_and_its_test_is_named() {
        let folder = util::target_dir().join("limit");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(std::process::id().to_string());
        let program = "echo 'test one ... ok'; sleep 1000 & echo $!; wait";
        let mut shell = Command::new("sh");
        shell.args(["-c", program]).stdin(Stdio::null()).stdout(fs::File::create(&path).unwrap());
        let tests = || vec!["one".to_owned(), "two".to_owned()];
        let mut child = shell.spawn().unwrap();
        let (status, found) =
            wait_for(Duration::from_millis(500), tests, &mut child, &path).unwrap();
        let found = found.expect("it hangs");
        assert!(!status.success());
        assert!(found.contains("test two ... FAILED") && !found.contains("test one"), "{found}");
        assert!(found.contains(": sleep 1000") && found.contains("1 passed; 1 failed"), "{found}");
        let said = fs::read_to_string(&path).unwrap();
        let below: u32 = said.lines().last().unwrap().parse().unwrap();
        let since = Instant::now();
        while is_alive(below) {
            assert!(since.elapsed() < LIMIT, "{below} was not ended");
            std::thread::sleep(LOOK);
        }
        let _ = fs::remove_file(path);
    }

    #[test]
    fn tests_that_end_put_the_limit_off() {
        let path = util::target_dir().join(format!("{}.said", std::process::id()));
        let program = "for test in 1 2 3 4 5 6; do sleep 0.2; echo \"test $test ... ok\"; done";
        let mut shell = Command::new("sh");
        shell.args(["-c", program]).stdout(fs::File::create(&path).unwrap());
        let mut child = shell.spawn().unwrap();
        let (status, found) =
            wait_for(Duration::from_secs(1), Vec::new, &mut child, &path).unwrap();
        assert!(status.success() && found.is_none(), "{found:?}");
        let _ = fs::remove_file(path);
    }

    #[test]
    fn the_tests_of_a_program_are_listed_and_their_outcomes_read() {
        let this = std::env::current_exe().unwrap();
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        assert!(list(&this).iter().any(|test| *test == name || name == "main"));
        let said = "running 2 tests\ntest one   ... ok\ntest two ... \ntest three ... FAILED\n";
        assert_eq!(ended_tests(said), HashSet::from(["one".to_owned(), "three".to_owned()]));
    }
}
