//! The files of an installation: below a prefix as archives have them, and below `/usr` as the
//! packages of distributions do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::third_party;
use crate::cross::{self, Parts, Target};
use crate::stage::{self, Profile};
use crate::util::{self, root};

/// What is read beside the programs.
const READ: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"];

/// Where they are below a prefix.
const READ_IN: &str = "share/doc/outboard";

/// Lays out what was built for a kind of machines. `outboard` runs on this machine and says what
/// manuals and completions contain.
pub(super) fn lay_out(
    target: &Target,
    profile: Profile,
    (outboard, third_party): (&Path, &Path),
    at: PathBuf,
) -> Result<PathBuf> {
    let dist = cross::lay_out(target, profile, at)?;
    if target.parts == Parts::All {
        dist.manual(outboard)?;
    }
    for file in READ {
        stage::place(&root().join(file), &dist.dir.join(READ_IN).join(file))?;
    }
    stage::place(third_party, &dist.dir.join(READ_IN).join(third_party::NAME))?;
    Ok(dist.dir)
}

/// A distribution's way of laying out files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Distribution {
    Debian,
    RedHat,
}

/// Copies a prefix and makes it one of a distribution.
pub(super) fn for_distribution(prefix: &Path, distribution: Distribution, at: &Path) -> Result<()> {
    util::run(Command::new("cp").arg("-a").arg(prefix).arg(at))?;
    let units = at.join("lib/systemd/system");
    for unit in files(&units)? {
        let text = fs::read_to_string(&unit).context("a unit can be read")?;
        fs::write(&unit, text.replace("/usr/local/bin/", "/usr/bin/"))
            .with_context(|| format!("cannot write {}", unit.display()))?;
    }
    util::run(Command::new("gzip").args(["-9n"]).args(files(&at.join("share/man/man1"))?))?;
    if distribution == Distribution::Debian {
        let zsh = at.join("share/zsh");
        fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions"))
            .context("cannot move zsh's completions")?;
        let licences = READ.iter().filter(|name| name.starts_with("LICENSE"));
        let texts = licences.map(|name| fs::read_to_string(root().join(name)));
        let texts = texts.collect::<std::io::Result<Vec<_>>>().context("the licences are there")?;
        let head = format!(
            "Outboard is under one of these two licences, at your option. {} has those of the \
             crates\nthat it is built from.\n\n",
            third_party::NAME
        );
        fs::write(at.join(READ_IN).join("copyright"), head + &texts.join("\n\n"))
            .context("cannot write the licences")?;
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}
