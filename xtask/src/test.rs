//! `cargo xtask test`: sets up all that is needed and runs every check and test.

mod times;

use crate::programs;
use crate::stage::{Dist, Profile};
use crate::util::{self, root, step};
use anyhow::{Context, Result, bail};
use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use times::{File, Reader};

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
    /// Processor time of what it started.
    used: Duration,
    error: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let files = RefCell::new(Vec::new());
    let tests = |command| tests(command, &mut files.borrow_mut());
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
            Dist::build(Profile::Tests)?;
            Ok(Count { passed: 1, failed: 0 })
        }),
        ("end to end", &|| {
            let mut command = cargo(["test", "--package", "outboard-e2e", "--no-fail-fast"]);
            command.env("OUTBOARD_TEST_DRIVER", &args.driver);
            tests(command)
        }),
        ("python", &|| crate::python::tests().map(|(passed, failed)| Count { passed, failed })),
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
        let (started, used) = (Instant::now(), times::processor_time());
        let result = action();
        let (taken, used) = (started.elapsed(), times::processor_time().saturating_sub(used));
        let (count, error) = match result {
            Ok(count) => (count, None),
            Err(error) => (Count { passed: 0, failed: 1 }, Some(format!("{error:#}"))),
        };
        if let Some(error) = &error {
            eprintln!("error: {error}");
        }
        rows.push(Row { name, count, taken, used, error });
    }
    summarize(rows, &files.into_inner())
}

fn summarize(mut rows: Vec<Row>, files: &[File]) -> Result<()> {
    let mut total = Count::default();
    let (mut taken, mut used) = (Duration::ZERO, Duration::ZERO);
    rows.sort_by_key(|row| std::cmp::Reverse(row.taken));
    eprintln!("\n{:<16} {:>7} {:>7} {:>9} {:>11}", "slowest first", "passed", "failed", "seconds", "processor s");
    for row in &rows {
        let Count { passed, failed } = row.count;
        let (seconds, processor) = (row.taken.as_secs_f64(), row.used.as_secs_f64());
        eprintln!("{:<16} {passed:>7} {failed:>7} {seconds:>9.1} {processor:>11.1}", row.name);
        total.passed += passed;
        total.failed += failed;
        taken += row.taken;
        used += row.used;
    }
    if !files.is_empty() {
        eprint!("\nThe slowest files of tests, without building them:\n{}", times::slowest(files));
    }
    eprintln!("\nAll of it took {}, and {} of processor time.", times::spoken(taken), times::spoken(used));
    for Row { name, error, .. } in &rows {
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
    let mut command = util::cargo();
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

/// `cargo test`: shows its output, counts what the test programs report and keeps what each took.
fn tests(mut command: Command, files: &mut Vec<File>) -> Result<Count> {
    let shown = util::show(&command);
    // One pipe for both: cargo names a program on standard error, and the program's result comes on standard output.
    let (output, input) = std::io::pipe().context("cannot make a pipe")?;
    command.stdout(input.try_clone().context("cannot make a pipe")?).stderr(input);
    command.env("CARGO_TERM_COLOR", "never");
    let mut child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    // It holds the pipe's other end, too.
    drop(command);
    let mut reader = Reader::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.with_context(|| format!("cannot read the output of `{shown}`"))?;
        let line = String::from_utf8_lossy(&line);
        eprintln!("{line}");
        reader.read(&line);
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    files.append(&mut reader.files);
    if !status.success() && reader.count.failed == 0 {
        // It did not compile, or a test ended its process.
        bail!("`{shown}` failed ({status})");
    }
    Ok(reader.count)
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
            // It runs once, for a second: to optimise it takes far longer, and nobody debugs it.
            let mut install = cargo(["install", "--quiet", "--debug", "--locked", "cargo-deny", "--version", DENY]);
            install.env("CARGO_PROFILE_DEV_DEBUG", "0");
            util::run(install.arg("--root").arg(&tools))?;
        }
    }
    let mut check = Command::new(program);
    check.current_dir(root()).args(["--log-level", "error", "check", "licenses", "bans", "sources"]);
    one(check)
}
