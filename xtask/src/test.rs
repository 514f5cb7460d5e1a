//! `cargo xtask test`: sets up all that is needed and runs every check and test.

use crate::programs;
use crate::stage::{Dist, Profile};
use crate::util::{self, root, step};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The release of cargo-deny.
const DENY: &str = "0.20.2";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the end-to-end tests on this device.
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "nvidia"])]
    driver: String,
    /// Seconds for each fuzz target; 0 leaves them out.
    #[arg(long, default_value_t = 10)]
    fuzz_seconds: u64,
    /// Only the steps whose names contain this.
    #[arg(long)]
    only: Option<String>,
}

/// What a step found.
#[derive(Clone, Copy, Default)]
struct Count {
    passed: u64,
    failed: u64,
}

struct Row {
    name: &'static str,
    count: Count,
    taken: Duration,
    error: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let steps: &[(&'static str, &dyn Fn() -> Result<Count>)] = &[
        ("format", &|| one(cargo(["fmt", "--all", "--check"]))),
        ("lints", &|| one(cargo(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))),
        ("generated code", &|| one(xtask(["codegen", "--check"]))),
        ("unit tests", &|| tests(cargo(["test", "--workspace", "--exclude", "outboard-e2e", "--no-fail-fast"]))),
        ("test programs", &|| {
            programs::ensure()?;
            Ok(Count { passed: 1, failed: 0 })
        }),
        ("installation", &|| {
            Dist::build(Profile::Dev)?;
            Ok(Count { passed: 1, failed: 0 })
        }),
        ("end to end", &|| {
            let mut command = cargo(["test", "--package", "outboard-e2e", "--no-fail-fast"]);
            command.env("OUTBOARD_TEST_DRIVER", &args.driver);
            tests(command)
        }),
        ("wheel", &|| crate::wheel::attempt().map(|()| Count { passed: 1, failed: 0 })),
        ("counts", &|| crate::counts::check().map(|paths| Count { passed: paths, failed: 0 })),
        ("fuzzing", &|| crate::fuzz::all(args.fuzz_seconds).map(|targets| Count { passed: targets, failed: 0 })),
        ("dependencies", &dependencies),
    ];
    let mut rows = Vec::new();
    for (name, action) in steps {
        if args.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        step(name);
        let started = Instant::now();
        let result = action();
        let taken = started.elapsed();
        let (count, error) = match result {
            Ok(count) => (count, None),
            Err(error) => (Count { passed: 0, failed: 1 }, Some(format!("{error:#}"))),
        };
        if let Some(error) = &error {
            eprintln!("error: {error}");
        }
        rows.push(Row { name, count, taken, error });
    }
    summarize(&rows)
}

fn summarize(rows: &[Row]) -> Result<()> {
    let mut total = Count::default();
    eprintln!("\n{:<16} {:>7} {:>7} {:>9}", "", "passed", "failed", "seconds");
    for Row { name, count, taken, .. } in rows {
        eprintln!("{name:<16} {:>7} {:>7} {:>9.1}", count.passed, count.failed, taken.as_secs_f64());
        total.passed += count.passed;
        total.failed += count.failed;
    }
    for Row { name, error, .. } in rows {
        if let Some(error) = error {
            eprintln!("{name}: {}", error.lines().next().unwrap_or_default());
        }
    }
    // The one line on standard output, and the last.
    util::print(&format!("{} passed, {} failed\n", total.passed, total.failed))?;
    if total.failed > 0 {
        bail!("not all is well");
    }
    Ok(())
}

fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root()).args(args);
    command
}

fn xtask<const N: usize>(args: [&str; N]) -> Command {
    let mut command = cargo(["run", "--quiet", "--package", "xtask", "--"]);
    command.args(args);
    command
}

/// A command that passes or fails as a whole.
fn one(mut command: Command) -> Result<Count> {
    util::run(&mut command)?;
    Ok(Count { passed: 1, failed: 0 })
}

/// `cargo test`: shows its output and counts what the test binaries report.
fn tests(mut command: Command) -> Result<Count> {
    let shown = util::show(&command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let mut count = Count::default();
    let stdout = child.stdout.take().context("standard output is piped")?;
    for line in BufReader::new(stdout).lines() {
        let line = line.with_context(|| format!("cannot read the output of `{shown}`"))?;
        eprintln!("{line}");
        if let Some(found) = parse_result(&line) {
            count.passed += found.passed;
            count.failed += found.failed;
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    if !status.success() && count.failed == 0 {
        // It did not compile, or a test ended its process.
        bail!("`{shown}` failed ({status})");
    }
    Ok(count)
}

/// `test result: ok. 12 passed; 0 failed; …`
fn parse_result(line: &str) -> Option<Count> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |what: &str| {
        let before = rest.split(what).next()?;
        before.split([' ', '.']).rfind(|word| !word.is_empty())?.parse().ok()
    };
    Some(Count { passed: number(" passed")?, failed: number(" failed")? })
}

/// Licences and sources of the dependencies, by cargo-deny, which is installed if it is not there.
fn dependencies() -> Result<Count> {
    let works = |program: &Path| {
        let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let mut program = PathBuf::from("cargo-deny");
    if !works(&program) {
        let tools = util::target_dir().join("tools");
        program = tools.join("bin/cargo-deny");
        if !works(&program) {
            step("installing cargo-deny (some minutes, once)");
            // It runs once, for a second: to optimise it takes far longer.
            let mut install = cargo(["install", "--quiet", "--debug", "--locked", "cargo-deny", "--version", DENY]);
            util::run(install.arg("--root").arg(&tools))?;
        }
    }
    let mut check = Command::new(program);
    check.current_dir(root()).args(["--log-level", "error", "check", "licenses", "bans", "sources"]);
    one(check)
}

#[cfg(test)]
mod tests {
    use super::parse_result;

    #[test]
    fn results_of_test_binaries_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.05s";
        let count = parse_result(line).unwrap();
        assert_eq!((count.passed, count.failed), (12, 3));
        let count = parse_result("test result: ok. 7 passed; 0 failed; 1 ignored").unwrap();
        assert_eq!((count.passed, count.failed), (7, 0));
        assert!(parse_result("running 3 tests").is_none());
    }
}
