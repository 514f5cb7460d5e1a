//! Builds an earlier release from its commit.
//!
//! It has a target folder of its own: cargo cannot tell its crates from those of this source, which
//! have the same names at the same places. What crates.io's crates were built to is taken from this
//! source's folder, so that only the release's own crates are compiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cross::{self, Target};
use crate::stage::{self, Dist, Profile};
use crate::util::{self, root, step};

/// Whose crates, in the names of cargo's files: those of the project, and its libraries.
const OWN: [&str; 6] = ["outboard", "xtask", "cuda", "cufile", "nccl", "nvidia_ml"];

/// The full name of a commit, if this clone has it.
pub(crate) fn resolve(commit: &str) -> Result<String> {
    let name = format!("{commit}^{{commit}}");
    let output = git().args(["rev-parse", "--verify", "--quiet", &name]).output();
    let output = output.context("cannot start `git`")?;
    if !output.status.success() {
        bail!("this clone has no commit {commit}; `git fetch --unshallow` brings all");
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(root());
    git
}

/// Where a commit is built, for another kind of machines if one is named.
fn folder(commit: &str, kind: Option<&Target>) -> PathBuf {
    let mut name = commit[..commit.len().min(12)].to_owned();
    if let Some(kind) = kind {
        name = format!("{name}-{}", kind.name);
    }
    util::target_dir().join("mixed").join(name)
}

/// Builds a commit and lays it out, unless that was done before: a commit does not change.
pub(super) fn build(commit: &str) -> Result<Dist> {
    laid_out(commit, None, |source, target| {
        let (profile, name) = Profile::Dev.names();
        seed(&util::target_dir().join(name), &target.join(name))?;
        let mut cargo = util::cargo();
        cargo.current_dir(source).args(["build", "--profile", profile]);
        stage::PACKAGES.iter().for_each(|package| _ = cargo.args(["--package", package]));
        util::run(cargo.env("CARGO_TARGET_DIR", target))?;
        Ok(target.join(name))
    })
}

/// The same for another kind of machines.
pub(super) fn build_for(kind: &Target, commit: &str) -> Result<Dist> {
    laid_out(commit, Some(kind), |source, target| {
        let (_, name) = Profile::Dev.names();
        let built = Path::new(kind.triple).join(name);
        for part in [Path::new(name), &built] {
            seed(&cross::targets::folder().join(part), &target.join(part))?;
        }
        cross::compile_source(kind, Profile::Dev, source, target)?;
        Ok(target.join(built))
    })
}

/// Lays out what `compile` says it has built of a commit's source, given its folder and the one to
/// build in; unless it is there.
fn laid_out(
    commit: &str,
    kind: Option<&Target>,
    compile: impl FnOnce(&Path, &Path) -> Result<PathBuf>,
) -> Result<Dist> {
    let commit = resolve(commit)?;
    let folder = folder(&commit, kind);
    let dist = Dist { dir: folder.join("dist") };
    if dist.outboard().exists() {
        return Ok(dist);
    }
    step(&format!("building {commit}"));
    let (source, target) = (folder.join("source"), folder.join("target"));
    check_out(&commit, &source)?;
    let built = compile(&source, &target)?;
    let laid_out = Dist::lay_out(&built, folder.join("dist.new"))?;
    fs::rename(&laid_out.dir, &dist.dir).context("cannot name the release's folder")?;
    // Gigabytes that nobody needs again.
    for spent in [source, target] {
        fs::remove_dir_all(&spent).with_context(|| format!("cannot remove {}", spent.display()))?;
    }
    Ok(dist)
}

/// Writes a commit's files into a folder, with the commit's time: cargo takes older files for
/// unchanged ones.
fn check_out(commit: &str, into: &Path) -> Result<()> {
    fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    let archive = into.with_extension("tar");
    util::run(git().args(["archive", "--output"]).arg(&archive).arg(commit))?;
    util::run(Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(into))?;
    fs::remove_file(&archive).context("cannot remove the archive of a release")
}

/// Has a target folder begin with what another one has of crates that are not the project's.
fn seed(from: &Path, to: &Path) -> Result<()> {
    for part in [".fingerprint", "build", "deps"] {
        let (from, to) = (from.join(part), to.join(part));
        fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
        let Ok(entries) = fs::read_dir(&from) else { continue };
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
            let name = entry.file_name();
            if is_own(&name.to_string_lossy()) {
                continue;
            }
            copy(&entry.path(), &to.join(&name))
                .with_context(|| format!("cannot copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Whether a file or folder of cargo's belongs to a crate of the project.
fn is_own(name: &str) -> bool {
    OWN.iter().any(|own| name.strip_prefix("lib").unwrap_or(name).starts_with(own))
}

/// Copies a file, or a folder with all in it, with its times, by which cargo sees that nothing has
/// changed. Compiled libraries, which no compiler writes into, are the same files under second
/// names; test programs stay behind.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if to.exists() {
        // By an earlier attempt; it may be the same file.
        return Ok(());
    }
    let extension = from.extension().and_then(|extension| extension.to_str());
    let is_library = matches!(extension, Some("rlib" | "rmeta" | "so"));
    if is_library && fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    let is_program = extension.is_none() && from.parent().is_some_and(|at| at.ends_with("deps"));
    if is_program {
        return Ok(());
    }
    fs::copy(from, to)?;
    let written = fs::metadata(from)?.modified()?;
    fs::File::options().append(true).open(to)?.set_modified(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_the_project_are_known_by_their_names() {
        for name in ["outboard-wire-0a", "liboutboard_wire-0a.rlib", "libcuda-0a.so", "xtask-0a"] {
            assert!(is_own(name), "{name}");
        }
        for name in ["libserde-0a.rlib", "ring-0a", "libc-0a", "liblibc-0a.rlib"] {
            assert!(!is_own(name), "{name}");
        }
    }

    #[test]
    fn a_commit_that_is_not_there_is_missed_in_a_sentence() {
        let error = resolve("0123456789012345678901234567890123456789").unwrap_err().to_string();
        assert!(error.starts_with("this clone has no commit 0123"), "{error}");
    }
}
