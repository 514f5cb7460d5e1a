//! The files of a system, and what became of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::util::said;

/// What changes while a system runs and programs are installed, whatever they are: what the kernel
/// shows, journals, the records of package managers and of systemd, and the copies of lists of
/// users that their tools keep.
const ALIVE: [&str; 23] = [
    "/dev",
    "/etc/.pwd.lock",
    "/etc/group-",
    "/etc/gshadow-",
    "/etc/passwd-",
    "/etc/shadow-",
    "/proc",
    "/run/dbus",
    "/run/lock",
    "/run/log",
    "/run/rpm",
    "/run/systemd",
    "/sys",
    "/usr/lib/sysimage/rpm",
    "/var/cache/dnf",
    "/var/cache/ldconfig",
    "/var/lib/dnf",
    "/var/lib/dpkg",
    "/var/lib/rpm",
    "/var/lib/systemd",
    "/var/log",
    "/var/tmp/systemd-private",
    "/tmp/systemd-private",
];

/// Prints each file's kind, rights, owner, target and name, and each one's sum and name. The folder
/// that is the root may be its argument.
const LIST: &str = r"
cd ${1:-/}
find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev \) -prune -o -printf '%y %m %U %G %l\t/%P\n'
find ./run -xdev -mindepth 1 -printf '%y %m %U %G %l\t/run/%P\n'
find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev \) -prune -o -type f -print0 |
    xargs -0 sha256sum | sed 's/  \./\t/'
";

/// What is known of each file by its path.
pub(super) struct Files(BTreeMap<String, String>);

impl Files {
    /// All of a machine's as they are now; `says` runs a line of shell there.
    pub(super) fn of(says: impl Fn(&str) -> Result<String>) -> Result<Files> {
        Ok(Files::read(&says(LIST)?))
    }

    /// All of a system's whose root is a folder of this machine.
    pub(super) fn below(root: &Path) -> Result<Files> {
        Ok(Files::read(&said(Command::new("sh").args(["-ec", LIST, "sh"]).arg(root))?))
    }

    fn read(listing: &str) -> Files {
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        for (known, path) in listing.lines().filter_map(|line| line.split_once('\t')) {
            if !ALIVE.iter().any(|alive| path.starts_with(alive)) {
                files.entry(path.to_owned()).or_default().push_str(known);
            }
        }
        Files(files)
    }

    /// What is other than it was before: each new file with `+` before its path, each that is gone
    /// with `-`, each changed one with `~`.
    pub(super) fn since(&self, before: &Files) -> Vec<String> {
        let mut found = Vec::new();
        for (path, known) in &self.0 {
            match before.0.get(path) {
                None => found.push(format!("+{path}")),
                Some(was) if was != known => found.push(format!("~{path}")),
                Some(_) => {}
            }
        }
        let gone = before.0.keys().filter(|path| !self.0.contains_key(*path));
        found.extend(gone.map(|path| format!("-{path}")));
        found
    }
}

/// Fails unless files are those of before, but for what is `named`.
pub(super) fn nothing_left(now: &Files, before: &Files, named: &[&str]) -> Result<()> {
    let left = now.since(before);
    let named = |path: &str| named.iter().any(|name| path == *name || is_below(path, name));
    let other: Vec<_> = left.iter().filter(|path| !named(&path[1..])).cloned().collect();
    if other.is_empty() { Ok(()) } else { bail!("left behind: {}", other.join(", ")) }
}

/// A path is below one that ends with a slash.
fn is_below(path: &str, folder: &str) -> bool {
    folder.ends_with('/') && (path.starts_with(folder) || format!("{path}/") == folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_come_go_and_change_are_told() {
        let before = "f 644 0 0 \t/etc/a\nf 644 0 0 \t/etc/b\nf 644 0 0 \t/etc/c\n\
                      aa\t/etc/a\nbb\t/etc/b\ncc\t/etc/c\nf 644 0 0 \t/var/log/x\n";
        let later = "f 644 0 0 \t/etc/a\nf 600 0 0 \t/etc/c\nd 755 0 0 \t/etc/d\n\
                     ab\t/etc/a\ncc\t/etc/c\n";
        let [before, later] = [before, later].map(Files::read);
        assert_eq!(later.since(&before), ["~/etc/a", "~/etc/c", "+/etc/d", "-/etc/b"]);
        assert!(before.since(&before).is_empty());
    }
}
