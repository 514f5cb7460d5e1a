//! How programs with several servers start: all at once, and as many as the address space holds.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use outboard_e2e::{Driver, Outcome, Program, Server};
use outboard_test_support::skip;

/// How long the relay keeps what a server says first.
const DELAY: Duration = Duration::from_millis(600);

/// Held by what measures times, and by what keeps all processors busy.
static TURN: Mutex<()> = Mutex::new(());

/// A way to a server on which each connection's first answer takes longer. Its address.
fn relay(server: &Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let (address, target) =
        (listener.local_addr().expect("it listens").to_string(), server.address().to_owned());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&target) else { continue };
            let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor can be had");
            let (to_server, to_client) = (copy(&server), copy(&client));
            thread::spawn(move || carry(client, to_server, Duration::ZERO));
            thread::spawn(move || carry(server, to_client, DELAY));
        }
    });
    address
}

/// Carries bytes one way, the first ones late.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let mut buffer = vec![0; 64 << 10];
    let mut delay = Some(delay);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        delay.take().into_iter().for_each(thread::sleep);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
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

/// The shortest of some runs: what else this machine does makes them only longer.
fn shortest(mut run: impl FnMut() -> Outcome) -> Duration {
    let once = |_| {
        let begun = Instant::now();
        run().expect_success("servers that answer late");
        begun.elapsed()
    };
    (0..2).map(once).min().unwrap_or_default()
}

/// Four servers cost what the slowest one costs, not four times as much: in the library, and in
/// `outboard run`, which asks all of them first.
#[test]
fn servers_are_asked_at_once() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let servers: Vec<Server> = (0..4).map(|_| small_server()).collect();
    let relays: Vec<String> = servers.iter().map(relay).collect();
    let one = shortest(|| list_devices(&relays[0]));
    let four = shortest(|| list_devices(&relays.join(",")));
    assert!(one >= DELAY, "the relay delays: {one:?}");
    assert!(four < one + DELAY, "one server takes {one:?}, four take {four:?}");
    let run = |list: &str| {
        let program = Program::new("devices").env("OUTBOARD_TRANSPORT", "tcp");
        shortest(|| program.through_list(list))
    };
    let (one, four) = (run(&relays[0]), run(&relays.join(",")));
    assert!(four < one + 2 * DELAY, "`outboard run`: one takes {one:?}, four take {four:?}");
}

/// Each of 32 servers gets addresses of its own, and its device works.
#[test]
fn thirty_two_servers_work_in_one_process() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about many servers, of which this machine's GPUs hold few");
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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
