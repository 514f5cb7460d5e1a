//! Steps that run beside the others, each in a process of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Count, Failure, Row};
use crate::util;

/// This program, even after a step has built another one in its place.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// How much less than the other steps these are worth to the system's scheduler.
const NICE: i32 = 10;

/// What has come of those that have ended.
#[derive(Default)]
pub(super) struct Beside {
    rows: Mutex<Vec<Row>>,
    ended: Condvar,
}

impl Beside {
    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a step, with further arguments. What it says is shown when it has ended, in one piece.
    pub(super) fn run(&self, name: &str, args: &[&str]) {
        let started = Instant::now();
        let row = process(name, args).unwrap_or_else(|error| {
            let error = format!("{error:#}");
            Row {
                name: name.to_owned(),
                count: Count::failed(Failure::new(name, "", &error)),
                taken: started.elapsed(),
                used: Duration::ZERO,
                error: Some(error),
                tests: Vec::new(),
            }
        });
        self.rows().push(row);
        self.ended.notify_all();
    }

    pub(super) fn wait_for(&self, name: &str) {
        let is_missing = |rows: &mut Vec<Row>| rows.iter().all(|row| row.name != name);
        drop(self.ended.wait_while(self.rows(), is_missing));
    }

    /// Processor time of those that have ended.
    pub(super) fn used(&self) -> Duration {
        self.rows().iter().map(|row| row.used).sum()
    }

    pub(super) fn take_rows(&self) -> Vec<Row> {
        std::mem::take(&mut *self.rows())
    }
}

fn process(name: &str, args: &[&str]) -> Result<Row> {
    let folder = util::target_dir().join("beside");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let report = folder.join(format!("{}.json", name.replace(' ', "-")));
    let _ = fs::remove_file(&report);
    let mut command = Command::new(THIS_PROGRAM);
    command.args(["test", "--only", name, "--report"]).arg(&report);
    command.args(args).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("cannot start the step {name}"))?;
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let text =
        fs::read(&report).with_context(|| format!("the step {name} ended ({})", output.status))?;
    let mut rows: Vec<Row> =
        serde_json::from_slice(&text).context("a step's report cannot be read")?;
    rows.pop().context("a step's report is empty")
}

/// Has this process and what it starts take what others leave.
pub(super) fn yield_to_others() {
    let _ = rustix::process::nice(NICE);
}

/// For who has started this process.
pub(super) fn report(to: &Path, rows: &[Row]) -> Result<()> {
    fs::write(to, serde_json::to_vec(rows)?)
        .with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_step_goes_on_when_it_has_ended() {
        let beside = Beside::default();
        let row = |name: &str| Row {
            name: name.to_owned(),
            count: Count::ONE,
            taken: Duration::from_secs(2),
            used: Duration::from_secs(1),
            error: None,
            tests: Vec::new(),
        };
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| beside.wait_for("second"));
            for name in ["first", "second"] {
                assert!(!waiting.is_finished());
                beside.rows().push(row(name));
                beside.ended.notify_all();
            }
        });
        assert_eq!(beside.used(), Duration::from_secs(2));
        assert_eq!(beside.take_rows().len(), 2);
    }
}
