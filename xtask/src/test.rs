//! `cargo xtask test`: sets up all that is needed and runs every check and test.

mod beside;
mod chosen;
mod count;
mod cut;
mod dependencies;
mod executables;
mod limit;
mod load;
mod reader;
mod reruns;
mod runner;
mod skips;
mod summary;
mod times;
mod unsteady;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::stage::{Dist, Profile};
use crate::util::{self, root};
use crate::{lints, programs};
use beside::Beside;
pub(crate) use count::{Count, Failure, padded_failures};
pub(crate) use executables::{Program, build, built};
use load::Load;
use reader::Reader;
pub(crate) use reruns::{Attempt, judge};
pub(crate) use runner::run_named;
use runner::{Found, Wanted};
use times::{Outlook, Spent, Times};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the end-to-end tests on this device.
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "nvidia"])]
    driver: String,
    /// Only the end-to-end tests, beside a busy loop on every processor.
    #[arg(long, conflicts_with = "only")]
    loaded: bool,
    /// A test that is skipped although this machine has what it needs has failed.
    #[arg(long)]
    no_needless_skips: bool,
    /// Show where the time of the last run went.
    #[arg(long)]
    times: bool,
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
    /// What tests of it took.
    tests: Vec<Spent>,
}

/// A part of the run.
struct Step {
    name: &'static str,
    action: fn(&Args) -> Result<Found>,
}

const fn step_of(name: &'static str, action: fn(&Args) -> Result<Found>) -> Step {
    Step { name, action }
}

/// What only builds or fetches, and apart from what the other steps build. It takes what processors
/// have left, so that tests which wait leave nothing idle.
const BESIDE: [Step; 9] = [
    step_of("etcd", |_| Ok(crate::etcd::attempt().into())),
    step_of("promtool", |_| Ok(crate::debian::attempt_program("promtool", "prometheus").into())),
    step_of("rdma headers", |_| Ok(crate::rdma::attempt().into())),
    step_of("test programs", |_| done(programs::ensure())),
    step_of("mpi", |_| Ok(crate::mpi::attempt()?.into())),
    step_of("ssh", |_| Ok(crate::ssh::attempt()?.into())),
    step_of("debian programs", |_| Ok(crate::debian_programs::attempt().into())),
    step_of("dependencies", |_| Ok(dependencies::check()?.into())),
    step_of("kubernetes build", |_| Ok(crate::kubernetes::build()?.into())),
];

const STEPS: [Step; 12] = [
    step_of("format", |_| one(cargo(["fmt", "--all", "--check"]))),
    // All that later steps use is built.
    step_of("lints", |_| {
        let tests = executables::build(&root(), &["--workspace"], Some(&lints::compiler()));
        done(Dist::build(Profile::Tests).and(tests))
    }),
    step_of("generated code", |_| one(xtask(["codegen", "--check"]))),
    step_of("unit tests", |args| {
        let Found { count, spent } = runner::run(&Wanted {
            workspace: &root(),
            compiler: Some(&lints::compiler()),
            packages: |package| package != Path::new(END_TO_END),
            env: &[],
            limit: args.limit(),
        })?;
        Ok(Found { count: count.and(examples()?), spent })
    }),
    step_of("installation", |_| done(Dist::build(Profile::Tests))),
    step_of("end to end", |args| {
        runner::run(&Wanted {
            workspace: &root(),
            compiler: Some(&lints::compiler()),
            packages: |package| package == Path::new(END_TO_END),
            env: &[("OUTBOARD_TEST_DRIVER", &args.driver)],
            limit: args.limit(),
        })
    }),
    step_of("slurm", |_| Ok(crate::slurm::tests()?.into())),
    step_of("python", |_| Ok(crate::python::tests()?.into())),
    step_of("kubernetes", |_| Ok(crate::kubernetes::quick()?.into())),
    step_of("wheel", |_| {
        let attempt = || crate::wheel::attempt().map(|()| Count::ONE);
        Ok(reruns::judge_whole("wheel", attempt).into())
    }),
    step_of("counts", |_| {
        let check = || crate::counts::check(Profile::Tests).map(Count::passed);
        Ok(reruns::judge_whole("counts", check).into())
    }),
    // An input that breaks a target once is a fault.
    step_of("fuzzing", |args| Ok(Count::passed(crate::fuzz::all(args.fuzz_seconds)?).into())),
];

/// Whatever tests [`Args::workspace`] has.
const OTHER_WORKSPACE: Step = step_of("tests", |args| {
    let workspace = args.workspace.as_deref().context("no other workspace is named")?;
    let limit = args.limit();
    runner::run(&Wanted { workspace, compiler: None, packages: |_| true, env: &[], limit })
});

/// The folder of the end-to-end tests.
const END_TO_END: &str = "tests/e2e";

/// The step of [`STEPS`] that leaves the processors idle for most of its time: those after it run
/// beside it.
const IDLE: &str = "slurm";

