//! What is run by clients of each kind.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::compared::{self, Outcome};
use crate::cross::targets::{Target, folder};
use crate::cross::tools;
use crate::first::First;
use crate::machines::{INSTALLED, Machine, PROGRAMS, arm_programs};
use crate::programs::{self, Case, Platform};
use crate::server::Server;
use crate::stage::Dist;
use crate::util::{self, root, said};
use crate::{image, python};

/// What came of a run.
pub(super) struct Came {
    pub(super) what: String,
    /// The time to a program's first kernel, if the kind runs programs.
    pub(super) first: Option<First>,
}

/// The program whose time counts: it launches a kernel, waits for it, and ends.
pub(super) const SMALL: &str = "vector_add_shared_13_0";
/// The same with the runtime linked in, for runs without the other one.
pub(super) const SMALLEST: &str = "vector_add";

/// Programs that do not do the same on an emulated aarch64 client, and why.
pub(super) const ARM_EXCEPTIONS: &[(&str, &str)] = &[];

/// Programs that clients of each kind run unless they are asked for the whole suite, of which some
/// programs wait for minutes where they are emulated: some of every family of calls, by the
/// driver's functions and by runtimes of all releases.
const CHOICE: [&str; 34] = [
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

/// The installation of a kind.
fn dist(name: &str) -> Result<Dist> {
    let dist = Dist { dir: Target::named(name).context("a kind of machines")?.dist() };
    if !dist.outboard().exists() {
        bail!("nothing is built for {name}; `cargo xtask cross {name}` does it");
    }
    Ok(dist)
}

/// An aarch64 system with an installation.
fn arm(dist: &Dist) -> Result<Machine> {
    let machine = Machine::arm()?.with(&dist.dir, INSTALLED);
    machine.check()?;
    Ok(machine)
}

pub(super) fn server(dist: &Dist) -> Result<Server> {
    Server::local(dist, Some("cpu"))
}

/// `outboard run` on another machine, ended when a program's time is over.
fn run_there(machine: &Machine, server: &Server) -> Command {
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
    command.args(["run", "--server", &server.address, "--"]);
    command
}

/// A program as one runs it on another system, where the folder of programs is another one.
fn there(machine: &Machine, server: &Server, case: &Case, folder: &Path) -> Command {
    let seen = |path: &Path| match path.strip_prefix(folder) {
        Ok(rest) => format!("{PROGRAMS}/{}", rest.display()),
        Err(_) => path.display().to_string(),
    };
    let mut command = run_there(machine, server);
    command.arg(seen(&case.program)).args(&case.args);
    if let Some(folder) = &case.libraries {
        command.env("LD_LIBRARY_PATH", seen(folder));
    }
    command
}

/// The choice, or all, of this machine's programs.
pub(super) fn chosen(whole: bool) -> Result<Vec<Case>> {
    let all = compared::own()?.into_values();
    Ok(all.filter(|case| whole || is_chosen(&case.program)).collect())
}

/// The names are those of programs, of which some run with several runtimes.
fn is_chosen(program: &Path) -> bool {
    program.file_name().is_some_and(|name| CHOICE.iter().any(|chosen| name == *chosen))
}

/// The time to the first kernel of a program that both have.
pub(super) fn first(
    name: &str,
    cases: &[Case],
    plain: impl Fn(&Case) -> Command,
    kind: impl Fn(&Case) -> Command,
) -> Result<First> {
    let own = compared::own()?;
    let of_kind = cases.iter().find(|case| case.name == name);
    let (Some(own), Some(of_kind)) = (own.get(name), of_kind) else {
        bail!("the program {name} is not there")
    };
    First::of(|| Ok(plain(own)), || Ok(kind(of_kind)))
}

pub(super) fn plain(whole: bool) -> Result<Came> {
    let dist = Dist::laid_out()?;
    let (cases, server) = (chosen(whole)?, server(&dist)?);
    let through = |case: &Case| compared::here(&dist, &server, case);
    let outcome = compared::compare(&cases, |case| Some(compared::alone(&dist, case)), through)?;
    outcome.check(&[])?;
    Ok(Came { what: count(&outcome), first: Some(first(SMALL, &cases, through, through)?) })
}

pub(super) fn jupyter(whole: bool) -> Result<Came> {
    let dist = Dist::laid_out()?;
    let (cases, server) = (chosen(whole)?, server(&dist)?);
    let interpreter = python::with_jupyter()?;
    let data = util::target_dir().join("clients/jupyter");
    let mut install = Command::new(dist.outboard());
    install.args(["jupyter", "install", "--server", &server.address, "--python"]);
    install.arg(&interpreter).env("JUPYTER_DATA_DIR", &data).env("OUTBOARD_CONFIG", "none");
    said(&mut install)?;
    let through = |case: &Case| {
        let mut command = Command::new(&interpreter);
        command.arg(root().join("xtask/src/clients/kernel.py")).arg("outboard");
        command.arg(&case.program).args(&case.args).env("JUPYTER_DATA_DIR", &data);
        if let Some(folder) = &case.libraries {
            command.env("LD_LIBRARY_PATH", folder);
        }
        command
    };
    let native = |case: &Case| compared::here(&dist, &server, case);
    let outcome = compared::compare(&cases, |case| Some(native(case)), through)?;
    outcome.check(&[])?;
    Ok(Came { what: count(&outcome), first: Some(first(SMALL, &cases, native, through)?) })
}

pub(super) fn container(_whole: bool) -> Result<Came> {
    let came = image::without_flags()?;
    let what = format!("{} of {} runs print the same as outside", came.same, came.same);
    Ok(Came { what, first: Some(came.first) })
}

/// The installation for aarch64.
pub(super) fn arm_dist() -> Result<Dist> {
    dist("aarch64")
}

pub(super) fn arm_client(whole: bool) -> Result<Came> {
    arm_client_of(&arm_dist()?, &Dist::laid_out()?, (!whole).then_some(&CHOICE))
}

/// Programs on an aarch64 system, by one installation's client and another one's server.
pub(super) fn arm_client_of(
    client: &Dist,
    serving: &Dist,
    programs: Option<&[&str]>,
) -> Result<Came> {
    let (dir, cases) = arm_programs(programs)?;
    let here = Dist::laid_out()?;
    let machine = arm(client)?.with(&dir, PROGRAMS);
    let (plain, server, own) = (server(&here)?, server(serving)?, compared::own()?);
    let native = |case: &Case| compared::here(&here, &plain, case);
    let through = |case: &Case| there(&machine, &server, case, &dir);
    let outcome = compared::compare(&cases, |case| own.get(&case.name).map(native), through)?;
    outcome.check(ARM_EXCEPTIONS)?;
    let small = if cases.iter().any(|case| case.name == SMALL) { SMALL } else { SMALLEST };
    Ok(Came { what: count(&outcome), first: Some(first(small, &cases, native, through)?) })
}

pub(super) fn arm_server(_whole: bool) -> Result<Came> {
    arm_server_of(&Dist::laid_out()?, &arm_dist()?)
}

/// Programs of this machine, by one installation's client and another one's emulated server.
pub(super) fn arm_server_of(client: &Dist, serving: &Dist) -> Result<Came> {
    let machine = arm(serving)?;
    let (here, own) = (Dist::laid_out()?, compared::own()?);
    let command = machine.command(&format!("{INSTALLED}/bin/outboard"));
    let emulated = Server::start(command, &["--listen", "127.0.0.1:0"], Some("cpu"))?;
    let plain = server(&here)?;
    let cases: Vec<Case> =
        FOR_ARM_SERVER.iter().filter_map(|name| own.get(*name).cloned()).collect();
    let native = |case: &Case| compared::here(&here, &plain, case);
    let through = |case: &Case| compared::here(client, &emulated, case);
    let outcome = compared::compare(&cases, |case| Some(native(case)), through);
    let first = first(SMALLEST, &cases, native, through);
    emulated.end();
    let outcome = outcome?;
    outcome.check(&[])?;
    Ok(Came { what: count(&outcome), first: Some(first?) })
}

pub(super) fn count(outcome: &Outcome) -> String {
    let all = outcome.same + outcome.different.len();
    format!("{} of {all} runs of test programs print the same", outcome.same)
}

/// Programs that are linked for glibc 2.17 as well.
const OLD_PROGRAMS: [&str; 3] = ["registered_static_12_9", "registered_static_13_0", "libraries"];

pub(super) fn old_system(_whole: bool) -> Result<Came> {
    let (dist_here, dist_there) = (Dist::laid_out()?, dist("x86_64")?);
    let target = Target::named("x86_64").context("a kind of machines")?;
    let platform = Platform {
        dir: folder().join("programs-old"),
        compiler: tools::compiler(target),
        beside_nvcc: None,
        runtimes: None,
    };
    let cases = programs::for_platform(&platform, Some(&OLD_PROGRAMS))?;
    let machine = Machine::old()?.with(&dist_there.dir, INSTALLED).with(&platform.dir, PROGRAMS);
    machine.check()?;
    let (server, own) = (server(&dist_here)?, compared::own()?);
    let native = |case: &Case| compared::here(&dist_here, &server, case);
    let through = |case: &Case| there(&machine, &server, case, &platform.dir);
    let outcome = compared::compare(&cases, |case| own.get(&case.name).map(native), through)?;
    outcome.check(&[])?;
    if outcome.same < OLD_PROGRAMS.len() {
        bail!("only {} programs were compared", outcome.same);
    }
    // The server and the software device are those of the old system, too.
    let mut alone = machine.command(&format!("{INSTALLED}/bin/outboard"));
    alone.args(["run", "--local-cpu", "--", &format!("{PROGRAMS}/{}", OLD_PROGRAMS[0])]);
    said(&mut alone)?;
    within_the_loader(&machine, &server, &platform)?;
    let what = format!(
        "{}, one alone on the old system, and one in a constructor and in a destructor there",
        count(&outcome)
    );
    Ok(Came { what, first: Some(first(OLD_PROGRAMS[1], &cases, native, through)?) })
}

/// Runs a program while the system's loader holds its lock (`tests/programs/loader_lock.cpp`).
fn within_the_loader(machine: &Machine, server: &Server, platform: &Platform) -> Result<()> {
    let source = root().join("tests/programs/loader_lock.cpp");
    for (library, flags) in [("loader_lock", &[][..]), ("loader_lock_loaded", &["-DLOADED"][..])] {
        let mut compiler = Command::new(&platform.compiler[0]);
        compiler.args(&platform.compiler[1..]).args(["-std=c++17", "-shared", "-fPIC"]);
        compiler.args(flags).arg("-o").arg(platform.dir.join(library)).arg(&source).arg("-ldl");
        programs::run_quietly(&compiler)?;
    }
    for place in ["constructor", "destructor"] {
        let program = OLD_PROGRAMS[1];
        let mut command = run_there(machine, server);
        command.args(["dash", "-c"]).arg(format!(
            "LD_PRELOAD={PROGRAMS}/loader_lock LOADER_LOCK={place} exec {PROGRAMS}/{program}"
        ));
        said(&mut command).with_context(|| format!("{program} in a {place}"))?;
    }
    Ok(())
}

pub(super) fn empty_system(_whole: bool) -> Result<Came> {
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
    Ok(Came { what: "`outboard devices` shows the server's devices".into(), first: None })
}
