//! What tests came to: how many passed, and which did not.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::util;

/// What a step found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: Vec<Failure>,
    /// Tests that failed once and passed each time that they were run again. They are among those
    /// that passed.
    pub(crate) unsteady: Vec<Unsteady>,
    /// What could not run here, each with its name and why.
    pub(crate) skipped: Vec<String>,
}

/// A test that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) test: String,
    /// Where the test is: a source file, a package. Empty for a step that is one test.
    pub(crate) place: String,
    /// What the test said.
    pub(crate) said: String,
}

/// A test that failed, and then passed each time that it was run again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Unsteady {
    pub(crate) failure: Failure,
    /// What the test said when it passed.
    pub(crate) said_later: String,
}

impl Failure {
    pub(crate) fn new(test: impl Into<String>, place: &str, said: impl Into<String>) -> Failure {
        Failure { test: test.into(), place: place.to_owned(), said: said.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.test),
            place => write!(f, "{}, in {place}", self.test),
        }
    }
}

impl Count {
    pub(crate) const ONE: Count = Count::passed(1);

    pub(crate) const fn passed(passed: u64) -> Count {
        Count { passed, failed: Vec::new(), unsteady: Vec::new(), skipped: Vec::new() }
    }

    pub(crate) fn failed(failure: Failure) -> Count {
        Count { failed: vec![failure], ..Count::default() }
    }

    pub(crate) fn skipped(why: String) -> Count {
        Count { skipped: vec![why], ..Count::default() }
    }

    pub(crate) fn and(mut self, other: Count) -> Count {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.unsteady.extend(other.unsteady);
        self.skipped.extend(other.skipped);
        self
    }

    /// Whether tests passed, and none failed.
    pub(crate) fn is_good(&self) -> bool {
        self.failed.is_empty() && self.passed > 0
    }

    /// Runs a command that tests, shows what it says, and has `counted` read that. What it said is
    /// the second value, and is what each failed test said of which `counted` does not know it.
    pub(crate) fn of(
        command: &mut Command,
        counted: impl FnOnce(&[String]) -> Count,
    ) -> Result<(Count, String)> {
        let shown = util::show(command);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start `{shown}`"))?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        let mut lines = Vec::new();
        for line in BufReader::new(stdout).lines() {
            let line = line.with_context(|| format!("cannot read the output of `{shown}`"))?;
            eprintln!("{line}");
            lines.push(line);
        }
        let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
        let mut count = counted(&lines);
        let said = lines.join("\n");
        let silent = count.failed.iter_mut().filter(|failure| failure.said.is_empty());
        silent.for_each(|failure| failure.said.clone_from(&said));
        if count.failed.is_empty() && (!status.success() || count.passed == 0) {
            bail!("`{shown}` failed ({status})");
        }
        Ok((count, said))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { passed, failed, skipped, .. } = self;
        write!(f, "{passed} passed, {} failed, {} skipped", failed.len(), skipped.len())
    }
}

/// The names of `number` tests that were skipped, of which some could not be read.
pub(crate) fn padded(mut names: Vec<String>, number: u64, of: &str) -> Vec<String> {
    let unread = number.saturating_sub(names.len() as u64);
    names.extend((0..unread).map(|_| format!("a test of {of}")));
    names
}

/// `number` tests that failed, of which some could not be read.
pub(crate) fn padded_failures(mut read: Vec<Failure>, number: u64, place: &str) -> Vec<Failure> {
    let unread = number.saturating_sub(read.len() as u64);
    read.extend((0..unread).map(|_| Failure::new("a test", place, "")));
    read
}
