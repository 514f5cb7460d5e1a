//! The programs of tests that cargo builds.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{lints, util};

/// Programs, and modules of the program of end-to-end tests, whose tests compare times or how much
/// memory of a device is free, or count what more comes of when it takes longer: with others beside
/// them they would tell of those. The kernels of `common_memory` wait for each other, which takes
/// many times as long on processors that are busy.
const ALONE: [&str; 8] =
    ["brokers", "common_memory", "credit", "effort", "idle", "pages", "rest", "speed"];

/// Programs of end-to-end tests whose tests share servers: all of them run in one process. Each
/// test of the other has a process of its own, so that what it takes can be told.
const TOGETHER: [&str; 3] = ["loader", "suite", "topology"];

/// A program of tests.
#[derive(Debug, PartialEq)]
pub(crate) struct Program {
    /// Its main file, below its package.
    source: String,
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// Its package's folder, in which it is run.
    pub(super) folder: PathBuf,
    /// The same, from the root of the workspace.
    pub(super) package: PathBuf,
}

impl Program {
    /// Its main file, from the root of the workspace.
    pub(super) fn place(&self) -> String {
        self.package.join(&self.source).display().to_string()
    }

    /// Whether no other program of tests may run beside it.
    pub(super) fn is_alone(&self) -> bool {
        self.source.starts_with("tests/") && ALONE.contains(&self.name.as_str())
    }

    /// Whether its tests have processes of their own.
    pub(super) fn is_split(&self) -> bool {
        self.package == Path::new(super::END_TO_END) && !TOGETHER.contains(&self.name.as_str())
    }
}

/// The module of this test beside which no other tests may run, if it is in such a one.
pub(super) fn module_alone(test: &str) -> Option<&str> {
    let (module, _) = test.split_once("::")?;
    ALONE.contains(&module).then_some(module)
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

/// The test programs of some packages, which are built.
pub(crate) fn built(packages: &[&str]) -> Result<Vec<PathBuf>> {
    let programs = build(&util::root(), packages, None)?;
    Ok(programs.into_iter().map(|program| program.executable).collect())
}

/// Builds some test programs of a workspace. `compiler` compiles the workspace's crates, if it is
/// not rustc itself.
pub(crate) fn build(
    workspace: &Path,
    wanted: &[&str],
    compiler: Option<&Path>,
) -> Result<Vec<Program>> {
    let mut cargo = super::cargo(["test", "--no-run", "--message-format"]);
    cargo.current_dir(workspace).arg("json-render-diagnostics").args(wanted);
    if let Some(compiler) = compiler {
        cargo.env(lints::COMPILER, compiler);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_some_modules_run_alone() {
        assert_eq!(module_alone("credit::memory_is_there"), Some("credit"));
        assert_eq!(module_alone("daily::credit"), None);
        assert_eq!(module_alone("credit"), None);
    }

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
}
