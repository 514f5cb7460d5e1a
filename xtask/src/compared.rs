//! Runs of the test programs on two systems or with two releases, compared with each other.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::programs::{self, Case};
use crate::server::Server;
use crate::stage::Dist;
use crate::util;

/// Seconds that a program may take; an emulated one is some ten times as slow as others.
pub(crate) const LIMIT: &str = "600";

/// What came of the programs.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How many printed and returned the same.
    pub(crate) same: usize,
    /// The others, with the reason if it is known.
    pub(crate) different: Vec<(String, String)>,
}

impl Outcome {
    /// Fails if a program differs of which no reason is known.
    pub(crate) fn check(&self, known: &[(&str, &str)]) -> Result<()> {
        let expected = |name: &str| known.iter().any(|(known, _)| *known == name);
        let mut failed: Vec<_> =
            self.different.iter().filter(|(name, _)| !expected(name)).collect();
        failed.sort();
        let failed: Vec<_> = failed.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        let gone = known.iter().filter(|(name, _)| !self.different.iter().any(|it| it.0 == *name));
        let gone: Vec<_> =
            gone.map(|(name, _)| format!("{name} works, and is said not to")).collect();
        let all = [failed, gone].concat();
        if all.is_empty() { Ok(()) } else { bail!("{}", all.join("\n")) }
    }
}

/// A program as one runs it on this machine, by an installation.
pub(crate) fn here(dist: &Dist, server: &Server, case: &Case) -> Command {
    at(dist, &server.address, case)
}

/// The same by what one calls the server.
pub(crate) fn at(dist: &Dist, server: &str, case: &Case) -> Command {
    run_here(dist, &["--server", server], case)
}

fn run_here(dist: &Dist, flags: &[&str], case: &Case) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", LIMIT]).arg(dist.outboard());
    command.arg("run").args(flags).arg("--").arg(&case.program).args(&case.args);
    command.env("OUTBOARD_CONFIG", "none").env_remove("LD_LIBRARY_PATH").env_remove("OUTBOARD_LIB");
    if let Some(folder) = &case.libraries {
        command.env("LD_LIBRARY_PATH", folder);
    }
    command
}

/// The same without a server: the software device in the program's process.
pub(crate) fn alone(dist: &Dist, case: &Case) -> Command {
    run_here(dist, &["--local-cpu"], case)
}

/// Runs each of `cases` by `first` and by `second`, and compares what they printed and returned.
pub(crate) fn compare(
    cases: &[Case],
    first: impl Fn(&Case) -> Option<Command> + Sync,
    second: impl Fn(&Case) -> Command + Sync,
) -> Result<Outcome> {
    compare_with(cases, &outputs(cases, first)?, second)
}

/// What programs print and return, by their names.
pub(crate) fn outputs(
    cases: &[Case],
    command: impl Fn(&Case) -> Option<Command> + Sync,
) -> Result<BTreeMap<String, Output>> {
    let outputs = Mutex::new(BTreeMap::new());
    util::for_each(cases, util::processors(), |case| {
        let Some(mut command) = command(case) else { return Ok(()) };
        let output = command.output().context("cannot start `timeout`")?;
        let mut outputs = outputs.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.insert(case.name.clone(), output);
        Ok(())
    })?;
    Ok(outputs.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs each of `cases` that has an output in `wanted`, and compares it with that.
pub(crate) fn compare_with(
    cases: &[Case],
    wanted: &BTreeMap<String, Output>,
    command: impl Fn(&Case) -> Command + Sync,
) -> Result<Outcome> {
    let outcome = Mutex::new(Outcome::default());
    util::for_each(cases, util::processors(), |case| {
        let Some(wanted) = wanted.get(&case.name) else { return Ok(()) };
        let found = command(case).output().context("cannot start `timeout`")?;
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match difference(wanted, &found) {
            None => outcome.same += 1,
            Some(why) => outcome.different.push((case.name.clone(), why)),
        }
        eprintln!("    {}", case.name);
        Ok(())
    })?;
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.different.sort();
    Ok(outcome)
}

/// How two runs differ, in one line.
fn difference(wanted: &Output, found: &Output) -> Option<String> {
    let last = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    };
    if found.status.code() == Some(124) {
        return Some(format!("it takes longer than {LIMIT} s"));
    }
    if wanted.status.code() != found.status.code() {
        return Some(format!(
            "{} instead of {}: {}",
            found.status,
            wanted.status,
            last(&found.stderr)
        ));
    }
    if wanted.stdout == found.stdout {
        return None;
    }
    let lines = |output: &Output| -> Vec<String> {
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    };
    let (wanted, found) = (lines(wanted), lines(found));
    let at = wanted.iter().zip(&found).position(|(one, other)| one != other);
    let at = at.unwrap_or(wanted.len().min(found.len()));
    let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_default();
    Some(format!("it prints `{}` instead of `{}`", line(&found), line(&wanted)))
}

/// The programs of this machine by their names.
pub(crate) fn own() -> Result<BTreeMap<String, Case>> {
    programs::ensure()?;
    Ok(programs::suite()?.into_iter().map(|case| (case.name.clone(), case)).collect())
}
