//! What a run says last.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::count::{Count, Failure, Unsteady};
use super::{Row, skips, times, unsteady};
use crate::util;

/// How many lines of what a failed test said stand below its name.
const LINES: usize = 12;

/// Says what came of a run of a workspace's tests; failures are an error.
pub(super) fn tell(
    rows: &[Row],
    taken: Duration,
    workspace: &Path,
    needless_skips_fail: bool,
) -> Result<()> {
    eprintln!(
        "\n{:<16} {:>7} {:>7} {:>7} {:>9} {:>11}",
        "slowest first", "passed", "failed", "skipped", "seconds", "processor s"
    );
    for row in rows {
        let Count { passed, failed, skipped, .. } = &row.count;
        let (seconds, processor) = (row.taken.as_secs_f64(), row.used.as_secs_f64());
        eprintln!(
            "{:<16} {passed:>7} {:>7} {:>7} {seconds:>9.1} {processor:>11.1}",
            row.name,
            failed.len(),
            skipped.len()
        );
    }
    eprint!("\n{}", super::times_of(rows).of_tests());
    let total = rows.iter().fold(Count::default(), |total, row| total.and(row.count.clone()));
    let mut total = unsteady::judge(total, workspace);
    if needless_skips_fail {
        total.failed.extend(skips::needless(&total.skipped));
    }
    eprint!("{}", skips::told(&total.skipped));
    let used = rows.iter().map(|row| row.used).sum();
    eprintln!(
        "\nAll of it took {}, and {} of processor time.",
        times::spoken(taken),
        times::spoken(used)
    );
    for Row { name, error, .. } in rows {
        if let Some(error) = error {
            eprintln!("{name}: {}", error.lines().next().unwrap_or_default());
        }
    }
    if !total.failed.is_empty() {
        eprintln!("\nFailed:");
        total.failed.iter().for_each(|test| eprintln!("{test}{}", last_lines(&test.said)));
    }
    let mut closing = String::new();
    if !total.unsteady.is_empty() {
        tell_unsteady(&total.unsteady)?;
        closing = unsteady::line(&total.unsteady) + "\n";
    }
    // The only lines on standard output, and the last.
    util::print(&format!("{closing}{total}\n"))?;
    if !total.failed.is_empty() {
        bail!("not all is well");
    }
    Ok(())
}

/// Shows and keeps what unsteady tests said both times.
fn tell_unsteady(tests: &[Unsteady]) -> Result<()> {
    let folder = util::target_dir().join("unsteady");
    unsteady::keep(tests, &folder)?;
    for Unsteady { failure, said_later } in tests {
        let Failure { said, .. } = failure;
        eprintln!("\nUnsteady: {failure}\n--- it failed:\n{said}\n--- it passed:\n{said_later}");
    }
    eprintln!(
        "\nWhat unsteady tests said is in {}; {} needs a section for each.",
        folder.display(),
        unsteady::PAGE
    );
    Ok(())
}

/// The end of what a test said, a line each, below its name.
fn last_lines(said: &str) -> String {
    let lines: Vec<_> = said.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("\n    {line}")).collect()
}
