//! `cargo xtask test`: sets up all that is needed and runs every check and test.

mod beside;
mod count;
mod cut;
mod dependencies;
mod executables;
mod limit;
mod reruns;
mod summary;
mod times;
mod unsteady;

use crate::programs;
use crate::stage::{Dist, Profile};
use crate::util::{self, root};
use anyhow::{Context, Result, bail};
use beside::Beside;
pub(crate) use count::{Count, Failure, padded_failures};
use executables::Wanted;
pub(crate) use executables::built;
pub(crate) use reruns::{Attempt, judge};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use times::{File, Reader};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the end-to-end tests on this device.
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "nvidia"])]
    driver: String,
    /// Seconds for each fuzz target; 0 leaves them out.
    #[arg(long, default_value_t = 10)]
    fuzz_seconds: u64,
    /// Seconds after which a program of tests hangs, if none of its tests ends.
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Only the steps whose names contain this.
    #[arg(long)]
    only: Option<String>,
    /// For a run that another one has started beside itself: where to say what came of it.
    #[arg(long, hide = true, requires = "only")]
    report: Option<PathBuf>,
    /// Run the tests of another workspace instead.
    #[arg(long, hide = true, value_name = "FOLDER")]
    workspace: Option<PathBuf>,
    /// Take only the processor time that others leave.
    #[arg(long, hide = true)]
    yielding: bool,
}

impl Args {
    fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }
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
    step_of("dependencies", |_, _| dependencies::check()),
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
    step_of("unit tests", |args, files| {
        let rest = tests(
            &Wanted {
                workspace: &root(),
                packages: |package| package != Path::new(END_TO_END),
                env: &[],
                limit: args.limit(),
            },
            files,
        )?;
        Ok(rest.and(examples(files)?))
    }),
    step_of("installation", |_, _| Dist::build(Profile::Tests).map(|_| Count::ONE)),
    step_of("end to end", |args, files| {
        tests(
            &Wanted {
                workspace: &root(),
                packages: |package| package == Path::new(END_TO_END),
                env: &[("OUTBOARD_TEST_DRIVER", &args.driver)],
                limit: args.limit(),
            },
            files,
        )
    }),
    step_of("slurm", |_, _| crate::slurm::tests()),
    step_of("python", |_, _| crate::python::tests()),
    step_of("kubernetes", |_, _| crate::kubernetes::quick()),
    step_of("wheel", |_, _| {
        Ok(reruns::judge_whole("wheel", || crate::wheel::attempt().map(|()| Count::ONE)))
    }),
    step_of("counts", |_, _| {
        Ok(reruns::judge_whole("counts", || crate::counts::check().map(Count::passed)))
    }),
    // An input that breaks a target once is a fault.
    step_of("fuzzing", |args, _| crate::fuzz::all(args.fuzz_seconds).map(Count::passed)),
];

/// Whatever tests [`Args::workspace`] has.
const OTHER_WORKSPACE: Step = step_of("tests", |args, files| {
    let workspace = args.workspace.as_deref().context("no other workspace is named")?;
    tests(&Wanted { workspace, packages: |_| true, env: &[], limit: args.limit() }, files)
});

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
    let mut rows = match (&args.workspace, &args.only) {
        (Some(_), _) => vec![take(&OTHER_WORKSPACE, args, &files, || Duration::ZERO)],
        (None, Some(only)) => {
            let wanted = |step: &&Step| step.name.contains(only.as_str());
            BESIDE
                .iter()
                .chain(&STEPS)
                .filter(wanted)
                .map(|step| take(step, args, &files, || Duration::ZERO))
                .collect()
        }
        (None, None) => all(args, &files),
    };
    if let Some(report) = &args.report {
        return beside::report(report, &rows);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.taken));
    let files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary::tell(&rows, &files, started.elapsed(), &args.workspace.clone().unwrap_or_else(root))
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
        Err(error) => {
            let said = format!("{error:#}");
            (Count::failed(Failure::new(step.name, "", &said)), Some(said))
        }
    };
    if let Some(error) = &error {
        eprintln!("error: {error}");
    }
    Row { name: step.name.to_owned(), count, taken, used, error }
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

/// What the tests of some packages came to, and what each program of them took.
fn tests(wanted: &Wanted<'_>, files: &Mutex<Vec<File>>) -> Result<Count> {
    Ok(keep(executables::run(wanted)?, files))
}

/// The examples in comments.
fn examples(files: &Mutex<Vec<File>>) -> Result<Count> {
    let (reader, _) = documented(&[])?;
    Ok(judge(keep(reader, files), |failure| {
        let run = documented(&["--exact", &failure.test]);
        Attempt::of(run.map(|(reader, said)| (reader.count, said)))
    }))
}

/// Runs examples in comments; what the program of tests said is the second value.
fn documented(args: &[&str]) -> Result<(Reader, String)> {
    let mut cargo = cargo(["test", "--workspace", "--doc", "--no-fail-fast", "--quiet", "--"]);
    let output = cargo.args(args).stderr(Stdio::inherit()).output();
    let output = output.context("cannot start `cargo test --doc`")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    eprint!("{said}");
    let mut reader = Reader::default();
    reader.read_all(&said);
    if !output.status.success() && reader.count.failed.is_empty() {
        bail!("`cargo test --doc` failed ({})", output.status);
    }
    Ok((reader, said))
}

fn keep(reader: Reader, files: &Mutex<Vec<File>>) -> Count {
    files.lock().unwrap_or_else(PoisonError::into_inner).extend(reader.files);
    reader.count
}
