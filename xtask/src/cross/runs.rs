//! What is run on systems of other kinds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::machines::{INSTALLED, Machine, PROGRAMS};
use super::page::{self, Row};
use super::targets::{Target, folder};
use super::tools;
use crate::compared::{self, Outcome};
use crate::programs::{self, Case, Platform};
use crate::server::Server;
use crate::stage::Dist;
use crate::toolchain::{self, Toolchain};
use crate::util::{said, step};

/// A run, by what the page calls the machine.
struct Run {
    name: &'static str,
    how: &'static str,
    run: fn(whole: bool) -> Result<String>,
}

const RUNS: [Run; 4] = [
    Run {
        name: "aarch64 client, x86-64 server",
        how: "emulated: QEMU's user mode, Debian 13's arm64 packages, NVIDIA's aarch64 runtimes",
        run: arm_client,
    },
    Run {
        name: "x86-64 client, aarch64 server",
        how: "the server emulated in the same way, with the software device",
        run: arm_server,
    },
    Run {
        name: "x86-64 with an old glibc",
        how: "Debian 11's files (glibc 2.31) as the root; older ones by their symbols alone",
        run: old_system,
    },
    Run {
        name: "x86-64 with musl, or no C library",
        how: "an empty root that has the command and nothing else",
        run: empty_system,
    },
];

