//! Everything at once, for long: a server's memory, descriptors and threads stay as they are, and
//! so do those of programs that run all the while.
//!
//! `OUTBOARD_SOAK_SECONDS` says for how long; `cargo xtask soak --minutes N` sets it and shows what
//! was seen.

#![allow(clippy::print_stdout)]

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outboard_e2e::{Driver, Folder, History, PATIENCE, Program, Running, Server, is_alive, within};
use parking_lot::RwLock;

/// Without `OUTBOARD_SOAK_SECONDS`.
const SHORT: Duration = Duration::from_secs(20);
/// How often it is looked, at most: each time, all that comes and goes has to be gone.
const LOOKS: u32 = 40;
/// Memory that a process may hold more in the end: allocators keep a little, the more threads the
/// more.
const SLACK: u64 = 3 << 20;

/// Things that happen again and again until the end.
#[derive(Default)]
struct Tally {
    over: AtomicBool,
    /// Held for writing while it is looked, when none of them may happen.
    calm: RwLock<()>,
    programs: AtomicU64,
    killed: AtomicU64,
    faults: AtomicU64,
    strangers: AtomicU64,
    questions: AtomicU64,
}

impl Tally {
    /// Has something happen until the end, and counts it.
    fn again(&self, count: &AtomicU64, mut what: impl FnMut(u64)) {
        let _over = Over(self);
        let mut round = 0;
        while !self.over.load(Ordering::Relaxed) {
            {
                let _stir = self.calm.read();
                what(round);
            }
            round += 1;
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Ends what runs when a part of the test has failed, too.
struct Over<'a>(&'a Tally);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// A program that runs all the while, and its worker.
struct Steady {
    name: &'static str,
    program: Running,
    worker: u32,
    client: History,
    server: History,
}

impl Steady {
    fn start(name: &'static str, program: Program, server: &Server, end: &str) -> Steady {
        let mut program = program.arg(end).start_through(server);
        program.wait_for_line("running");
        let worker = last_worker(&server.log()).expect("the log names the worker");
        Steady { name, program, worker, client: History::default(), server: History::default() }
    }

    fn look(&mut self) {
        self.client.take(self.program.id());
        self.server.take(self.worker);
    }
}

/// The worker of the session that started last, by the server's log.
fn last_worker(log: &str) -> Option<u32> {
    let mut entries =
        log.lines().rev().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let start = entries.find(|entry| entry["fields"]["message"] == "session starts")?;
    start["fields"]["worker"].as_u64()?.try_into().ok()
}

/// Shows how a process has grown; what grew too much.
fn judge(name: &str, history: &History) -> Option<String> {
    let growth = history.growth().expect("there were many looks");
    let (early, late) = (growth.early, growth.late);
    println!(
        "{name:<28} {:>9} {:>9} {:>6} {:>6} {:>5} {:>5}",
        early.memory >> 10,
        late.memory >> 10,
        early.descriptors,
        late.descriptors,
        early.threads,
        late.threads
    );
    growth.excess(SLACK).map(|excess| format!("{name}: {excess}"))
}

/// A stranger says nothing, something that makes no sense, or half of something.
fn strange(address: &str, round: u64) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let said: &[u8] = match round % 4 {
        0 => b"",
        1 => b"GET / HTTP/1.1\r\n\r\n",
        2 => &[0xff; 200],
        _ => b"OUTB",
    };
    // It may have hung up.
    let _ = stream.write_all(said);
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn nothing_grows_while_programs_come_and_go() {
    let seconds =
        std::env::var("OUTBOARD_SOAK_SECONDS").ok().map(|text| text.parse().expect("seconds"));
    let time = seconds.map_or(SHORT, Duration::from_secs);
    let folder = Folder::create();
    let server = Server::start_with(
        &["--driver", Driver::chosen().name(), "--warm", "1", "--session-memory", "512M"],
        &[],
    );
    let steady = |name, program| Steady::start(name, program, &server, &folder.path("end"));
    let mut steady = [
        steady("over TCP", Program::new("steady")),
        steady("over shared memory", Program::new("steady").sharing_memory()),
    ];
    let (mut supervisor, tally) = (History::default(), Tally::default());
    std::thread::scope(|scope| {
        let _over = Over(&tally);
        scope.spawn(|| {
            tally.again(&tally.programs, |round| {
                let program =
                    Program::new(["vector_add", "histogram", "streams_events"][round as usize % 3]);
                let program = if round % 2 == 0 { program } else { program.sharing_memory() };
                program.through(&server).expect_success("a short program");
            });
        });
        scope.spawn(|| {
            tally.again(&tally.killed, |round| {
                let mut program =
                    Program::new("steady").arg("/nowhere/at/all").start_through(&server);
                program.wait_for_line("running");
                std::thread::sleep(Duration::from_millis(round * 37 % 200));
                program.kill();
            });
        });
        scope.spawn(|| {
            tally.again(&tally.faults, |_| {
                Program::new("exhaust").through(&server).expect_success("memory that is used up");
                Program::new("fault_address").through(&server).expect_success("a faulting kernel");
            });
        });
        scope.spawn(|| tally.again(&tally.strangers, |round| strange(server.address(), round)));
        scope.spawn(|| {
            tally.again(&tally.questions, |_| {
                let asked =
                    outboard_e2e::outboard(&["devices", "--server", server.address(), "--json"]);
                assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
                std::thread::sleep(Duration::from_millis(200));
            });
        });
        let started = Instant::now();
        while started.elapsed() < time && !tally.over.load(Ordering::Relaxed) {
            std::thread::sleep(time / LOOKS);
            let _calm = tally.calm.write();
            // Those who stay, and one that waits for a client.
            assert!(
                within(PATIENCE, || server.workers().len() == steady.len() + 1),
                "{:?}",
                server.workers()
            );
            // Of what is still being put away, the least counts.
            for _ in 0..10 {
                supervisor.take(server.id());
                steady.iter_mut().for_each(Steady::look);
                std::thread::sleep(Duration::from_millis(15));
            }
        }
    });
    folder.write("end", "");
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} s: {} programs, {} killed, {} faults, {} strangers, {} questions",
        time.as_secs(),
        count(&tally.programs),
        count(&tally.killed),
        count(&tally.faults),
        count(&tally.strangers),
        count(&tally.questions)
    );
    println!("{:<28} {:>19} {:>13} {:>11}", "", "KiB: early, late", "descriptors", "threads");
    let mut grown: Vec<String> = judge("supervisor", &supervisor).into_iter().collect();
    for steady in steady {
        grown.extend(judge(&format!("program {}", steady.name), &steady.client));
        grown.extend(judge("  its worker", &steady.server));
        let outcome = steady.program.finish();
        outcome.expect_success("a program that ran all the while");
        println!("{}", outcome.stdout.lines().last().unwrap_or_default());
        assert!(within(PATIENCE, || !is_alive(steady.worker)), "its worker ends");
    }
    assert!(grown.is_empty(), "{}", grown.join("; "));
    assert!(
        within(PATIENCE, || server.records().is_empty()),
        "nothing is noted of sessions that are over"
    );
}
