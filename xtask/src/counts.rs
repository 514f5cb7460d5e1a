//! `cargo xtask counts`: how many instructions the hot paths take, counted by valgrind's callgrind,
//! which counts the same on a busy machine as on an idle one. More than a twentieth above what
//! `tests/counts.toml` says is an error; `--update` writes the build's part of that file anew, on
//! purpose.
//!
//! Counted is what calls cost the program's thread in the client library: questions that it answers
//! itself, and commands that it encodes and queues; and what a worker does for a command: decoding,
//! looking up and checking, up to a driver that does nothing. The test command counts the build
//! that its other tests use.

mod callgrind;

use crate::server::listening;
use crate::stage::{Dist, Profile};
use crate::util::{self, root, step, target_dir};
use anyhow::{Context, Result, bail};
use callgrind::Costs;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the counts to tests/counts.toml instead of comparing them.
    #[arg(long)]
    update: bool,
    /// Count the build of the tests instead of the release build.
    #[arg(long)]
    tests: bool,
}

/// Calls of each function in a short and in a long session: what counts is how much more the long
/// one takes.
const CALLS: [u64; 2] = [1000, 5000];
/// A server must listen after this time.
const STARTUP: Duration = Duration::from_secs(60);
/// How much more than the checked-in count is too much.
const TOLERANCE: f64 = 1.05;
/// So often is counted what seems too much. A call that has to wake the sender's thread, or finds
/// its buffer taken, takes more, and how many do depends on when the threads run; what is counted
/// is the least.
const ATTEMPTS: usize = 12;

/// Calls that the client answers by itself.
const LOCAL: [&str; 11] = [
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxPushCurrent_v2",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxGetState",
    "cuFuncGetAttribute",
    "cuKernelGetAttribute",
    "cuStreamIsCapturing",
    "cuStreamGetCaptureInfo_v2",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuPointerGetAttributes",
];
/// Calls that are posted; counted in a program that has two servers, too.
const POSTED: [&str; 4] =
    ["cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuMemsetD32Async"];
/// Commands that a worker carries out, and the function that does.
const COMMANDS: [&str; 6] =
    ["Launch", "EventRecord", "StreamWaitEvent", "Fill", "CopyIn", "StreamSynchronize"];
const TAKE: &str = "outboard_worker::counted::Counted::take";
/// Before the names of calls in a program that has two servers and uses one.
const OF_TWO: &str = "two servers: ";
/// What `call_cost` calls some of them.
const CASES: [(&str, &str); 1] = [("cuCtxPushCurrent_v2", "cuCtxPushCurrent")];

/// Instructions for one call of each path, by name.
type Counts = BTreeMap<String, f64>;

/// The counts of builds, by the folder in which cargo puts a build.
type Table = BTreeMap<String, Counts>;

pub(crate) fn run(args: &Args) -> Result<()> {
    let profile = if args.tests { Profile::Tests } else { Profile::Release };
    if !args.update {
        return check(profile).map(drop);
    }
    prepare(profile)?;
    let mut counts = count(profile)?;
    for _ in 1..ATTEMPTS {
        counts = least(&counts, &count(profile)?);
    }
    let mut table = kept()?;
    table.insert(profile.names().1.to_owned(), counts);
    let mut text = String::from(
        "# Instructions of one call, by `cargo xtask counts --update` and, of the build of the tests,\n\
         # `cargo xtask counts --tests --update`. See docs/decisions/0017-profile.md.\n",
    );
    for (build, counts) in &table {
        text += &format!("\n[{build}]\n");
        counts.iter().for_each(|(name, count)| text += &format!("\"{name}\" = {count:.0}\n"));
    }
    fs::write(file(), text).context("cannot write tests/counts.toml")
}

fn file() -> PathBuf {
    root().join("tests/counts.toml")
}

/// What is checked in.
fn kept() -> Result<Table> {
    let text = fs::read_to_string(file()).context("cannot read tests/counts.toml")?;
    toml::from_str(&text).context("cannot understand tests/counts.toml")
}

/// Compares a build's counts with those that are checked in; how many were right.
pub(crate) fn check(profile: Profile) -> Result<u64> {
    let build = profile.names().1;
    let wanted = kept()?.remove(build).unwrap_or_default();
    prepare(profile)?;
    let mut found = count(profile)?;
    let is_too_much = |(name, found): (&String, &f64)| {
        wanted.get(name).is_some_and(|wanted| *found > wanted * TOLERANCE)
    };
    for _ in 1..ATTEMPTS {
        if !found.iter().any(is_too_much) {
            break;
        }
        found = least(&found, &count(profile)?);
    }
    let (mut wrong, mut better) = (Vec::new(), 0);
    eprintln!("{:<56} {:>8} {:>8} {:>7}", "instructions of one call", "wanted", "found", "");
    for (name, found) in &found {
        let Some(wanted) = wanted.get(name) else {
            wrong.push(format!("{name} is not in tests/counts.toml"));
            continue;
        };
        eprintln!(
            "{name:<56} {wanted:>8.0} {found:>8.0} {:>+6.1}%",
            100.0 * (found / wanted - 1.0)
        );
        if *found > wanted * TOLERANCE {
            wrong.push(format!(
                "{name} takes {found:.0} instructions, more than 5 % above {wanted:.0}"
            ));
        }
        better += u64::from(*found < wanted / TOLERANCE);
    }
    wrong.extend(
        wanted
            .keys()
            .filter(|name| !found.contains_key(*name))
            .map(|name| format!("{name} was not counted")),
    );
    if better > 0 {
        step(&format!(
            "{better} paths have become shorter: `cargo xtask counts --update` keeps it so"
        ));
    }
    if !wrong.is_empty() {
        bail!(
            "{}\nif that is meant, `cargo xtask counts --update` and say why in the commit",
            wrong.join("\n")
        );
    }
    Ok(found.len() as u64)
}