/// Runs all, or those whose names contain `only`, and writes the page of all.
pub(crate) fn all(only: Option<&str>, whole: bool) -> Result<()> {
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for run in RUNS.iter().filter(|run| only.is_none_or(|only| run.name.contains(only))) {
        step(run.name);
        match (run.run)(whole) {
            Ok(came) => {
                step(&format!("{}: {came}", run.name));
                rows.push(Row { machine: run.name, how: run.how, came });
            }
            Err(error) => failed.push(format!("{}: {error:#}", run.name)),
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    if only.is_none() { page::write(&rows, ARM_EXCEPTIONS) } else { Ok(()) }
}

/// Programs that do not do the same on an emulated aarch64 client, and why.
const ARM_EXCEPTIONS: &[(&str, &str)] = &[];

/// Programs that an emulated client runs unless it is asked for the whole suite, of which some
/// programs wait for minutes there: some of every family of calls, by the driver's functions and by
/// runtimes of all releases.
const FOR_ARM_CLIENT: [&str; 34] = [
    "answers",
    "arrays",
    "atomics",
    "attributes",
    "batches",
    "burst",
    "contexts",
    "copies_2d_3d",
    "device_printf",
    "device_queries",
    "devices",
    "driver_api",
    "driver_memory",
    "driver_objects",
    "dynamic_shared",
    "errors",
    "fork",
    "graph_capture",
    "graph_explicit",
    "host_functions",
    "ipc",
    "libraries",
    "managed_memory",
    "mapped_memory",
    "memory_pools",
    "nvrtc",
    "registered_memory",
    "registered_shared_12",
    "registered_static_13_0",
    "separate_compilation",
    "streams_events",
    "textures",
    "vector_add_shared",
    "virtual_memory",
];

/// Programs that an emulated server runs: it compiles each kernel, and runs it, some ten times as
/// slowly.
const FOR_ARM_SERVER: [&str; 12] = [
    "vector_add",
    "saxpy",
    "reduction",
    "scan",
    "histogram",
    "memset_copy",
    "streams_events",
    "managed_memory",
    "mapped_memory",
    "atomics",
    "device_printf",
    "graph_explicit",
];

/// Of other releases: folder, wheels. NVIDIA has none of 12.0 for aarch64.
const ARM_WHEELS: [(&str, &[&str]); 4] = [
    ("12.4", &["nvidia-cuda-runtime-cu12==12.4.127"]),
    ("12.9", &["nvidia-cuda-runtime-cu12==12.9.79"]),
    ("13.0", &["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-nvrtc==13.0.88"]),
    ("13.5", &["nvidia-cuda-runtime==13.5.37"]),
];

/// The installation of a kind.
fn dist(name: &str) -> Result<Dist> {
    let dist = Dist { dir: Target::named(name).context("a kind of machines")?.dist() };
    if !dist.outboard().exists() {
        bail!("nothing is built for {name}; `cargo xtask cross {name}` does it");
    }
    Ok(dist)
}

fn arm() -> Result<Machine> {
    let machine = Machine::arm()?.with(&dist("aarch64")?.dir, INSTALLED);
    machine.check()?;
    Ok(machine)
}

/// The test programs for aarch64, and NVIDIA's runtimes for it.
fn arm_programs(whole: bool) -> Result<(PathBuf, Vec<Case>)> {
    let (runtimes, dir) = (folder().join("cuda-aarch64"), folder().join("programs-aarch64"));
    let toolchain = Toolchain::ensure()?;
    for (release, wheels) in ARM_WHEELS {
        let unpacked = runtimes.join(release);
        if !unpacked.exists() {
            step(&format!("installing CUDA {release}'s runtime for aarch64"));
            let new = runtimes.join(format!("{release}.new"));
            toolchain.unpack_arm_wheels(wheels, &new)?;
            fs::rename(&new, &unpacked).context("cannot name the runtime's folder")?;
        }
        let libraries = dir.join("lib").join(release);
        fs::create_dir_all(&libraries).context("cannot create a folder of programs")?;
        programs::copy_runtime(&toolchain::libraries(&unpacked, release), &libraries)?;
    }
    let platform = Platform {
        dir: dir.clone(),
        compiler: vec!["aarch64-linux-gnu-g++".into()],
        beside_nvcc: Some(tools::arm_compiler_beside_nvcc()?),
        runtimes: Some(runtimes),
    };
    let chosen = (!whole).then_some(&FOR_ARM_CLIENT[..]);
    Ok((dir, programs::for_platform(&platform, chosen)?))
}

fn server(dist: &Dist) -> Result<Server> {
    Server::local(dist, Some("cpu"))
}

/// A program as one runs it on another system, where the folder of programs is another one.
fn there(machine: &Machine, server: &Server, case: &Case, folder: &Path) -> Command {
    let seen = |path: &Path| match path.strip_prefix(folder) {
        Ok(rest) => format!("{PROGRAMS}/{}", rest.display()),
        Err(_) => path.display().to_string(),
    };
    let mut command = Command::new("timeout");
    command.args(["-k", "5", compared::LIMIT]);
    let inner = machine.command(&format!("{INSTALLED}/bin/outboard"));
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["run", "--server", &server.address, "--", &seen(&case.program)]).args(&case.args);
    if let Some(folder) = &case.libraries {
        command.env("LD_LIBRARY_PATH", seen(folder));
    }
    command
}

fn arm_client(whole: bool) -> Result<String> {
    let (dir, cases) = arm_programs(whole)?;
    let (dist, own) = (Dist::laid_out()?, compared::own()?);
    let (server, machine) = (server(&dist)?, arm()?.with(&dir, PROGRAMS));
    let outcome = compared::compare(
        &cases,
        |case| own.get(&case.name).map(|own| compared::here(&dist, &server, own)),
        |case| there(&machine, &server, case, &dir),
    )?;
    outcome.check(ARM_EXCEPTIONS)?;
    Ok(count(&outcome))
}

fn arm_server(_whole: bool) -> Result<String> {
    let (dist, own) = (Dist::laid_out()?, compared::own()?);
    let machine = arm()?;
    let command = machine.command(&format!("{INSTALLED}/bin/outboard"));
    let emulated = Server::start(command, &["--listen", "127.0.0.1:0"], Some("cpu"))?;
    let native = server(&dist)?;
    let cases: Vec<Case> =
        FOR_ARM_SERVER.iter().filter_map(|name| own.get(*name).cloned()).collect();
    let outcome = compared::compare(
        &cases,
        |case| Some(compared::here(&dist, &native, case)),
        |case| compared::here(&dist, &emulated, case),
    );
    emulated.end();
    let outcome = outcome?;
    outcome.check(&[])?;
    Ok(count(&outcome))
}

fn count(outcome: &Outcome) -> String {
    let all = outcome.same + outcome.different.len();
    format!("{} of {all} runs of test programs print the same as on x86-64", outcome.same)
}

/// Programs that are linked for glibc 2.17 as well.
const OLD_PROGRAMS: [&str; 3] = ["registered_static_12_9", "registered_static_13_0", "libraries"];

fn old_system(_whole: bool) -> Result<String> {
    let target = Target::named("x86_64").context("a kind of machines")?;
    let platform = Platform {
        dir: folder().join("programs-old"),
        compiler: tools::compiler(target),
        beside_nvcc: None,
        runtimes: None,
    };
    let cases = programs::for_platform(&platform, Some(&OLD_PROGRAMS))?;
    let (dist_here, dist_there) = (Dist::laid_out()?, dist("x86_64")?);
    let machine = Machine::old()?.with(&dist_there.dir, INSTALLED).with(&platform.dir, PROGRAMS);
    machine.check()?;
    let (server, own) = (server(&dist_here)?, compared::own()?);
    let outcome = compared::compare(
        &cases,
        |case| own.get(&case.name).map(|own| compared::here(&dist_here, &server, own)),
        |case| there(&machine, &server, case, &platform.dir),
    )?;
    outcome.check(&[])?;
    if outcome.same < OLD_PROGRAMS.len() {
        bail!("only {} programs were compared", outcome.same);
    }
    // The server and the software device are those of the old system, too.
    let mut alone = machine.command(&format!("{INSTALLED}/bin/outboard"));
    alone.args(["run", "--local-cpu", "--", &format!("{PROGRAMS}/{}", OLD_PROGRAMS[0])]);
    said(&mut alone)?;
    Ok(format!("{}, and one alone on the old system", count(&outcome)))
}

fn empty_system(_whole: bool) -> Result<String> {
    let machine = Machine::empty()?.with(&dist("x86_64-musl")?.dir, INSTALLED);
    let here = Dist::laid_out()?;
    let server = server(&here)?;
    let mut command = machine.command(&format!("{INSTALLED}/bin/outboard"));
    let shown = said(command.args(["devices", "--server", &server.address]))?;
    if !shown.contains("Outboard CPU") {
        bail!("`outboard devices` prints `{shown}`");
    }
    let mut command = machine.command(&format!("{INSTALLED}/bin/outboard"));
    said(command.arg("--version"))?;
    Ok("`outboard devices` shows the server's devices".into())
}
