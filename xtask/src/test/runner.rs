//! Runs programs of tests: several at once, as most tests wait for something most of their time.
//! `cargo test` runs one after the other.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::NamedTempFile;

use super::chosen::Chosen;
use super::count::{Count, Failure};
use super::cut::{self, Cut};
use super::executables::{self, Program};
use super::limit;
use super::reader::Reader;
use super::reruns::{self, Attempt};
use super::times::Spent;
use crate::util;

/// How often the rest of a program's tests is run after the program was cut off: further ones that
/// hang would eat the time of the run.
const CONTINUATIONS: usize = 1;

/// How many tests run at once for each processor. A program that runs its tests in one process runs
/// as many of them at once.
const AT_ONCE: usize = 2;
/// What stands in place of a test's name where a program failed and none of its tests did.
const IN_NO_TEST: &str = "no test";

/// What is run.
pub(super) struct Wanted<'a> {
    /// The workspace, all of whose test programs are built: for fewer packages the dependencies
    /// would have other features, and be compiled twice.
    pub(super) workspace: &'a Path,
    /// What compiles the workspace's crates, if it is not rustc itself.
    pub(super) compiler: Option<&'a Path>,
    /// Packages whose tests are run, by their folders.
    pub(super) packages: fn(&Path) -> bool,
    pub(super) env: &'a [(&'a str, &'a str)],
    /// How long no test of a process may end: a test that takes longer hangs. A test that is run
    /// again alone has as much for itself.
    pub(super) limit: Duration,
}

/// What tests came to and took.
#[derive(Default)]
pub(super) struct Found {
    pub(super) count: Count,
    pub(super) spent: Vec<Spent>,
}

impl From<Count> for Found {
    fn from(count: Count) -> Found {
        Found { count, spent: Vec::new() }
    }
}