/// What a step of [`STEPS`] waits for.
const NEEDS: [(&str, &str); 12] = [
    ("unit tests", "etcd"),
    ("unit tests", "promtool"),
    ("unit tests", "rdma headers"),
    ("end to end", "etcd"),
    ("end to end", "test programs"),
    ("end to end", "mpi"),
    ("end to end", "ssh"),
    ("end to end", "debian programs"),
    ("slurm", "test programs"),
    ("kubernetes", "test programs"),
    ("kubernetes", "kubernetes build"),
    // Nothing may run beside it.
    ("counts", IDLE),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.yielding {
        beside::yield_to_others();
    }
    if args.times {
        return util::print(&Times::read(&Times::of_last_run())?.tables());
    }
    let started = Instant::now();
    let mut rows = match (&args.workspace, &args.only) {
        (Some(_), _) => vec![take(&OTHER_WORKSPACE, args, || Duration::ZERO)],
        (None, Some(only)) => some(args, |name| name.contains(only.as_str())),
        (None, None) if args.loaded => loaded(args),
        (None, None) => all(args),
    };
    if let Some(report) = &args.report {
        return beside::report(report, &rows);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.taken));
    if args.workspace.is_none() && args.only.is_none() && !args.loaded {
        times_of(&rows).keep(&Times::of_last_run())?;
    }
    let workspace = args.workspace.clone().unwrap_or_else(root);
    summary::tell(&rows, started.elapsed(), &workspace, args.no_needless_skips)
}

/// What steps and their tests took.
fn times_of(rows: &[Row]) -> Times {
    let step = |row: &Row| Spent { name: row.name.clone(), taken: row.taken, used: row.used };
    let tests = rows.iter().flat_map(|row| row.tests.iter().cloned()).collect();
    Times { steps: rows.iter().map(step).collect(), tests }
}

/// Some steps by their names, one after the other.
fn some(args: &Args, wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    let steps = BESIDE.iter().chain(&STEPS).filter(|step| wanted(step.name));
    steps.map(|step| take(step, args, || Duration::ZERO)).collect()
}

/// The end-to-end tests beside busy loops, after what they need.
fn loaded(args: &Args) -> Vec<Row> {
    const STEP: &str = "end to end";
    let is_needed = |name: &str| name == "installation" || NEEDS.contains(&(STEP, name));
    let mut rows = some(args, is_needed);
    let _load = Load::start();
    rows.extend(some(args, |name| name == STEP));
    rows
}

/// All steps, those of [`BESIDE`] beside the others.
fn all(args: &Args) -> Vec<Row> {
    let beside = Beside::default();
    let mut outlook = Outlook::read();
    let mut rows = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The first three are waited for soonest, and take seconds. Of the others, the last
            // parts of each keep only one processor busy.
            let (first, rest) = BESIDE.split_at(3);
            for (steps, jobs) in [(first, 1), (rest, util::processors())] {
                let _ = util::for_each(steps, jobs, |step| {
                    beside.run(step.name, &["--yielding"]);
                    Ok(())
                });
            }
        });
        let mut rows = Vec::new();
        for (at, step) in STEPS.iter().enumerate() {
            NEEDS
                .iter()
                .filter(|(name, _)| *name == step.name)
                .for_each(|(_, needed)| beside.wait_for(needed));
            if step.name == IDLE {
                scope.spawn(|| beside.run(IDLE, &[]));
            } else {
                let left = STEPS[at..].iter().map(|step| step.name).filter(|name| *name != IDLE);
                if let Some(left) = outlook.left(left) {
                    util::step(&format!("about {} left", times::spoken(left)));
                }
                rows.push(take(step, args, || beside.used()));
                outlook.end(step.name);
            }
        }
        rows
    });
    rows.extend(beside.take_rows());
    rows
}

/// Runs a step. `others` says how much processor time the steps beside it that have ended took: it
/// counts among this process's.
fn take(step: &Step, args: &Args, others: impl Fn() -> Duration) -> Row {
    util::step(step.name);
    let own = || times::processor_time().saturating_sub(others());
    let (started, used) = (Instant::now(), own());
    let result = (step.action)(args);
    let (taken, used) = (started.elapsed(), own().saturating_sub(used));
    let (Found { count, spent }, error) = match result {
        Ok(found) => (found, None),
        Err(error) => {
            let said = format!("{error:#}");
            (Count::failed(Failure::new(step.name, "", &said)).into(), Some(said))
        }
    };
    if let Some(error) = &error {
        eprintln!("error: {error}");
    }
    Row { name: step.name.to_owned(), count, taken, used, error, tests: spent }
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

/// A step that passes or fails as a whole.
fn done<T>(result: Result<T>) -> Result<Found> {
    result.map(|_| Count::ONE.into())
}

/// The same of a command.
fn one(mut command: Command) -> Result<Found> {
    done(util::run(&mut command))
}

/// The examples in comments.
fn examples() -> Result<Count> {
    let (count, _) = documented(&[])?;
    Ok(judge(count, |failure| Attempt::of(documented(&["--exact", &failure.test]))))
}

/// Runs examples in comments; what the programs of tests said is the second value.
fn documented(args: &[&str]) -> Result<(Count, String)> {
    let mut cargo = lints::cargo();
    cargo.args(["test", "--workspace", "--doc", "--no-fail-fast", "--quiet", "--"]);
    let output = cargo.args(args).stderr(Stdio::inherit()).output();
    let output = output.context("cannot start `cargo test --doc`")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    eprint!("{said}");
    let mut reader = Reader::default();
    reader.read_all(&said);
    if !output.status.success() && reader.count.failed.is_empty() {
        bail!("`cargo test --doc` failed ({})", output.status);
    }
    Ok((reader.count, said))
}
