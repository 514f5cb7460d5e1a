//! Programs with several devices, wherever these are: a table of programs and layouts. A cell is a
//! run of a program, which checks its own results, and its output must be that on one server with
//! as many devices. On a GPU (`OUTBOARD_TEST_DRIVER=nvidia`) each server offers what the machine
//! has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use outboard_e2e::{Driver, Program, Server};
use outboard_test_support::skipped;
use rustix::process::{Pid, Signal, kill_process};

/// Where devices are.
struct Layout {
    name: &'static str,
    /// How many devices each server has.
    servers: &'static [usize],
    transport: &'static str,
    /// Whether the last server is the program's own.
    with_local: bool,
    /// Whether software devices divide mappings into allocations. Otherwise the driver frees each
    /// allocation, as NVIDIA's does on a server with several devices.
    divides: bool,
}

const fn layout(name: &'static str, servers: &'static [usize], transport: &'static str) -> Layout {
    Layout { name, servers, transport, with_local: false, divides: true }
}

const LAYOUTS: &[Layout] = &[
    Layout { divides: false, ..layout("one server with two devices", &[2], "tcp") },
    layout("one server with three devices", &[3], "tcp"),
    layout("one server with four devices", &[4], "shm"),
    layout("two servers with one device each", &[1, 1], "tcp"),
    layout("two servers with one device each in shared memory", &[1, 1], "shm"),
    Layout { with_local: true, ..layout("a server and this machine's own device", &[1, 1], "") },
    Layout { divides: false, ..layout("two servers with two devices each", &[2, 2], "tcp") },
    layout("three servers with one device each", &[1, 1, 1], "tcp"),
    layout("three servers with one device each in shared memory", &[1, 1, 1], "shm"),
];

/// What runs.
struct Row {
    program: &'static str,
    args: &'static [&'static str],
    /// Whether it is told last how many devices each server has.
    counts: bool,
    /// Whether it says the same wherever the devices are.
    says_the_same: bool,
}

const fn row(program: &'static str, args: &'static [&'static str]) -> Row {
    Row { program, args, counts: false, says_the_same: true }
}

const fn part(args: &'static [&'static str]) -> Row {
    Row { program: "topology", args, counts: true, says_the_same: true }
}

const ROWS: &[Row] = &[
    part(&["machine"]),
    row("topology_copies", &["500"]),
    part(&["events"]),
    part(&["synchronous"]),
    part(&["legacy"]),
    part(&["managed"]),
    part(&["host"]),
    part(&["pools"]),
    part(&["graphs"]),
    part(&["fills"]),
    row("freed_meanwhile", &["host", "60", "1"]),
    row("freed_meanwhile", &["device", "40", "1"]),
    part(&["threads"]),
    part(&["errors"]),
    Row { program: "topology_processes", args: &[], counts: true, says_the_same: true },
    // It says UUIDs.
    Row { program: "nvml", args: &["remote", "beside"], counts: false, says_the_same: false },
];

/// The part during which the last server is lost.
const LOST: Row = part(&["lost"]);

impl Row {
    fn name(&self) -> String {
        [&[self.program], self.args].concat().join(" ")
    }

    fn program(&self, transport: &str, each: usize) -> Program {
        // The last two are for the program's own server.
        let program = Program::new(self.program)
            .env("OUTBOARD_TRANSPORT", transport)
            .env("OUTBOARD_LOCAL_DRIVER", Driver::chosen().name())
            .env(MEMORY.0, MEMORY.1);
        let program = self.args.iter().fold(program, |program, arg| program.arg(arg));
        if self.counts { program.arg(&each.to_string()) } else { program }
    }
}

/// A layout's servers.
struct Servers {
    /// Those that the test has started.
    started: Vec<Server>,
    with_local: bool,
    /// How many devices each of them has.
    each: usize,
}

/// Memory of a software device.
const MEMORY: (&str, &str) = ("OUTBOARD_CPU_MEMORY", "256M");

impl Servers {
    fn start(layout: &Layout) -> Servers {
        let driver = Driver::chosen();
        let server = |devices: &usize| {
            let (devices, divides) = (devices.to_string(), u8::from(layout.divides).to_string());
            let env = [
                ("OUTBOARD_CPU_DEVICES", devices.as_str()),
                ("OUTBOARD_CPU_DIVIDES", divides.as_str()),
                MEMORY,
            ];
            Server::start_with(&["--driver", driver.name()], &env)
        };
        let to_start = &layout.servers[usize::from(layout.with_local)..];
        let started: Vec<Server> = to_start.iter().map(server).collect();
        let each = match driver {
            Driver::Cpu => layout.servers[0],
            Driver::Nvidia => started[0].devices(),
        };
        Servers { started, with_local: layout.with_local, each }
    }

    fn list(&self) -> String {
        let local = self.with_local.then_some("local");
        self.started.iter().map(Server::address).chain(local).collect::<Vec<_>>().join(",")
    }

    fn count(&self) -> usize {
        self.started.len() + usize::from(self.with_local)
    }

    fn devices(&self) -> usize {
        self.each * self.count()
    }
}