/// Of two counts of the same, the smaller for each path.
fn least(one: &Counts, other: &Counts) -> Counts {
    let smaller = |(name, count): (&String, &f64)| {
        (name.clone(), other.get(name).map_or(*count, |other| count.min(*other)))
    };
    one.iter().map(smaller).collect()
}

/// Builds what is counted, and a server for it.
fn prepare(profile: Profile) -> Result<()> {
    ensure_valgrind()?;
    Dist::build(Profile::Tests)?;
    if matches!(profile, Profile::Release) {
        // At once: the last part of each, which makes one of all its crates, keeps only one
        // processor busy.
        let mut cargo = util::cargo();
        cargo.current_dir(root()).args(["build", "--quiet", "--release", "--lib"]);
        for package in ["outboard-libcuda", "outboard-driver", "outboard-worker"] {
            cargo.args(["--package", package]);
        }
        util::run(cargo.args(["--example", "call_cost", "--example", "dispatch_cost"]))?;
    }
    let client = target_dir().join("counts/client");
    let _ = fs::remove_dir_all(target_dir().join("counts"));
    fs::create_dir_all(&client).context("cannot make a folder")?;
    let library = built(profile).join("libcuda.so");
    fs::copy(&library, client.join("libcuda.so.1"))
        .with_context(|| format!("cannot copy {}", library.display()))?;
    Ok(())
}

/// Where a build is.
fn built(profile: Profile) -> PathBuf {
    target_dir().join(profile.names().1)
}

fn count(profile: Profile) -> Result<Counts> {
    let programs = built(profile).join("examples");
    let dir = target_dir().join("counts");
    step("counting instructions");
    let mut counts = Counts::new();
    let all: Vec<&str> = LOCAL.iter().chain(&POSTED).copied().collect();
    for (servers, names, prefix) in [(1, &all[..], ""), (2, &POSTED, OF_TWO)] {
        let cases = names.iter().map(|name| {
            CASES.iter().find(|(function, _)| function == name).map_or(*name, |(_, case)| case)
        });
        let cases = cases.collect::<Vec<_>>().join(",");
        let [few, many] = CALLS.map(|calls| session(&programs, &dir, servers, &cases, calls));
        let (few, many) = (few?, many?);
        for name in names {
            let (few, many) = (few.of(name)?, many.of(name)?);
            // Some functions are called by several cases.
            let (calls, total) =
                (many.calls.saturating_sub(few.calls), many.total.saturating_sub(few.total));
            counts.insert(format!("{prefix}{name}"), total as f64 / calls.max(1) as f64);
        }
    }
    for command in COMMANDS {
        let [few, many] = CALLS.map(|count| commands(&programs, &dir, command, count));
        let (few, many) = (few?, many?);
        counts.insert(
            format!("worker: {command}"),
            many.saturating_sub(few) as f64 / (CALLS[1] - CALLS[0]) as f64,
        );
    }
    Ok(counts)
}

/// The instructions that a worker takes for so many commands, and for a few before them.
fn commands(programs: &Path, dir: &Path, command: &str, count: u64) -> Result<u64> {
    let file = dir.join(format!("{command}.{count}"));
    let mut worker = callgrind::command(&file);
    worker.arg(programs.join("dispatch_cost")).args([command, &count.to_string()]);
    util::run(&mut worker)?;
    Ok(Costs::read(&file)?.of(TAKE)?.total)
}

/// Makes the calls of some cases on the first of some servers, counted.
fn session(programs: &Path, dir: &Path, servers: usize, cases: &str, calls: u64) -> Result<Costs> {
    let servers = (0..servers).map(|_| Serving::start()).collect::<Result<Vec<_>>>()?;
    let list: Vec<&str> = servers.iter().map(|server| server.address.as_str()).collect();
    let file = dir.join(format!("client.{}.{calls}", servers.len()));
    let mut client = callgrind::command(&file);
    client.arg(programs.join("call_cost")).args(["--count", cases, &calls.to_string()]);
    client.env("LD_LIBRARY_PATH", dir.join("client")).env("OUTBOARD_SERVER", list.join(","));
    // Who spins would be counted for it.
    client.env("OUTBOARD_TRANSPORT", "tcp").env("OUTBOARD_SPIN_US", "0").stderr(Stdio::null());
    util::run(&mut client)?;
    Costs::read(&file)
}

/// A server on the software device; it is stopped when this is dropped.
struct Serving {
    process: Child,
    address: String,
}

impl Serving {
    fn start() -> Result<Serving> {
        let mut serve = Command::new(Dist::laid_out()?.outboard());
        serve.args(["serve", "--driver", "cpu", "--listen", "127.0.0.1:0"]);
        serve.args(["--log-format", "json"]).env("OUTBOARD_CPU_MEMORY", "256M");
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let process = serve.spawn().context("cannot start `outboard serve`")?;
        let mut serving = Serving { process, address: String::new() };
        serving.address = listening(&mut serving.process)?
            .recv_timeout(STARTUP)
            .context("the server did not come up")?;
        Ok(serving)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.process.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// Installs valgrind if it is not there.
fn ensure_valgrind() -> Result<()> {
    let works = || {
        Command::new("valgrind")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
    };
    if works().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    util::install(&["valgrind"])
}
