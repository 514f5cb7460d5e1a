//! Tests that were seen to fail and to pass: the page that lists them, how many a run may have, and
//! what is kept of them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::count::{Count, Failure, Unsteady};

/// The page, below the root of the repository.
pub(super) const PAGE: &str = "docs/unsteady.md";
/// How many unsteady tests a run may have and be green.
const ALLOWED: usize = 2;
/// What the page says of a cause that nobody knows.
const UNKNOWN: &str = "not known";

/// A section of the page.
#[derive(Debug, PartialEq)]
struct Seen {
    /// The test and its place, as a run names it.
    name: String,
    cause: String,
}

impl Seen {
    fn is_explained(&self) -> bool {
        !self.cause.is_empty() && !self.cause.starts_with(UNKNOWN)
    }
}

/// What an earlier run saw of a test is under a heading `### test, in place`, in items such as
/// `- Cause: …`.
fn read(page: &str) -> Vec<Seen> {
    let mut all: Vec<Seen> = Vec::new();
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            all.push(Seen { name: name.trim().replace('`', ""), cause: String::new() });
        } else if let (Some(cause), Some(seen)) = (line.strip_prefix("- Cause:"), all.last_mut()) {
            seen.cause = cause.trim().to_owned();
        }
    }
    all
}

/// Judges what a run found unsteady by the page of a workspace: too many tests, or one that was
/// seen before and has no cause yet, have failed.
pub(super) fn judge(mut count: Count, workspace: &Path) -> Count {
    let seen = read(&fs::read_to_string(workspace.join(PAGE)).unwrap_or_default());
    let is_too_many = count.unsteady.len() > ALLOWED;
    let mut allowed = Vec::new();
    for unsteady in std::mem::take(&mut count.unsteady) {
        let name = unsteady.failure.to_string();
        let is_unexplained = seen.iter().any(|seen| seen.name == name && !seen.is_explained());
        let why = if is_unexplained {
            format!("it was unsteady before, and {PAGE} does not say why")
        } else if is_too_many {
            format!("more than {ALLOWED} tests were unsteady")
        } else {
            allowed.push(unsteady);
            continue;
        };
        count.passed = count.passed.saturating_sub(1);
        let said =
            format!("{}\nIt passed when it was run again, but {why}.", unsteady.failure.said);
        count.failed.push(Failure { said, ..unsteady.failure });
    }
    count.unsteady = allowed;
    count
}

/// Keeps what unsteady tests said, a folder for each test.
pub(super) fn keep(tests: &[Unsteady], folder: &Path) -> Result<()> {
    for Unsteady { failure, said_later } in tests {
        let to = folder.join(file_name(&failure.to_string()));
        fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
        for (name, said) in [("failed.txt", &failure.said), ("passed.txt", said_later)] {
            let path = to.join(name);
            fs::write(&path, said).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// A test's name as that of a folder.
fn file_name(test: &str) -> String {
    const LONGEST: usize = 200;
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    test.chars().map(letter).take(LONGEST).collect()
}

/// The line of a run that names them: `unsteady: 2 (one, in here; two, in there)`.
pub(super) fn line(tests: &[Unsteady]) -> String {
    let names: Vec<String> = tests.iter().map(|test| test.failure.to_string()).collect();
    format!("unsteady: {} ({})", names.len(), names.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::root;

    const ITEMS: [&str; 5] = ["Seen", "Output", "Suspicion", "Cause", "Mended"];

    fn found(names: &[&str]) -> Count {
        let unsteady = |name: &&str| Unsteady {
            failure: Failure::new(*name, "tests/daily.rs", "no"),
            said_later: "yes".into(),
        };
        Count { passed: 9, unsteady: names.iter().map(unsteady).collect(), ..Count::default() }
    }

    #[test]
    fn two_may_be_unsteady_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("docs")).unwrap();
        let page = "### `old, in tests/daily.rs`\n- Cause: not known\n\n### known, in tests/daily.rs\n- Cause: the clock";
        fs::write(folder.path().join(PAGE), page).unwrap();
        let judged = |names: &[&str]| {
            let count = judge(found(names), folder.path());
            let failed: Vec<String> = count.failed.iter().map(|test| test.test.clone()).collect();
            (count.passed, count.unsteady.len(), failed)
        };
        assert_eq!(judged(&["new", "known"]), (9, 2, vec![]));
        assert_eq!(judged(&["new", "old"]), (8, 1, vec!["old".to_owned()]));
        assert_eq!(judged(&["a", "b", "c"]).0, 6);
        assert_eq!(judged(&["a", "b", "c"]).2.len(), 3);
    }

    #[test]
    fn what_they_said_is_kept_and_their_names_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let tests = found(&["of::one"]).unsteady;
        keep(&tests, folder.path()).unwrap();
        let kept = folder.path().join("of--one--in-tests-daily-rs");
        assert_eq!(fs::read_to_string(kept.join("failed.txt")).unwrap(), "no");
        assert_eq!(fs::read_to_string(kept.join("passed.txt")).unwrap(), "yes");
        assert_eq!(line(&tests), "unsteady: 1 (of::one, in tests/daily.rs)");
    }

    /// Each section of the page is complete, and names a test that is there.
    #[test]
    fn the_page_is_complete() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        let all = read(&page);
        assert!(!all.is_empty());
        for (Seen { name, cause }, section) in all.iter().zip(page.split("\n### ").skip(1)) {
            for item in ITEMS {
                assert!(section.contains(&format!("\n- {item}: ")), "{name} does not say «{item}»");
            }
            assert!(!cause.is_empty(), "{name} has an empty cause");
            // A step has no place. Of a package, the file of the test's module is not known.
            let Some((test, place)) = name.split_once(", in ") else { continue };
            let place = root().join(match place {
                "slurm" => "xtask/src/slurm/cases/mod.rs",
                file => file,
            });
            let text = fs::read_to_string(&place)
                .unwrap_or_else(|error| panic!("{}: {error}", place.display()));
            let first = match test.split_once("::") {
                Some((module, _)) => format!("mod {module};"),
                None => test.split(' ').next().unwrap_or(test).to_owned(),
            };
            assert!(text.contains(&first), "{} has no {first}", place.display());
        }
    }
}
