//! The time limit of tests. A program of tests runs several of them at once, says nothing of those
//! that have begun, and has no limit of its own: so it is watched from outside.

use std::fs;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::cut::ended_tests;
use super::times;

/// How often what a program has said is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How a program of tests ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) status: ExitStatus,
    /// Processor time of the program and of what it waited for.
    pub(super) used: Duration,
    /// What was found if the program was ended because it hung.
    pub(super) hung: Option<String>,
}

/// Waits for a program of tests, which writes into the file `said`. A program in which no test ends
/// for `limit` is ended, with all that it has started.
pub(super) fn wait(limit: Duration, child: &mut Child, said: &Path) -> Result<End> {
    let (mut size, mut ended, mut since) = (0, 0, Instant::now());
    loop {
        if has_ended(child)? {
            return end(child, None);
        }
        let length = fs::metadata(said).map_or(0, |file| file.len());
        if length != size {
            size = length;
            let text = fs::read(said).unwrap_or_default();
            let now = ended_tests(&String::from_utf8_lossy(&text)).len();
            if now > ended {
                (ended, since) = (now, Instant::now());
            }
        }
        if since.elapsed() > limit {
            let below = below(child.id());
            child.kill().context("cannot end a program of tests")?;
            below.iter().for_each(Process::kill);
            return end(child, Some(report(limit, &below)));
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether a process has ended. It stays there to be asked until it is waited for.
fn has_ended(child: &Child) -> Result<bool> {
    let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = waitid(WaitId::Pid(Pid::from_child(child)), only_look);
    Ok(ended.context("cannot wait for a program of tests")?.is_some())
}

fn end(child: &mut Child, hung: Option<String>) -> Result<End> {
    while !has_ended(child)? {
        std::thread::sleep(LOOK);
    }
    let used = times::processor_time_of(child.id());
    let status = child.wait().context("cannot wait for a program of tests")?;
    Ok(End { status, used, hung })
}

fn report(limit: Duration, below: &[Process]) -> String {
    let mut text = format!("no test ended for {} s", limit.as_secs());
    for process in below {
        text += &format!("\n    process {} was there yet: {}", process.id, process.command);
    }
    text
}

/// A process that a program of tests has started, itself or by another one.
struct Process {
    id: u32,
    command: String,
}

impl Process {
    fn kill(&self) {
        let id = i32::try_from(self.id).ok().and_then(Pid::from_raw);
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
    use std::process::{Command, Stdio};

    /// By when a process that was killed is gone.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn is_alive(process: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"));
        // A zombie has not been waited for yet, perhaps by nobody.
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("said");
        let program = "echo 'test one ... ok'; sleep 1000 & echo $!; wait";
        let mut shell = Command::new("sh");
        shell.args(["-c", program]).stdin(Stdio::null()).stdout(fs::File::create(&path).unwrap());
        let mut child = shell.spawn().unwrap();
        let End { status, hung, .. } = wait(Duration::from_millis(500), &mut child, &path).unwrap();
        let hung = hung.expect("it hangs");
        assert!(!status.success());
        assert!(hung.contains(": sleep 1000"), "{hung}");
        let said = fs::read_to_string(&path).unwrap();
        let below: u32 = said.lines().last().unwrap().parse().unwrap();
        let since = Instant::now();
        while is_alive(below) {
            assert!(since.elapsed() < PATIENCE, "{below} was not ended");
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn tests_that_end_put_the_limit_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("said");
        let program = "for test in 1 2 3 4 5 6; do sleep 0.2; echo \"test $test ... ok\"; done";
        let mut shell = Command::new("sh");
        shell.args(["-c", program]).stdout(fs::File::create(&path).unwrap());
        let mut child = shell.spawn().unwrap();
        let End { status, hung, .. } = wait(Duration::from_secs(1), &mut child, &path).unwrap();
        assert!(status.success() && hung.is_none(), "{hung:?}");
    }
}
