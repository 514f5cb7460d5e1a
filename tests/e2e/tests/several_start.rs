//! How programs with several servers start: all at once, and as many as the address space holds.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use std::{io, thread};

use outboard_e2e::{Driver, Outcome, Program, Server};
use outboard_test_support::skip;

/// Where the ways to several servers meet: the first connections of all of them, then the second
/// ones, and so on.
struct Meeting {
    ways: usize,
    rounds: usize,
    /// How many connections have come in each round.
    arrived: Mutex<Vec<usize>>,
    changed: Condvar,
}

impl Meeting {
    /// A meeting of the first `rounds` connections of each of `ways`.
    fn new(ways: usize, rounds: usize) -> Arc<Self> {
        let (arrived, changed) = (Mutex::new(vec![0; rounds]), Condvar::new());
        Arc::new(Self { ways, rounds, arrived, changed })
    }

    /// Waits until the connections of this round have come on all ways. Where one does not come in
    /// time, nothing else does: the client is not answered.
    fn wait(&self, round: usize) -> bool {
        if round >= self.rounds {
            return true;
        }
        let mut arrived = self.arrived.lock().expect("nobody failed");
        arrived[round] += 1;
        self.changed.notify_all();
        let missing = |arrived: &mut Vec<usize>| arrived[round] < self.ways;
        let limit = Duration::from_secs(60);
        !self
            .changed
            .wait_timeout_while(arrived, limit, missing)
            .expect("nobody failed")
            .1
            .timed_out()
    }

    /// Whether as many connections came as were to meet.
    fn is_complete(&self) -> bool {
        self.arrived.lock().expect("nobody failed").iter().all(|count| *count == self.ways)
    }
}

/// A way to a server, which answers none of the first connections before they have met those of the
/// other ways. Its address.
fn way(server: &Server, meeting: &Arc<Meeting>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("it listens").to_string();
    let (target, meeting) = (server.address().to_owned(), Arc::clone(meeting));
    thread::spawn(move || {
        for (round, client) in listener.incoming().map_while(Result::ok).enumerate() {
            let Ok(server) = TcpStream::connect(&target) else { continue };
            let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor can be had");
            let (to_server, to_client) = (copy(&server), copy(&client));
            thread::spawn(move || carry(client, to_server));
            let meeting = Arc::clone(&meeting);
            thread::spawn(move || {
                if meeting.wait(round) {
                    carry(server, to_client);
                } else {
                    let _ = to_client.shutdown(Shutdown::Both);
                }
            });
        }
    });
    address
}

/// Carries bytes one way.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn small_server() -> Server {
    let env = [("OUTBOARD_CPU_DEVICES", "1"), ("OUTBOARD_CPU_MEMORY", "64M")];
    Server::start_with(&["--driver", Driver::chosen().name(), "--socket", "none"], &env)
}

/// The program `devices` with the library alone.
fn list_devices(list: &str) -> Outcome {
    let program = Program::new("devices").env("OUTBOARD_SERVER", list).env("OUTBOARD_LOG", "1");
    program.env("OUTBOARD_TRANSPORT", "tcp").env("OUTBOARD_CONFIG", "none").with_library()
}

/// No server of a list is waited for before the others are asked: in the library, and in `outboard
/// run`, which asks all of them first.
#[test]
fn servers_are_asked_at_once() {
    let servers: Vec<Server> = (0..4).map(|_| small_server()).collect();
    let run = |rounds, run: &dyn Fn(&str) -> Outcome| {
        let meeting = Meeting::new(servers.len(), rounds);
        let ways: Vec<String> = servers.iter().map(|server| way(server, &meeting)).collect();
        run(&ways.join(",")).expect_success("servers that answer when all are asked");
        assert!(meeting.is_complete(), "each server is asked {rounds} times");
    };
    run(1, &list_devices);
    let program = Program::new("devices").env("OUTBOARD_TRANSPORT", "tcp");
    run(2, &|list| program.through_list(list));
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
    assert_eq!(outcome.stdout.lines().filter(works).count(), 32, "{}", outcome.stdout);
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
