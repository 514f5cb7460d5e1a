//! Memory that a program frees and allocates again: no round trip, and nobody lacks it.

use std::collections::BTreeMap;

use outboard_e2e::{Driver, Folder, Program, Server};
use outboard_test_support::skip;
use parking_lot::{Mutex, MutexGuard};

/// What is free of a GPU is everybody's: one test at a time. The software device has as much memory
/// for each session.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    (Driver::chosen() == Driver::Nvidia).then(|| TURN.lock())
}

/// A server of the device under test.
fn serve(args: &[&str]) -> Server {
    Server::start_with(&[&["--driver", Driver::chosen().name()], args].concat(), &[])
}

/// Round trips of a program by function, as the client library counts them.
fn round_trips(program: Program, server: &Server, folder: &Folder) -> BTreeMap<String, u64> {
    let file = folder.path("profile.json");
    program.env("OUTBOARD_PROFILE", &file).through(server).expect_success("credit");
    let text = std::fs::read(&file).expect("the program has left its profile");
    let profile: serde_json::Value = serde_json::from_slice(&text).expect("the profile is JSON");
    let functions = profile["functions"].as_object().expect("functions are told");
    let trips = |function: &serde_json::Value| {
        function["round_trips"].as_u64().expect("round trips are counted")
    };
    functions.iter().map(|(name, function)| (name.clone(), trips(function))).collect()
}

#[test]
fn memory_is_there_as_natively() {
    let _turn = turn();
    let folder = Folder::create();
    // A worker that gets ready would take memory of the device meanwhile.
    let server = serve(&["--socket", &folder.path("server.sock"), "--warm", "0"]);
    Program::new("credit").through(&server).expect_success("credit");
    Program::new("credit").sharing_memory().through(&server).expect_success("credit");
    let limited = serve(&["--session-memory", "1G"]);
    Program::new("credit").through(&limited).expect_success("credit");
}

#[test]
fn memory_that_is_freed_is_there_whatever_threads_do() {
    let _turn = turn();
    let server = serve(&["--warm", "0"]);
    Program::new("credit").arg("meanwhile").through(&server).expect_success("meanwhile");
    Program::new("credit").arg("beside").through(&server).expect_success("beside");
    let limited = serve(&["--session-memory", "1G"]);
    Program::new("credit").arg("beside").through(&limited).expect_success("beside");
}

#[test]
fn bursts_do_not_ask() {
    let _turn = turn();
    let (folder, server) = (Folder::create(), serve(&[]));
    let trips = round_trips(Program::new("credit").arg("bursts"), &server, &folder);
    let of = |name: &str| {
        trips.get(name).copied().unwrap_or_else(|| panic!("{name} is not among {trips:?}"))
    };
    // One for each size, and one for each further block that small allocations share.
    assert!(of("cuMemAlloc_v2") <= 8, "{trips:?}");
    // The context is known to be idle from the first wait on.
    assert!(of("cuMemFree_v2") <= 2, "{trips:?}");
}

#[test]
fn what_one_session_keeps_another_one_gets() {
    if Driver::chosen() != Driver::Nvidia {
        skip!("sessions of the software device have memory of their own each");
    }
    let _turn = turn();
    // A worker that gets ready would take memory of the device meanwhile.
    let (folder, server) = (Folder::create(), serve(&["--warm", "0"]));
    let stop = folder.path("stop");
    let mut holder =
        Program::new("credit").arg("hold").arg(&stop).start_through_list(server.address());
    holder.wait_for_line("held");
    // Of the 96 MiB that it has freed last.
    Program::new("credit").arg("all").arg("64").through(&server).expect_success("credit");
    std::fs::write(&stop, "").expect("a file");
    holder.finish().expect_success("hold");
}