/// What one process is for.
enum Job<'a> {
    Whole(&'a Program),
    /// The tests of a module beside which no others may run.
    Module(&'a Program, String, Vec<String>),
    One(&'a Program, String),
}

/// Builds test programs and runs them. Tests that fail are run again, alone, when all others have
/// ended.
pub(super) fn run(wanted: &Wanted<'_>) -> Result<Found> {
    let mut programs = executables::build(wanted.workspace, &["--workspace"], wanted.compiler)?;
    programs.retain(|program| (wanted.packages)(&program.package));
    if programs.is_empty() {
        bail!("there are no tests to run");
    }
    let jobs = programs.iter().flat_map(|program| Job::of(program, wanted.env));
    let (alone, mut together): (Vec<_>, Vec<_>) = jobs.partition(Job::is_alone);
    // A process of many tests takes longest.
    together.sort_by_key(|job| std::cmp::Reverse(job.slots()));

    let found = Mutex::new(Found::default());
    let slots = Slots::new(AT_ONCE * util::processors());
    let one = |job: &Job<'_>| {
        let of_job = slots.with(job.slots(), || job.run(wanted))?;
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.count = std::mem::take(&mut found.count).and(of_job.count);
        found.spent.extend(of_job.spent);
        Ok(())
    };
    let together = util::for_each(&together, AT_ONCE * util::processors(), one);
    let one_by_one = util::for_each(&alone, 1, one);
    together.and(one_by_one)?;
    let Found { count, spent } = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let count = reruns::judge(count, |failure| Attempt::of(run_again(&programs, failure, wanted)));
    Ok(Found { count, spent })
}

/// Runs, in one process for each of these programs, the tests whose names contain a text. A test
/// that fails is not run again.
pub(crate) fn run_named(
    programs: &[Program],
    named: &str,
    env: &[(&str, &str)],
    limit: Duration,
) -> Result<Count> {
    let mut count = Count::default();
    for program in programs {
        let mut tests = cut::list(&program.executable, &program.folder, env);
        tests.retain(|test| test.contains(named));
        if tests.is_empty() {
            continue;
        }
        // Of a program, the workspace, its compiler and the packages say nothing.
        let (workspace, compiler): (&Path, _) = (&program.folder, None);
        let wanted = Wanted { workspace, compiler, packages: |_| true, env, limit };
        count = count.and(execute(program, &Chosen::These(tests), &wanted)?.count);
    }
    Ok(count)
}

fn run_again(
    programs: &[Program],
    failure: &Failure,
    wanted: &Wanted<'_>,
) -> Result<(Count, String)> {
    let of_it = programs.iter().find(|program| program.place() == failure.place);
    let program = of_it.context("its program is not known")?;
    let whole = failure.test == IN_NO_TEST;
    let chosen = if whole { Chosen::All } else { Chosen::One(&failure.test) };
    let Execution { count, said, .. } = execute(program, &chosen, wanted)?;
    Ok((count, said))
}

impl<'a> Job<'a> {
    fn of(program: &'a Program, env: &[(&str, &str)]) -> Vec<Job<'a>> {
        let tests =
            program.is_split().then(|| cut::list(&program.executable, &program.folder, env));
        let Some(tests) = tests.filter(|tests| !tests.is_empty()) else {
            // One that cannot say which tests it has shows why when it is run.
            return vec![Job::Whole(program)];
        };
        let mut modules = BTreeMap::<String, Vec<String>>::new();
        let mut jobs = Vec::new();
        for test in tests {
            match executables::module_alone(&test) {
                Some(module) => modules.entry(module.to_owned()).or_default().push(test),
                None => jobs.push(Job::One(program, test)),
            }
        }
        jobs.extend(modules.into_iter().map(|(name, tests)| Job::Module(program, name, tests)));
        jobs
    }

    /// Whether no other job may run beside it.
    fn is_alone(&self) -> bool {
        match self {
            Job::Whole(program) => program.is_alone(),
            Job::Module(..) => true,
            Job::One(..) => false,
        }
    }

    fn slots(&self) -> usize {
        match self {
            Job::Whole(_) | Job::Module(..) => AT_ONCE,
            Job::One(..) => 1,
        }
    }

    fn run(&self, wanted: &Wanted<'_>) -> Result<Found> {
        match self {
            Job::Whole(program) => run_whole(program, &program.place(), Chosen::All, wanted),
            Job::Module(program, name, tests) => {
                let name = format!("{name}, in {}", program.place());
                run_whole(program, &name, Chosen::These(tests.clone()), wanted)
            }
            Job::One(program, test) => run_one(program, test, wanted),
        }
    }
}

/// Runs tests of a program in one process, and on in another if that is cut off, until each has an
/// outcome, and shows what it said. `name` is what they are called where it is told what they took.
fn run_whole(
    program: &Program,
    name: &str,
    mut chosen: Chosen<'_>,
    wanted: &Wanted<'_>,
) -> Result<Found> {
    let mut found = Found::default();
    for _ in 0..=CONTINUATIONS {
        let Execution { count, said, taken, used, cut } = execute(program, &chosen, wanted)?;
        // At once, so that lines of several programs do not mix.
        eprint!("{said}");
        found.count = found.count.and(count);
        found.spent.push(Spent { name: name.to_owned(), taken, used });
        match cut {
            Some(cut) if !cut.rest.is_empty() => chosen = Chosen::These(cut.rest),
            _ => return Ok(found),
        }
    }
    if let Chosen::These(left) = chosen {
        let why = "it was not run: its program was cut off before";
        let failures = left.iter().map(|test| Failure::new(test, &program.place(), why));
        found.count.failed.extend(failures);
    }
    Ok(found)
}

/// Runs a test in a process of its own. What it said is shown if it failed.
fn run_one(program: &Program, test: &str, wanted: &Wanted<'_>) -> Result<Found> {
    let chosen = Chosen::One(test);
    let Execution { count, said, taken, used, .. } = execute(program, &chosen, wanted)?;
    let name = format!("{test}, in {}", program.place());
    let seconds = taken.as_secs_f64();
    if count.failed.is_empty() {
        let outcome = if count.passed == 0 { "skipped" } else { "ok" };
        eprintln!("test {name} ... {outcome} ({seconds:.1} s)");
    } else {
        eprintln!("{said}test {name} ... FAILED ({seconds:.1} s)");
    }
    Ok(Found { count, spent: vec![Spent { name, taken, used }] })
}

/// What came of a process that ran tests.
struct Execution {
    count: Count,
    /// What it said, below a heading like cargo's.
    said: String,
    taken: Duration,
    used: Duration,
    /// Whether it ended before all its tests did.
    cut: Option<Cut>,
}

/// Runs some tests of a program in a process. It writes into a file: what a failed test leaves
/// running would keep a pipe open.
fn execute(program: &Program, chosen: &Chosen<'_>, wanted: &Wanted<'_>) -> Result<Execution> {
    let Program { executable, folder, .. } = program;
    let all = || cut::list(executable, folder, wanted.env);
    let file = NamedTempFile::new().context("cannot create a file for what tests say")?;
    // One description for both, so that what goes to the one does not lie over the other.
    let writer = file.reopen().context("cannot open a file again")?;
    let mut command = Command::new(executable);
    command.current_dir(folder).args(chosen.arguments(all));
    command.envs(wanted.env.iter().copied()).stdin(Stdio::null());
    command.stdout(writer.try_clone().context("cannot use a file twice")?).stderr(writer);
    let started = Instant::now();
    let child = command.spawn();
    let mut child = child.with_context(|| format!("cannot start {}", executable.display()))?;
    let limit::End { status, used, hung } = limit::wait(wanted.limit, &mut child, file.path())?;
    let taken = started.elapsed();
    let said = fs::read(file.path()).context("cannot read what tests said")?;
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
    let mut count = reader.count;
    if (!status.success() || cut.is_some()) && count.failed.is_empty() {
        let why = format!("the program ended ({status})\n{said}");
        count.failed.push(Failure::new(IN_NO_TEST, &place, why));
    }
    if let (Chosen::One(test), true) = (chosen, count == Count::default()) {
        let why = format!("the program did not run it\n{said}");
        count.failed.push(Failure::new(*test, &place, why));
    }
    Ok(Execution { count, said, taken, used, cut })
}

/// Places for tests that run at once.
struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    fn new(count: usize) -> Slots {
        Slots { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Does some work in so many slots, when they are free.
    fn with<T>(&self, count: usize, work: impl FnOnce() -> T) -> T {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.freed.wait_while(free, |free| *free < count);
        *free.unwrap_or_else(PoisonError::into_inner) -= count;
        let done = work();
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += count;
        self.freed.notify_all();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_runs_at_once_than_there_are_slots() {
        let slots = Slots::new(4);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let weights = [2, 1, 1, 2, 2, 1, 1, 1, 2];
        util::for_each(&weights, 4, |weight| {
            slots.with(*weight, || {
                let now = running.fetch_add(*weight, Ordering::SeqCst) + weight;
                most.fetch_max(now, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(*weight, Ordering::SeqCst);
            });
            Ok(())
        })
        .unwrap();
        assert!(most.into_inner() <= 4);
        assert_eq!(*slots.free.lock().unwrap(), 4);
    }
}
