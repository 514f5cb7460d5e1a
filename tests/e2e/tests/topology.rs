//! Programs with several devices, wherever these are: a table of programs and layouts. A cell is a
//! run of a program, which checks its own results, and its output must be that on one server with
//! as many devices. On a GPU (`OUTBOARD_TEST_DRIVER=nvidia`) each server offers what the machine
//! has.
//!
//! Not every cell is run. Each program meets each property that a layout can have, and each subject
//! of programs meets each layout ([`is_run`] chooses, and a test of the table looks at what it has
//! chosen).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use outboard_e2e::{Driver, Found, Program, Server, reaching_loopback};
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
    /// Whether it only joins properties that the other layouts have in another way.
    is_variant: bool,
}

impl Layout {
    /// What may matter to a program.
    fn properties(&self) -> [String; 4] {
        let servers = self.servers.len();
        [
            format!(
                "transport `{}`, with {}",
                self.transport,
                if servers > 1 { "several servers" } else { "one server" }
            ),
            format!("{servers} servers"),
            format!(
                "servers with {} device",
                if self.servers[0] > 1 { "more than one" } else { "one" }
            ),
            format!(
                "the program's own server: {}, mappings are divided: {}",
                self.with_local, self.divides
            ),
        ]
    }
}

const fn layout(name: &'static str, servers: &'static [usize], transport: &'static str) -> Layout {
    Layout { name, servers, transport, with_local: false, divides: true, is_variant: false }
}

const fn variant(name: &'static str, servers: &'static [usize], transport: &'static str) -> Layout {
    Layout { is_variant: true, ..layout(name, servers, transport) }
}

const LAYOUTS: &[Layout] = &[
    Layout { divides: false, ..layout("one server with two devices", &[2], "tcp") },
    layout("one server with three devices", &[3], "tcp"),
    layout("one server with four devices", &[4], "shm"),
    variant("two servers with one device each", &[1, 1], "tcp"),
    variant("two servers with one device each in shared memory", &[1, 1], "shm"),
    Layout { with_local: true, ..layout("a server and this machine's own device", &[1, 1], "") },
    Layout { divides: false, ..layout("two servers with two devices each", &[2, 2], "tcp") },
    variant("three servers with one device each", &[1, 1, 1], "tcp"),
    layout("three servers with one device each in shared memory", &[1, 1, 1], "shm"),
];

/// What a program tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Copies,
    Graphs,
    Memory,
    Order,
    Processes,
}

/// What runs.
#[derive(Clone, Copy)]
struct Row {
    subject: Subject,
    program: &'static str,
    args: &'static [&'static str],
    /// Whether it runs on all layouts, for the others of its subject.
    is_everywhere: bool,
    /// Whether it is told last how many devices each server has.
    counts: bool,
    /// Whether it says the same wherever the devices are.
    says_the_same: bool,
}

const fn row(subject: Subject, program: &'static str, args: &'static [&'static str]) -> Row {
    Row { subject, program, args, is_everywhere: false, counts: false, says_the_same: true }
}

const fn part(subject: Subject, args: &'static [&'static str]) -> Row {
    Row { counts: true, ..row(subject, "topology", args) }
}

const fn everywhere(row: Row) -> Row {
    Row { is_everywhere: true, ..row }
}

use Subject::{Copies, Graphs, Memory, Order, Processes};

const ROWS: &[Row] = &[
    everywhere(part(Processes, &["machine"])),
    row(Copies, "topology_copies", &["500"]),
    everywhere(part(Order, &["events"])),
    everywhere(part(Copies, &["synchronous"])),
    part(Order, &["legacy"]),
    part(Memory, &["managed"]),
    everywhere(part(Memory, &["host"])),
    part(Memory, &["pools"]),
    everywhere(part(Graphs, &["graphs"])),
    part(Copies, &["fills"]),
    row(Copies, "freed_meanwhile", &["host", "60", "1"]),
    row(Copies, "freed_meanwhile", &["device", "40", "1"]),
    part(Order, &["threads"]),
    part(Processes, &["errors"]),
    Row { counts: true, ..row(Processes, "topology_processes", &[]) },
    // It says UUIDs.
    Row { says_the_same: false, ..row(Processes, "nvml", &["remote", "beside"]) },
];

/// Whether a cell of the table is run.
fn is_run(row: &Row, layout: &Layout) -> bool {
    row.is_everywhere || !layout.is_variant
}

/// What the table promises of the cells that are run.
fn check_table() -> Result<(), Failed> {
    let runs = |row: &Row| LAYOUTS.iter().filter(|layout| is_run(row, layout)).collect::<Vec<_>>();
    let mut missing = Vec::new();
    for row in ROWS {
        let met: Vec<_> = runs(row).iter().flat_map(|layout| layout.properties()).collect();
        let all = LAYOUTS.iter().flat_map(Layout::properties);
        let unmet = all.filter(|property| !met.contains(property));
        missing.extend(unmet.map(|property| format!("{}: {property}", row.name())));
        for layout in LAYOUTS {
            let mut alike = ROWS.iter().filter(|other| other.subject == row.subject);
            if !alike.any(|other| is_run(other, layout)) {
                missing.push(format!("{:?} on {}", row.subject, layout.name));
            }
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n").into()) }
}

/// The part during which the last server is lost.
const LOST: Row = part(Processes, &["lost"]);

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
            Server::start_with(&reaching_loopback(&["--driver", driver.name()]), &env)
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

/// All that runs share: servers, each layout's once, and what was said on one server, or why the
/// program failed there.
#[derive(Default)]
struct Table {
    servers: BTreeMap<&'static str, OnceLock<Servers>>,
    said: Found<(String, usize), Result<String, String>>,
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
        let said = self.said.get((row.name(), devices), || run(row, layout, one))?;
        Ok(Some(said))
    }
}

/// What a program says.
fn run(row: &Row, layout: &Layout, servers: &Servers) -> Result<String, String> {
    let outcome = row.program(layout.transport, servers.each).through_list(&servers.list());
    if !outcome.status.success() {
        let said = format!("{}\n{}{}", outcome.status, outcome.stdout, outcome.stderr);
        return Err(said);
    }
    if outcome.stderr.contains("is lost") {
        return Err(format!("a server was called lost: {}", outcome.stderr));
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
        return Ok(run(row, layout, servers).map(drop)?);
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
        for row in ROWS.iter().filter(|row| is_run(row, layout)) {
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
    trials.push(Trial::test("each program meets each property of a layout", check_table));
    let shared = Arc::clone(&table);
    trials.push(Trial::test("the same device twice is refused", move || refuse_twice(&shared)));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // `exit` skips destructors, so the servers are stopped first.
    drop(table);
    conclusion.exit();
}
