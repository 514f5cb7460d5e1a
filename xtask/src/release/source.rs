//! What a release is made of: a commit, and what the changelog says of it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::util::{root, said, step};

pub(super) struct Source {
    pub(super) version: &'static str,
    /// When it was committed, in seconds: the age of every file of a release.
    pub(super) epoch: String,
    /// What the changelog says.
    pub(super) notes: String,
}

impl Source {
    /// That of this clone. It is a commit with the version's tag and a section of the changelog;
    /// `anyway`, it need not be.
    pub(super) fn read(anyway: bool) -> Result<Source> {
        let version = env!("CARGO_PKG_VERSION");
        let changelog = fs::read_to_string(root().join("CHANGELOG.md"));
        let notes = section(&changelog.context("cannot read CHANGELOG.md")?, version);
        let tag = format!("v{version}");
        let mut lacks = Vec::new();
        if !git(&["status", "--porcelain"])?.is_empty() {
            lacks.push("there are changes that are not committed".to_owned());
        }
        if notes.is_none() {
            lacks.push(format!("CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`"));
        }
        if !git(&["tag", "--points-at", "HEAD"])?.lines().any(|line| line == tag) {
            lacks.push(format!("the commit has no tag; `git tag {tag}` gives it one"));
        }
        if !lacks.is_empty() {
            let lacks = lacks.join("; ");
            if !anyway {
                bail!("this is no release: {lacks}. To try how one is made: --anyway");
            }
            step(&format!("not to be published: {lacks}"));
        }
        let epoch = git(&["show", "--no-patch", "--format=%ct", "HEAD"])?.trim().to_owned();
        Ok(Source { version, epoch, notes: notes.unwrap_or_default() })
    }
}

/// What git prints of this clone.
pub(super) fn git(args: &[&str]) -> Result<String> {
    said(Command::new("git").args(args).current_dir(root()))
}

/// A changelog's section on a version, which has a date.
fn section(changelog: &str, version: &str) -> Option<String> {
    let heading = format!("## [{version}] - ");
    let mut lines = changelog.lines().skip_while(|line| !line.starts_with(&heading));
    let date = lines.next()?.strip_prefix(&heading)?;
    let parts: Vec<usize> = date.split('-').map(str::len).collect();
    let digits = date.chars().all(|c| c.is_ascii_digit() || c == '-');
    if parts != [4, 2, 2] || !digits {
        return None;
    }
    let text: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    let text = text.join("\n").trim().to_owned();
    (!text.is_empty()).then(|| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_has_a_version_a_date_and_text() {
        let text = "# Changelog\n\n## [Unreleased]\n\n- x\n\n## [0.2.0] - 2026-12-01\n\n- b\n- c\n\n\
                    ## [0.1.0] - 2026-11-26\n\n### Added\n\n- a\n";
        assert_eq!(section(text, "0.2.0").as_deref(), Some("- b\n- c\n"));
        assert_eq!(section(text, "0.1.0").as_deref(), Some("### Added\n\n- a\n"));
        for other in ["Unreleased", "0.1", "0.1.00", "1.0"] {
            assert_eq!(section(text, other), None, "{other}");
        }
        assert_eq!(section("## [0.1.0] - soon\n\n- a\n", "0.1.0"), None);
        assert_eq!(section("## [0.1.0] - 2026-11-26\n\n## [0.0.9] - 2026-01-01\n", "0.1.0"), None);
    }

    #[test]
    fn the_changelog_is_understood() {
        let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("there is one");
        assert!(section(&changelog, "0.1.0").is_some());
    }
}
