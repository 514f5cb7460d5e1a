//! What is run with two releases.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use super::ways::{WAYS, Way, command};
use crate::compared;
use crate::programs::{self, Case};
use crate::stage::{self, Dist};
use crate::util::{self, step};

/// Programs that are run: some of every family of calls.
pub(crate) const PROGRAMS: [&str; 22] = [
    "answers",
    "arrays",
    "atomics",
    "big_copy",
    "copies_2d_3d",
    "device_printf",
    "driver_api",
    "driver_memory",
    "driver_objects",
    "errors",
    "fork",
    "graph_capture",
    "graph_explicit",
    "host_functions",
    "ipc",
    "managed_memory",
    "mapped_memory",
    "memory_pools",
    "registered_memory",
    "streams_events",
    "textures",
    "virtual_memory",
];

/// Which of the two is the earlier release, in the names of runs.
pub(super) const OLD_CLIENT: &str = "old client, new server";
pub(super) const OLD_SERVER: &str = "new client, old server";

/// How much went well.
pub(super) struct Ran {
    /// Runs of test programs.
    pub(super) programs: usize,
    pub(super) upgrades: usize,
}

/// Runs everything, or what has a name that contains `only`.
pub(super) fn all(old: &Dist, new: &Dist, only: Option<&str>) -> Result<Ran> {
    let folder = util::target_dir().join("mixed/run");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).context("cannot make the folder of the servers")?;
    let mut cases = programs::suite()?;
    cases.retain(|case| PROGRAMS.contains(&case.name.as_str()));
    if cases.len() < PROGRAMS.len() {
        bail!("only {} of {} programs are compiled", cases.len(), PROGRAMS.len());
    }
    let wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    step("this source alone");
    let alone = Way::Tcp.serve(new, &folder.join("alone"))?;
    let outputs = compared::outputs(&cases, |case| {
        Some(alone.tell(compared::here(new, &alone.server, case)))
    })?;
    let (mut ran, mut failed) = (Ran { programs: 0, upgrades: 0 }, Vec::new());
    for way in WAYS {
        for (who, client, server) in [(OLD_CLIENT, old, new), (OLD_SERVER, new, old)] {
            let name = format!("{who}, {}", way.name());
            if !wanted(&name) {
                continue;
            }
            step(&name);
            match pair(way, (client, server), &cases, &outputs, &folder) {
                Ok(same) => ran.programs += same,
                Err(error) => failed.push(format!("{name}: {error:#}")),
            }
        }
    }
    for (name, from, to) in
        [("upgrade from old to new", old, new), ("upgrade from new to old", new, old)]
    {
        if !wanted(name) {
            continue;
        }
        step(name);
        match upgrade(&cases, (from, to), new, &folder) {
            Ok(()) => ran.upgrades += 1,
            Err(error) => failed.push(format!("{name}: {error:#}")),
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(ran)
}

/// Runs programs by a client of one release and a server of another; how many did what they do
/// otherwise.
fn pair(
    way: Way,
    (client, server): (&Dist, &Dist),
    cases: &[Case],
    outputs: &BTreeMap<String, Output>,
    folder: &Path,
) -> Result<usize> {
    let served = way.serve(server, &folder.join("mixed"))?;
    let outcome = compared::compare_with(cases, outputs, |case| {
        served.tell(compared::here(client, &served.server, case))
    })?;
    outcome.check(&[])?;
    Ok(outcome.same)
}

/// Has a server become another release while a program runs, which must end well; then a new one
/// must run. The newer release's command asks: it knows how both are administered.
fn upgrade(cases: &[Case], (from, to): (&Dist, &Dist), asks: &Dist, folder: &Path) -> Result<()> {
    let prefix = Dist { dir: folder.join("prefix") };
    install(from, &prefix)?;
    let way = Way::Tcp;
    let served = way.serve(&prefix, &folder.join("upgraded"))?;
    let end = folder.join("end");
    let _ = fs::remove_file(&end);
    let steady = Case {
        name: "steady".into(),
        program: programs::dir().join("steady"),
        args: vec![end.display().to_string()],
        libraries: None,
    };
    let mut running = served.tell(compared::here(from, &served.server, &steady));
    let mut running = Running::start(running.stdout(Stdio::piped()))?;
    running.wait_for("running")?;

    install(to, &prefix)?;
    let mut ask = command(asks, &folder.join("upgraded"));
    ask.args(["upgrade", "--server", &served.server.address]);
    let output = ask.output().context("cannot start `outboard upgrade`")?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if !output.status.success() || !said.contains("The one session went on") {
        bail!("`outboard upgrade` says: {}", said.trim());
    }
    fs::write(&end, "").context("cannot tell the program to end")?;
    running.end_well()?;
    let vector = cases.first().context("there are programs")?;
    util::run(served.tell(compared::here(from, &served.server, vector)).stdout(Stdio::null()))
}

/// Puts a release where another one may be, as installations do.
fn install(dist: &Dist, prefix: &Dist) -> Result<()> {
    for file in stage::PROGRAMS {
        stage::place(&dist.dir.join(file), &prefix.dir.join(file))?;
    }
    Ok(())
}

/// A program that runs beside this one; killed when dropped.
struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Result<Running> {
        let mut child = command.spawn().context("cannot start a program")?;
        let output = child.stdout.take().context("standard output is piped")?;
        Ok(Running { child, output: BufReader::new(output) })
    }

    fn wait_for(&mut self, line: &str) -> Result<()> {
        let mut read = String::new();
        while self.output.read_line(&mut read).context("cannot read what a program says")? > 0 {
            if read.trim() == line {
                return Ok(());
            }
            read.clear();
        }
        bail!("the program ended before it said `{line}`")
    }

    fn end_well(mut self) -> Result<()> {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).context("cannot read what a program says")?;
        let status = self.child.wait().context("cannot wait for a program")?;
        if !status.success() {
            bail!("the program ended with {status}: {}", rest.trim());
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
