//! Runs what `cargo test` builds: several programs at once, as most tests wait for something most
//! of their time. `cargo test` runs one after the other.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::limit;
use super::times::Reader;
use crate::util;

/// Programs whose tests compare times or how much memory of a device is free, or count what more
/// comes of when it takes longer: with others beside them they would tell of those. The kernels of
/// `common_memory` wait for each other, which takes many times as long on processors that are busy.
const ALONE: [&str; 8] =
    ["brokers", "common_memory", "credit", "effort", "idle", "pages", "rest", "speed"];

/// A program of tests.
#[derive(Debug, PartialEq)]
struct Program {
    /// Its main file, below its package.
    source: String,
    name: String,
    executable: PathBuf,
    /// Its package's folder, in which it is run.
    folder: PathBuf,
}

impl Program {
    /// Its package's folder, from the root of the repository.
    fn package(&self) -> PathBuf {
        self.folder.strip_prefix(util::root()).unwrap_or(&self.folder).to_path_buf()
    }

    fn is_alone(&self) -> bool {
        self.source.starts_with("tests/") && ALONE.contains(&self.name.as_str())
    }
}

/// A line that cargo writes for programs to read.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    src_path: PathBuf,
}

/// Builds the test programs of the workspace and runs those of some packages, by their folders;
/// what they said of each test. All are built whatever is run: for fewer packages the dependencies
/// would have other features, and be compiled twice.
pub(super) fn run(wanted: fn(&Path) -> bool, env: &[(&str, &str)]) -> Result<Reader> {
    let mut programs = build(&["--workspace"])?;
    programs.retain(|program| wanted(&program.package()));
    if programs.is_empty() {
        bail!("there are no tests to run");
    }
    let (alone, others): (Vec<_>, Vec<_>) = programs.into_iter().partition(Program::is_alone);
    let found = Mutex::new(Reader::default());
    let one = |program: &Program| {
        let (said, status) = run_one(program, env)?;
        let mut reader = Reader::default();
        said.lines().for_each(|line| reader.read(line));
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        // At once, so that lines of several programs do not mix.
        eprint!("{said}");
        if !status.success() && reader.count.failed.is_empty() {
            let last = last_lines(&said);
            reader.count.failed.push(format!("{}, in no test: {status}{last}", program.name));
        }
        found.add(reader);
        Ok(())
    };
    let together = util::for_each(&others, util::processors(), one);
    let one_by_one = util::for_each(&alone, 1, one);
    together.and(one_by_one)?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The test programs of some packages, which are built.
pub(crate) fn built(packages: &[&str]) -> Result<Vec<PathBuf>> {
    Ok(build(packages)?.into_iter().map(|program| program.executable).collect())
}

fn build(packages: &[&str]) -> Result<Vec<Program>> {
    let mut cargo = super::cargo(["test", "--no-run", "--message-format"]);
    cargo.arg("json-render-diagnostics").args(packages);
    let shown = util::show(&cargo);
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({})", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect())
}

/// The program that a line of cargo's is about, if it is about one.
fn program(line: &str) -> Option<Program> {
    let message: Message = serde_json::from_str(line)
        .ok()
        .filter(|message: &Message| message.reason == "compiler-artifact")?;
    let (executable, target) = (message.executable?, message.target?);
    // Programs that are not tests, but are run by some, are not in `deps`.
    executable.parent().filter(|folder| folder.ends_with("deps"))?;
    let folder = message.manifest_path?.parent()?.to_path_buf();
    let source =
        target.src_path.strip_prefix(&folder).unwrap_or(&target.src_path).display().to_string();
    Some(Program { source, name: target.name, executable, folder })
}

/// The end of what a program said, a line each, for a report far below it.
fn last_lines(said: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<_> = said.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("\n    {line}")).collect()
}

/// Runs a program: what it said, below a heading like cargo's, and how it has ended. It writes into
/// a file: what a failed test leaves running would keep a pipe open.
fn run_one(program: &Program, env: &[(&str, &str)]) -> Result<(String, ExitStatus)> {
    let unit = if program.source.starts_with("src/") { "unittests " } else { "" };
    let heading =
        format!("     Running {unit}{} ({})\n", program.source, program.executable.display());
    let path = program.executable.with_extension("said");
    let said = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).envs(env.iter().copied()).stdin(Stdio::null());
    command.stdout(said.try_clone().context("cannot use a file twice")?).stderr(said);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {}", program.executable.display()))?;
    let (status, hung) = limit::wait(&program.executable, &mut child, &path)?;
    let said = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    let said = heading + &String::from_utf8_lossy(&said) + &hung.unwrap_or_default();
    Ok((said, status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_found_among_what_cargo_says() {
        let line = |reason: &str, executable: &str| {
            format!(
                r#"{{"reason":"{reason}","manifest_path":"/a/Cargo.toml","target":{{"name":"speed","src_path":"/a/tests/speed.rs"}},"executable":{executable}}}"#
            )
        };
        let found = program(&line("compiler-artifact", r#""/t/debug/deps/speed-0123""#)).unwrap();
        assert_eq!((found.source.as_str(), found.is_alone()), ("tests/speed.rs", true));
        assert_eq!(
            (&found.folder, &found.executable),
            (&"/a".into(), &"/t/debug/deps/speed-0123".into())
        );
        let end_to_end = Program { folder: util::root().join("tests/e2e"), ..found };
        assert_eq!(end_to_end.package(), Path::new(super::super::END_TO_END));
        assert_eq!(program(&line("compiler-artifact", "null")), None);
        assert_eq!(program(&line("compiler-artifact", r#""/t/debug/speed""#)), None);
        assert_eq!(program(&line("build-script-executed", r#""/t/debug/deps/speed-0123""#)), None);
        assert_eq!(program("not json"), None);
    }
}
