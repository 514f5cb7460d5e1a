//! How programs with several servers start, and commands ask them: all at once, and as many as the
//! address space holds.

use std::net::TcpListener;
use std::time::Duration;

use outboard_e2e::{Driver, Meeting, Outcome, Program, Server, command, within};
use outboard_test_support::skip;

fn small_server() -> Server {
    let env = [("OUTBOARD_CPU_DEVICES", "1"), ("OUTBOARD_CPU_MEMORY", "64M")];
    Server::start_with(&["--driver", Driver::chosen().name(), "--socket", "none"], &env)
}

/// The program `devices` with the library alone.
fn list_devices(list: &str) -> Outcome {
    let program = Program::new("devices").env("OUTBOARD_SERVER", list).env("OUTBOARD_LOG", "1");
    program.env("OUTBOARD_TRANSPORT", "tcp").env("OUTBOARD_CONFIG", "none").with_library()
}

/// Servers the first connections to which are answered when all of them have come.
struct Meeters {
    servers: Vec<Server>,
}

impl Meeters {
    fn start(count: usize) -> Meeters {
        Meeters { servers: (0..count).map(|_| small_server()).collect() }
    }

    /// Has something ask each of them so many times. `run` gets their list and addresses.
    fn expect<T>(&self, rounds: usize, run: impl FnOnce(&str, &[String]) -> T) -> T {
        let meeting = Meeting::new(self.servers.len(), rounds);
        let ways: Vec<String> = self.servers.iter().map(|server| meeting.way(server)).collect();
        let outcome = run(&ways.join(","), &ways);
        assert!(meeting.is_complete(), "each server is asked {rounds} times");
        outcome
    }
}

/// No server of a list is waited for before the others are asked: in the library, and in `outboard
/// run`, which asks all of them first.
#[test]
fn servers_are_asked_at_once() {
    let all = Meeters::start(4);
    let success = |outcome: Outcome| {
        outcome.expect_success("servers that answer when all are asked");
    };
    success(all.expect(1, |list, _| list_devices(list)));
    let program = Program::new("devices").env("OUTBOARD_TRANSPORT", "tcp");
    success(all.expect(2, |list, _| program.through_list(list)));
}

/// `outboard devices` asks all servers at once, and lists them in their order.
#[test]
fn devices_of_all_servers_are_asked_for_at_once() {
    // Of each server: its offer, then how its devices do.
    let (said, ways) = Meeters::start(2).expect(2, |list, ways| {
        let said = command().args(["devices", "--server", list]).output();
        (said.expect("outboard starts"), ways.to_vec())
    });
    let text = String::from_utf8_lossy(&said.stdout);
    let listed: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_once(" over ").map(|(server, _)| server))
        .collect();
    assert!(said.status.success(), "{said:?}");
    assert_eq!(listed, ways, "{text}");
}

/// So does `outboard doctor`, which then measures the ways in turn.
#[test]
fn the_doctor_asks_all_servers_at_once() {
    let (said, ways) = Meeters::start(2).expect(1, |list, ways| {
        let said = command().args(["doctor", "--json", "--server", list]).output();
        (said.expect("outboard starts"), ways.to_vec())
    });
    let report: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("a list");
    let of = |check: &str| -> Vec<&str> {
        let found = findings.iter().filter(|finding| finding["check"] == check);
        found.filter_map(|finding| finding["server"].as_str()).collect()
    };
    assert_eq!(of("server"), ways, "{report}");
    assert_eq!(of("latency"), ways, "{report}");
}

/// Each of 32 servers gets addresses of its own, and its device works.
#[test]
fn thirty_two_servers_work_in_one_process() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about many servers, of which this machine's GPUs hold few");
    }
    let servers: Vec<Server> = (0..32).map(|_| small_server()).collect();
    let list: Vec<&str> = servers.iter().map(Server::address).collect();
    let outcome = list_devices(&list.join(","));
    outcome.expect_success("32 servers");
    let works = |line: &&str| line.ends_with(", works");
    let Outcome { stdout, stderr, .. } = &outcome;
    let named = servers.iter().filter(|server| stderr.contains(server.address()));
    let logs: String = named.map(Server::log).collect();
    assert_eq!(stdout.lines().filter(works).count(), 32, "{stdout}{stderr}{logs}");
}

/// No server is needed to see that their memory would not fit.
#[test]
fn more_servers_than_addresses_are_refused_by_name() {
    for (servers, said) in [(40, "list has 40 servers"), (65, "more than 64 servers")] {
        let list: Vec<String> = (1..=servers).map(|number| format!("127.0.0.1:{number}")).collect();
        let outcome = list_devices(&list.join(","));
        // The program says which error it got, and ends well.
        assert!(outcome.stdout.contains("cudaError"), "{}", outcome.stdout);
        assert!(outcome.stderr.contains(said), "{servers}: {}", outcome.stderr);
    }
}

/// Ports so far apart, below those that the system gives out by itself. Tests that run at once ask
/// for different distances, and get different ports.
fn free_ports(apart: u16) -> [u16; 2] {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let begin = 20_000 + 300 * apart + std::process::id() as u16 % 5_000;
    let pairs = (begin..30_000).map(|port| [port, port + apart]);
    pairs.into_iter().find(|pair| pair.iter().all(|port| is_free(*port))).expect("free ports")
}

/// Of two servers with a waiting worker each, on these ports, a program uses both. How many of its
/// sessions got such a worker, and how many began.
fn sessions_of_two(ports: [u16; 2]) -> (usize, usize) {
    let args = ["--driver", "cpu", "--warm", "1"];
    let env = [("OUTBOARD_CPU_MEMORY", "256M"), ("OUTBOARD_LOG", "outboard_supervisor=debug")];
    let servers = ports.map(|port| Server::start_at(&format!("127.0.0.1:{port}"), &args, &env));
    let count = |what: &str| {
        let log = servers.iter().map(Server::log).collect::<String>();
        log.lines().filter(|line| line.contains(what)).count()
    };
    assert!(within(Duration::from_secs(60), || count("\"message\":\"warm\"") == 2));
    let list = servers.each_ref().map(|server| server.address()).join(",");
    let outcome = list_devices(&list);
    outcome.expect_success("two servers");
    let ended = || count("session ends") == count("session starts");
    assert!(within(Duration::from_secs(60), ended), "a session goes on");
    (count("\"warm\":true"), count("session starts"))
}

#[test]
fn servers_on_neighbouring_ports_have_waiting_workers_for_one_program() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about which windows servers choose, not about devices");
    }
    assert_eq!(sessions_of_two(free_ports(1)), (2, 2));
}

/// If both servers choose it, the second session to come is given up, and another one begins. A
/// server that is asked when the window is taken already starts a worker in another one.
#[test]
fn servers_whose_workers_wait_in_one_window_work_together() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about which windows servers choose, not about devices");
    }
    let (waited, begun) = sessions_of_two(free_ports(16));
    assert!(matches!((waited, begun), (2, 3) | (1, 2)), "{waited} of {begun} had waited");
}
