//! What processes of one server share: who may open it, and for how long. And devices of one server
//! that use each other's memory.

use std::time::Duration;

use outboard_e2e::{Driver, Program, RawClient, Server, within};
use outboard_test_support::skip;
use outboard_wire::messages::{ContextLeave, MemoryInfo};

/// What trying to open a handle comes to.
fn open(handle: &str, server: &Server) -> String {
    let outcome = Program::new("ipc").arg("open").arg(handle).through(server);
    outcome.expect_success("ipc open");
    outcome.stdout.trim().to_owned()
}

/// The handle with one digit changed.
fn changed(handle: &str, at: usize) -> String {
    let digit = if &handle[at..=at] == "0" { "1" } else { "0" };
    format!("{}{digit}{}", &handle[..at], &handle[at + 1..])
}

#[test]
fn a_handle_opens_only_while_its_session_lasts() {
    let (server, other) = (Server::start(), Server::start());
    let mut exporter = Program::new("ipc").arg("export").start_through(&server);
    exporter.wait_for_line("exported");
    let handle = exporter.seen().lines().next().expect("a handle").to_owned();
    assert_eq!(open(&handle, &server), "opened");
    // Its numbers are in the second 16 bytes; around them is what says that it is a handle of ours.
    for at in [0, 31, 32, 47, 63, 64, 127] {
        assert_eq!(open(&changed(&handle, at), &server), "refused", "digit {at}");
    }
    assert_eq!(open(&handle, &other), "refused", "by another server");
    exporter.kill();
    assert!(
        within(Duration::from_secs(10), || server.workers().is_empty()),
        "the exporter's session has ended"
    );
    assert_eq!(open(&handle, &server), "refused", "after the end of its session");
}

/// A process that ends waits for its memory to be free, so that the next program finds it, but not
/// for a context that holds little.
#[test]
fn a_process_that_ends_frees_much_memory_before_it_is_gone() {
    let server = Server::start();
    let mut little = RawClient::connect(&server);
    little.open();
    little.alloc(1 << 20).expect("there is memory");
    little.call(&ContextLeave {}, |_| ()).expect("an answer");
    let mut much = RawClient::connect(&server);
    much.open();
    // A process has memory of a GPU for as long as it lives, with a context or without.
    let (free, _) = little
        .call(&MemoryInfo {}, |reply| (reply.free, reply.total))
        .expect("the context is there yet");
    much.alloc(512 << 20).expect("there is memory");
    much.call(&ContextLeave {}, |_| ()).expect("an answer");
    assert!(much.call(&MemoryInfo {}, |_| ()).is_err(), "the context is gone");
    let (after, _) = little
        .call(&MemoryInfo {}, |reply| (reply.free, reply.total))
        .expect("the context is there yet");
    assert!(after >= free - (64 << 20), "{free} bytes were free, then {after}");
}

#[test]
fn devices_of_a_server_use_each_others_memory() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let two = [("OUTBOARD_CPU_DEVICES", "2"), ("OUTBOARD_CPU_MEMORY", "256M")];
    let direct = two
        .iter()
        .fold(Program::new("peer"), |program, (name, value)| program.env(name, value))
        .directly();
    direct.expect_success("peer, directly");
    let server = Server::start_with(&["--driver", "cpu"], &two);
    let through = Program::new("peer").through(&server);
    through.expect_success("peer, through a server");
    assert!(
        direct.stdout.ends_with("peer: done\n") && direct.stdout == through.stdout,
        "{}",
        through.stdout
    );
}
