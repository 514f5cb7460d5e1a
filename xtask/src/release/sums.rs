//! The checksums of a release: what a person signs.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::util::said;

/// Its name.
pub(super) const FILE: &str = "SHA256SUMS";

/// Writes those of all files of a folder.
pub(super) fn write(folder: &Path) -> Result<()> {
    fs::write(folder.join(FILE), sums(folder)?).context("cannot write the checksums")
}

/// Fails, with the names of those that differ, unless two folders have the same files.
pub(super) fn compare(one: &Path, other: &Path) -> Result<()> {
    let differing = difference(&sums(one)?, &sums(other)?);
    if differing.is_empty() {
        return Ok(());
    }
    bail!("made twice, these differ: {}", differing.join(", "))
}

fn sums(folder: &Path) -> Result<String> {
    let entries = fs::read_dir(folder).context("cannot list a release")?.flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name()).filter(|name| name != FILE).collect();
    names.sort();
    said(Command::new("sha256sum").args(&names).current_dir(folder))
}

/// The names in lists of sums that are in one only, or with other sums.
fn difference(one: &str, other: &str) -> Vec<String> {
    let alone = |one: &str, other: &str| -> Vec<String> {
        let lines = one.lines().filter(|line| !other.lines().any(|other| other == *line));
        lines.filter_map(|line| Some(line.split_once("  ")?.1.to_owned())).collect()
    };
    let mut names = [alone(one, other), alone(other, one)].concat();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let one = "aa  a.deb\nbb  b.rpm\ncc  c.whl\n";
        assert_eq!(difference(one, one), Vec::<String>::new());
        let other = "aa  a.deb\nbc  b.rpm\ndd  d.tgz\n";
        assert_eq!(difference(one, other), ["b.rpm", "c.whl", "d.tgz"]);
    }
}
