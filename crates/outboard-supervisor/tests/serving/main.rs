//! A supervisor, its workers and their clients, each a process of its own: this program plays all
//! the parts.

#![allow(clippy::print_stdout)]

mod copies;
mod cuts;
mod device;
mod parts;
mod peers;
mod proxy;
mod scenarios;
mod secure;
mod shared;
mod standing;
mod warm;

use std::fs;
use std::io::Write;
use std::num::NonZero;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use outboard_client::link::Choice;
use outboard_supervisor::warm::Bounds;
use tempfile::NamedTempFile;

/// How long a scenario may take, in which each wait has a shorter limit of its own.
const LIMIT: Duration = Duration::from_secs(240);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("worker") => parts::worker(args[1..] == ["dies"]),
        Some("supervisor") => {
            let warm =
                args.get(1).map_or(Bounds::fixed(0), |bounds| bounds.parse().expect("bounds"));
            let drain = args
                .get(2)
                .and_then(|seconds| seconds.parse().ok())
                .map_or(Duration::ZERO, Duration::from_secs);
            parts::supervisor(warm, args[1..].contains(&"dies".to_owned()), drain)
        }
        Some("tls-supervisor") => parts::tls_supervisor(args[1].clone().into()),
        // Asked by a supervisor that is to become this program again.
        Some("check") => {
            println!("{}", outboard_supervisor::INHERITS);
            ExitCode::SUCCESS
        }
        Some("client") => parts::client(&args[1], Choice::Tcp),
        Some("leaving-client") => parts::leaving_client(&args[1]),
        Some("shm-client") => parts::client(&args[1], Choice::Shm),
        Some("scenario") => scenario(&args[1]),
        _ => run(),
    }
}

/// A process of its own for each scenario, as they set what holds for a whole process.
fn run() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of their time they wait for time to pass.
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    arguments.test_threads.get_or_insert(4 * processors);
    let trial = |(name, _): &(&'static str, fn())| Trial::test(*name, || in_process(name));
    libtest_mimic::run(&arguments, all().map(trial).collect()).exit_code()
}

fn all() -> impl Iterator<Item = &'static (&'static str, fn())> {
    let parts = [
        scenarios::ALL,
        copies::ALL,
        warm::ALL,
        shared::ALL,
        secure::ALL,
        standing::ALL,
        cuts::ALL,
        peers::ALL,
    ];
    parts.into_iter().flatten()
}

/// Has a process of this program act a scenario. What it says goes into a file: a worker that it
/// leaves behind would keep a pipe open.
fn in_process(name: &str) -> Result<(), Failed> {
    let file = NamedTempFile::new()?;
    let said = file.reopen()?;
    let mut process = Command::new(std::env::current_exe()?);
    process.args(["scenario", name]).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    let mut process = process.spawn()?;
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match process.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                process.kill()?;
                break process.wait()?;
            }
            None => std::thread::sleep(LOOK),
        }
    };
    let said = String::from_utf8_lossy(&fs::read(file.path())?).into_owned();
    if Instant::now() > deadline {
        Err(format!("it did not end within {LIMIT:?}\n{said}").into())
    } else if status.success() {
        for line in said.lines().filter(|line| line.starts_with("skipped ")) {
            writeln!(std::io::stderr(), "\n{line}")?;
        }
        Ok(())
    } else {
        Err(format!("{status}\n{said}").into())
    }
}

fn scenario(name: &str) -> ExitCode {
    let (_, act) = all().find(|(one, _)| *one == name).expect("there is such a scenario");
    act();
    ExitCode::SUCCESS
}