/// All that runs share: servers, each layout's once, and what was said on one server.
#[derive(Default)]
struct Table {
    servers: BTreeMap<&'static str, OnceLock<Servers>>,
    said: Mutex<BTreeMap<(String, usize), String>>,
}

impl Table {
    fn servers(&self, layout: &Layout) -> &Servers {
        self.servers[layout.name].get_or_init(|| Servers::start(layout))
    }

    /// What a program says on one server with so many devices, if there is one.
    fn reference(&self, row: &Row, devices: usize) -> Result<Option<String>, Failed> {
        let layouts = LAYOUTS.iter().filter(|layout| layout.servers.len() == 1);
        let one = layouts.map(|layout| (layout, self.servers(layout)));
        let Some((layout, one)) = one.into_iter().find(|(_, one)| one.devices() == devices) else {
            return Ok(None);
        };
        let key = (row.name(), devices);
        if let Some(said) = self.said.lock().expect("no thread panics with it").get(&key) {
            return Ok(Some(said.clone()));
        }
        let said = run(row, layout, one)?;
        self.said.lock().expect("no thread panics with it").insert(key, said.clone());
        Ok(Some(said))
    }
}

/// What a program says.
fn run(row: &Row, layout: &Layout, servers: &Servers) -> Result<String, Failed> {
    let outcome = row.program(layout.transport, servers.each).through_list(&servers.list());
    if !outcome.status.success() {
        let said = format!("{}\n{}{}", outcome.status, outcome.stdout, outcome.stderr);
        return Err(said.into());
    }
    if outcome.stderr.contains("is lost") {
        return Err(format!("a server was called lost: {}", outcome.stderr).into());
    }
    Ok(outcome.stdout)
}

fn cell(name: &str, table: &Table, row: &Row, layout: &Layout) -> Result<(), Failed> {
    let servers = table.servers(layout);
    if servers.devices() < 2 {
        skipped(name, "this machine has one device");
        return Ok(());
    }
    let Some(wanted) = table.reference(row, servers.devices())? else {
        // A GPU server offers what its machine has, and never as many as several of them.
        return run(row, layout, servers).map(drop);
    };
    if servers.count() == 1 {
        return Ok(());
    }
    let said = run(row, layout, servers)?;
    if said == wanted || !row.says_the_same {
        return Ok(());
    }
    Err(format!("output differs\n--- on one server\n{wanted}--- on several\n{said}").into())
}

/// The last server goes while the program works with all of them.
fn lose_one(layout: &Layout) -> Result<(), Failed> {
    // No other program may be there to be lost with it.
    let servers = Servers::start(layout);
    let program = LOST.program(layout.transport, servers.each);
    let mut running = program.start_through_list(&servers.list());
    running.wait_for_line("waiting");
    let last = servers.started.last().expect("there is one").only_worker();
    kill_process(Pid::from_raw(last as i32).expect("a process"), Signal::KILL)?;
    let outcome = running.finish();
    if outcome.status.success() && outcome.stdout.ends_with("lost: done\n") {
        return Ok(());
    }
    Err(format!("{}\n{}{}", outcome.status, outcome.stdout, outcome.stderr).into())
}

/// The same device twice is no layout.
fn refuse_twice(table: &Table) -> Result<(), Failed> {
    let server = &table.servers(&LAYOUTS[0]).started[0];
    let port = server.address().rsplit_once(':').ok_or("no port")?.1;
    for list in [
        format!("{0}/0,{0}/0", server.address()),
        format!("{0},{0}/0", server.address()),
        format!("{}/0,localhost:{port}/0", server.address()),
    ] {
        let program = Program::new("vector_add").env("OUTBOARD_LOG", "1");
        let outcome = program.through_list(&list);
        let is_named = ["names a device twice", "are one server"]
            .iter()
            .any(|words| outcome.stderr.contains(words));
        if outcome.status.success() || !is_named {
            return Err(format!("{list}: {}{}", outcome.stdout, outcome.stderr).into());
        }
    }
    Ok(())
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Programs have threads of their own, and on a GPU each takes its part of the memory.
    let at_once = if Driver::chosen() == Driver::Nvidia { 1 } else { 2 };
    arguments.test_threads.get_or_insert(at_once);
    let servers = LAYOUTS.iter().map(|layout| (layout.name, OnceLock::new())).collect();
    let table = Arc::new(Table { servers, ..Table::default() });
    let mut trials = Vec::new();
    for layout in LAYOUTS {
        for row in ROWS {
            let table = Arc::clone(&table);
            let name = format!("{} on {}", row.name(), layout.name);
            let told = name.clone();
            trials.push(Trial::test(name, move || cell(&told, &table, row, layout)));
        }
        // The program's own server is lost with the program.
        if layout.servers.len() > 1 && !layout.with_local {
            let name = format!("{} on {}", LOST.name(), layout.name);
            trials.push(Trial::test(name, || lose_one(layout)));
        }
    }
    let shared = Arc::clone(&table);
    trials.push(Trial::test("the same device twice is refused", move || refuse_twice(&shared)));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // `exit` skips destructors, so the servers are stopped first.
    drop(table);
    conclusion.exit();
}
