//! Runs what `cargo test` builds: several programs at once, as most tests wait for something most
//! of their time. `cargo test` runs one after the other.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::count::Failure;
use super::cut::{self, Cut};
use super::limit;
use super::reruns::{self, Attempt};
use super::times::Reader;
use crate::util;

/// Programs whose tests compare times or how much memory of a device is free, or count what more
/// comes of when it takes longer: with others beside them they would tell of those. The kernels of
/// `common_memory` wait for each other, which takes many times as long on processors that are busy.
const ALONE: [&str; 8] =
    ["brokers", "common_memory", "credit", "effort", "idle", "pages", "rest", "speed"];

/// How often the rest of a program's tests is run after the program was cut off: further ones that
/// hang would eat the time of the run.
const CONTINUATIONS: usize = 1;

/// A program of tests.
#[derive(Debug, PartialEq)]
struct Program {
    /// Its main file, below its package.
    source: String,
    name: String,
    executable: PathBuf,
    /// Its package's folder, in which it is run.
    folder: PathBuf,
    /// The same, from the root of the workspace.
    package: PathBuf,
}

impl Program {
    /// Its main file, from the root of the workspace.
    fn place(&self) -> String {
        self.package.join(&self.source).display().to_string()
    }

    fn is_alone(&self) -> bool {
        self.source.starts_with("tests/") && ALONE.contains(&self.name.as_str())
    }
}

/// Which tests of a program are run.
enum Chosen<'a> {
    All,
    One(&'a str),
    These(&'a [String]),
}

impl Chosen<'_> {
    fn takes(&self, test: &str) -> bool {
        match self {
            Chosen::All => true,
            Chosen::One(one) => *one == test,
            Chosen::These(these) => these.iter().any(|of_these| of_these == test),
        }
    }

    /// What tells a program so, which has these tests: libtest-mimic knows one name only, so all
    /// others are named.
    fn arguments(&self, all: impl FnOnce() -> Vec<String>) -> Vec<String> {
        match self {
            Chosen::All => Vec::new(),
            Chosen::One(one) => vec!["--exact".to_owned(), (*one).to_owned()],
            Chosen::These(_) => {
                let others = all().into_iter().filter(|test| !self.takes(test));
                let skip = others.flat_map(|test| ["--skip".to_owned(), test]);
                std::iter::once("--exact".to_owned()).chain(skip).collect()
            }
        }
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

/// What is run.
pub(super) struct Wanted<'a> {
    /// The workspace, all of whose test programs are built: for fewer packages the dependencies
    /// would have other features, and be compiled twice.
    pub(super) workspace: &'a Path,
    /// Packages whose tests are run, by their folders.
    pub(super) packages: fn(&Path) -> bool,
    pub(super) env: &'a [(&'a str, &'a str)],
    /// How long no test of a program may end: a test that takes longer hangs. A test that is run
    /// again alone has as much for itself.
    pub(super) limit: Duration,
}

/// Builds test programs and runs them; what they said of each test. Tests that fail are run again,
/// alone, when all others have ended.
pub(super) fn run(wanted: &Wanted<'_>) -> Result<Reader> {
    let mut programs = build(wanted.workspace, &["--workspace"])?;
    programs.retain(|program| (wanted.packages)(&program.package));
    if programs.is_empty() {
        bail!("there are no tests to run");
    }
    let (alone, others): (Vec<_>, Vec<_>) = programs.iter().partition(|program| program.is_alone());
    let found = Mutex::new(Reader::default());
    let one = |program: &&Program| {
        let reader = run_whole(program, wanted)?;
        found.lock().unwrap_or_else(PoisonError::into_inner).add(reader);
        Ok(())
    };
    let together = util::for_each(&others, util::processors(), one);
    let one_by_one = util::for_each(&alone, 1, one);
    together.and(one_by_one)?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let count = std::mem::take(&mut found.count);
    found.count = reruns::judge(count, |failure| {
        let of_it = programs.iter().find(|program| program.place() == failure.place);
        let run = of_it.context("its program is not known").and_then(|program| {
            let whole = failure.test == IN_NO_TEST;
            let chosen = if whole { Chosen::All } else { Chosen::One(&failure.test) };
            let (reader, said, _) = run_part(program, &chosen, wanted)?;
            Ok((reader.count, said))
        });
        Attempt::of(run)
    });
    Ok(found)
}

/// The test programs of some packages, which are built.
pub(crate) fn built(packages: &[&str]) -> Result<Vec<PathBuf>> {
    let programs = build(&util::root(), packages)?;
    Ok(programs.into_iter().map(|program| program.executable).collect())
}

fn build(workspace: &Path, packages: &[&str]) -> Result<Vec<Program>> {
    let mut cargo = super::cargo(["test", "--no-run", "--message-format"]);
    cargo.current_dir(workspace).arg("json-render-diagnostics").args(packages);
    let shown = util::show(&cargo);
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({})", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| program(line, workspace))
        .collect())
}

