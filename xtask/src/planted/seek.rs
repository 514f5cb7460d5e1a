//! Runs the tests that are to find a fault.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};

use super::fault::{Fault, Search};
use super::tree::Tree;
use crate::programs;
use crate::test::{self, Count};

/// How long no test may end: one that hangs has found a fault.
const LIMIT: Duration = Duration::from_secs(120);

/// What came of a fault.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The tests that found it.
    Found(Vec<String>),
    /// No test failed; those that were skipped.
    NotFound(Vec<String>),
    /// It does not apply, or nothing can be built with it.
    Broken(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Found(tests) => f.write_str(&tests.join(", ")),
            Verdict::NotFound(skipped) if skipped.is_empty() => f.write_str("NOT FOUND"),
            Verdict::NotFound(skipped) => write!(f, "NOT FOUND (skipped: {})", skipped.join(", ")),
            Verdict::Broken(why) => write!(f, "NOT PLANTED: {why}"),
        }
    }
}

/// Plants a fault and runs its tests.
pub(super) fn seek(tree: &Tree, fault: &Fault) -> Verdict {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    let sought = tree.with_patch(&fault.path, |tree| {
        if fault.found_by.iter().any(Search::needs_installation) {
            tree.stage()?;
        }
        for search in &fault.found_by {
            let count = run(tree, search)?;
            found.extend(count.failed.into_iter().map(|failure| failure.to_string()));
            skipped.extend(count.skipped);
        }
        Ok(())
    });
    match sought {
        Err(error) => Verdict::Broken(format!("{error:#}")),
        Ok(()) if found.is_empty() => Verdict::NotFound(skipped),
        Ok(()) => Verdict::Found(found),
    }
}

/// Runs tests without a fault: they must pass, as a test that fails anyway finds nothing.
pub(super) fn clean(tree: &Tree, search: &Search) -> Result<()> {
    if search.needs_installation() {
        tree.stage()?;
    }
    let Count { passed, failed, skipped, .. } = run(tree, search)?;
    if let Some(failure) = failed.first() {
        bail!("{failure} fails without a fault, too:\n{}", failure.said);
    }
    if passed == 0 && skipped.is_empty() {
        bail!("there is no test of {search}");
    }
    if passed == 0 {
        eprintln!("    {search} is skipped on this machine, and finds nothing here");
    }
    Ok(())
}

fn run(tree: &Tree, search: &Search) -> Result<Count> {
    let (built, filter) = search.programs(tree.source());
    let programs = programs::dir();
    let env = [("OUTBOARD_TEST_PROGRAMS", &*programs.to_string_lossy())];
    test::run_named(&tree.build(&built)?, filter, &env, LIMIT)
}
