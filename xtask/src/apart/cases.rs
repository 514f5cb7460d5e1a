//! Cases that are run one after the other on one thing.

use super::Apart;
use crate::test::{Count, Failure};
use crate::util::step;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

/// A case on a `W`.
pub(crate) struct Case<W> {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut W) -> Result<()>,
}

/// What came of a case.
#[derive(Serialize, Deserialize)]
pub(crate) struct Outcome {
    name: String,
    seconds: f64,
    pub(crate) error: Option<String>,
}

impl Outcome {
    /// As a test of the place.
    pub(crate) fn count(&self, place: &str) -> Count {
        match &self.error {
            Some(error) => Count::failed(Failure::new(&self.name, place, error)),
            None => Count::ONE,
        }
    }
}

/// Runs those whose names contain `only`, each by `attempt`.
pub(crate) fn run<W>(
    apart: &Apart,
    cases: &[Case<W>],
    only: Option<&str>,
    mut attempt: impl FnMut(fn(&mut W) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let mut outcomes = Vec::new();
    for case in cases.iter().filter(|case| only.is_none_or(|only| case.name.contains(only))) {
        step(case.name);
        let begin = Instant::now();
        let error = attempt(case.run).err().map(|error| format!("{error:#}"));
        if let Some(error) = &error {
            eprintln!("error: {error}");
        }
        let seconds = begin.elapsed().as_secs_f64();
        outcomes.push(Outcome { name: case.name.into(), seconds, error });
        // A run that is stopped tells what it has found.
        let report = serde_json::to_vec(&outcomes)?;
        fs::write(apart.report(), report).context("cannot write the report")?;
    }
    Ok(())
}

pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for Outcome { name, seconds, error } in outcomes {
        let came = error.as_deref().unwrap_or("passed");
        let _ = writeln!(text, "{name:<48} {seconds:>6.1} s  {came}");
    }
    let sum: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let _ = writeln!(text, "{:<48} {sum:>6.1} s", format!("{} cases", outcomes.len()));
    text
}