/// The program that a line of cargo's is about, if it is about one.
fn program(line: &str, workspace: &Path) -> Option<Program> {
    let message: Message = serde_json::from_str(line)
        .ok()
        .filter(|message: &Message| message.reason == "compiler-artifact")?;
    let (executable, target) = (message.executable?, message.target?);
    // Programs that are not tests, but are run by some, are not in `deps`.
    executable.parent().filter(|folder| folder.ends_with("deps"))?;
    let folder = message.manifest_path?.parent()?.to_path_buf();
    let source =
        target.src_path.strip_prefix(&folder).unwrap_or(&target.src_path).display().to_string();
    let package = folder.strip_prefix(workspace).unwrap_or(&folder).to_path_buf();
    Some(Program { source, name: target.name, executable, folder, package })
}

/// The place of a failure that is no test's.
const IN_NO_TEST: &str = "no test";

/// Runs a program until each of its tests has an outcome, shows what it said, and reads that.
fn run_whole(program: &Program, wanted: &Wanted<'_>) -> Result<Reader> {
    let (mut reader, said, cut) = run_part(program, &Chosen::All, wanted)?;
    // At once, so that lines of several programs do not mix.
    eprint!("{said}");
    let mut left = cut.map(|cut| cut.rest).unwrap_or_default();
    for _ in 0..CONTINUATIONS {
        if left.is_empty() {
            break;
        }
        let (further, said, cut) = run_part(program, &Chosen::These(&left), wanted)?;
        eprint!("{said}");
        reader.add(further);
        left = cut.map(|cut| cut.rest).unwrap_or_default();
    }
    let not_run = left.iter().map(|test| {
        Failure::new(test, &program.place(), "it was not run: the program was cut off twice")
    });
    reader.count.failed.extend(not_run);
    Ok(reader)
}

/// Runs some tests of a program: their outcomes, what the program said below a heading like
/// cargo's, and whether it was cut off. It writes into a file: what a failed test leaves running
/// would keep a pipe open.
fn run_part(
    program: &Program,
    chosen: &Chosen<'_>,
    wanted: &Wanted<'_>,
) -> Result<(Reader, String, Option<Cut>)> {
    let Program { executable, folder, .. } = program;
    let all = || cut::list(executable, folder);
    let path = executable.with_extension("said");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut command = Command::new(executable);
    command.current_dir(folder).args(chosen.arguments(all));
    command.envs(wanted.env.iter().copied()).stdin(Stdio::null());
    command.stdout(file.try_clone().context("cannot use a file twice")?).stderr(file);
    let child = command.spawn();
    let mut child = child.with_context(|| format!("cannot start {}", executable.display()))?;
    let (status, hung) = limit::wait(wanted.limit, &mut child, &path)?;
    let said = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    let place = program.place();
    let mut said = format!(
        "     Running {place} ({})\n{}",
        executable.display(),
        String::from_utf8_lossy(&said)
    );
    let tests = || all().into_iter().filter(|test| chosen.takes(test)).collect();
    let cut = Cut::find(&said, tests);
    if let Some(cut) = &cut {
        said += &cut.report(&hung.unwrap_or_else(|| format!("the program ended ({status})")));
    }
    let mut reader = Reader::of(place.clone());
    reader.read_all(&said);
    if (!status.success() || cut.is_some()) && reader.count.failed.is_empty() {
        let why = format!("the program ended ({status})\n{said}");
        reader.count.failed.push(Failure::new(IN_NO_TEST, &place, why));
    }
    Ok((reader, said, cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_found_among_what_cargo_says() {
        let line = |reason: &str, executable: &str| {
            format!(
                r#"{{"reason":"{reason}","manifest_path":"/a/b/Cargo.toml","target":{{"name":"speed","src_path":"/a/b/tests/speed.rs"}},"executable":{executable}}}"#
            )
        };
        let program = |line: &str| program(line, Path::new("/a"));
        let found = program(&line("compiler-artifact", r#""/t/debug/deps/speed-0123""#)).unwrap();
        assert_eq!((found.source.as_str(), found.is_alone()), ("tests/speed.rs", true));
        assert_eq!(
            (&found.folder, &found.executable),
            (&"/a/b".into(), &"/t/debug/deps/speed-0123".into())
        );
        assert_eq!(
            (found.package.as_path(), &*found.place()),
            (Path::new("b"), "b/tests/speed.rs")
        );
        assert_eq!(program(&line("compiler-artifact", "null")), None);
        assert_eq!(program(&line("compiler-artifact", r#""/t/debug/speed""#)), None);
        assert_eq!(program(&line("build-script-executed", r#""/t/debug/deps/speed-0123""#)), None);
        assert_eq!(program("not json"), None);
    }

    #[test]
    fn some_tests_of_a_program_are_named_by_those_that_are_not_meant() {
        let all = || ["one", "two", "three"].map(str::to_owned).to_vec();
        let two = ["two".to_owned()];
        assert!(Chosen::All.arguments(all).is_empty());
        assert_eq!(Chosen::One("one").arguments(all), ["--exact", "one"]);
        let these = Chosen::These(&two);
        assert_eq!(these.arguments(all), ["--exact", "--skip", "one", "--skip", "three"]);
        assert!(these.takes("two") && !these.takes("one"));
    }
}
