//! Sessions through memory that a virtual machine and its host share. A file in `/dev/shm` stands
//! for the machine's device, which is what it is to the server, and to the client after it has
//! mapped it; `cargo xtask vm --ivshmem` has the device itself.

use std::time::Duration;

use outboard_e2e::{
    Driver, Folder, Forwarder, Outcome, Program, Server, SharedFile, compare_suite, known_to,
    programs, within,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// Room for one session, and in it for one connection.
const ONE: u64 = 1 << 20;
/// Room for two sessions, and in either for all of its connections.
const TWO: u64 = 20 << 20;

/// What a virtual machine and its host share.
struct Shared(SharedFile);

impl Shared {
    fn create(bytes: u64) -> Shared {
        Shared(SharedFile::create(bytes))
    }

    fn path(&self) -> &str {
        self.0.path()
    }

    /// A server that shares it.
    fn serve(&self, flags: &[&str]) -> Server {
        let own = ["--driver", Driver::chosen().name(), "--ivshmem", self.path()];
        Server::start_with(&[&own, flags].concat(), &[])
    }

    /// A program that has it, and uses it or fails.
    fn program(&self, name: &str) -> Program {
        self.given(name).env("OUTBOARD_TRANSPORT", "ivshmem").env("OUTBOARD_LOG", "1")
    }

    /// A program that has it.
    fn given(&self, name: &str) -> Program {
        Program::new(name).env("OUTBOARD_IVSHMEM", self.path()).env("OUTBOARD_TRANSPORT", "auto")
    }
}

/// Programs that have this memory run over the network, and all that speaks of their sessions says
/// why.
fn says_why(memory: &Shared, server: &Server, wanted: &str) {
    let burst = memory.given("burst").env("OUTBOARD_LOG", "1").through(server);
    burst.expect_success("burst");
    let outboard = |arguments: &[&str]| {
        let mut command = outboard_e2e::command();
        command.args(arguments).env("OUTBOARD_IVSHMEM", memory.path());
        command.output().expect("outboard starts")
    };
    let doctor = outboard(&["doctor", "--json", "--server", server.address()]).stdout;
    let report: Value = serde_json::from_slice(&doctor).expect("a report");
    let mut findings = report["findings"].as_array().expect("a list").iter();
    let session = findings.find(|finding| finding["check"] == "session").expect("it is opened");
    let program = programs().join("burst");
    let program = program.to_str().expect("a plain path");
    let run = outboard(&["run", "--stats", "--server", server.address(), "--", program]);
    let stats = String::from_utf8_lossy(&run.stderr).into_owned();
    for said in [burst.stderr, session.to_string(), stats] {
        let is_said = said.contains("does not use ivshmem: ") && said.contains(wanted);
        assert!(is_said, "{wanted}: {said}");
    }
}

fn expect_refused(outcome: &Outcome, wanted: &str) {
    assert!(!outcome.status.success(), "it does not run");
    assert!(outcome.stderr.contains(wanted), "{wanted}: {}", outcome.stderr);
}

#[test]
fn programs_run_through_the_memory() {
    let shared = Shared::create(TWO);
    let server = shared.serve(&[]);
    let given = |program: Program| {
        program.env("OUTBOARD_IVSHMEM", shared.path()).env("OUTBOARD_TRANSPORT", "ivshmem")
    };
    compare_suite(given, |program| program.through(&server));
    shared.program("big_copy").arg("4").through(&server).expect_success("big_copy");
    let mut program = shared.program("endless").arg("16").start_through(&server);
    program.wait_for_line("running");
    server.travels_by("ivshmem");
    program.kill();
    assert!(within(PATIENCE, || server.workers().is_empty()), "the worker sees the end");
}

#[test]
fn sessions_move_by_themselves_where_they_cannot_share_all_memory() {
    let shared = Shared::create(TWO);
    let server = shared.serve(&["--socket", "none"]);
    let mut moves = shared.given("endless").arg("16").start_through(&server);
    moves.wait_for_line("running");
    server.travels_by("ivshmem");
    let server = shared.serve(&[]);
    let mut shares = shared.given("endless").arg("16").start_through(&server);
    shares.wait_for_line("running");
    server.travels_by("shm");
}

#[test]
fn bytes_stay_encrypted() {
    let (shared, folder) = (Shared::create(TWO), Folder::create());
    let state = folder.path("state");
    let known = known_to(&state);
    let server = shared.serve(&["--state", &state, "--require-authentication", "--tls", "on"]);
    let outcome = known(shared.program("errors")).through(&server);
    outcome.expect_success("errors");
    assert!(outcome.taken < PATIENCE / 2, "it took {:?}", outcome.taken);
    let mut program = known(shared.program("endless")).arg("16").start_through(&server);
    program.wait_for_line("running");
    server.travels_by("ivshmem+tls");
}

/// As the connections of a virtual machine are that a hypervisor forwards.
#[test]
fn a_session_of_a_virtual_machine_goes_on_there_when_its_connections_break() {
    let (shared, folder) = (Shared::create(TWO), Folder::create());
    let place = folder.path("v.sock");
    let server = shared.serve(&["--vsock", &place, "--allow-anonymous", "--closed-grace", "60"]);
    let forwarder = Forwarder::to(&format!("{place}_9470"));
    let mut program = shared.program("endless").arg("16").start_through_list(&forwarder.address);
    program.wait_for_line("running");
    server.travels_by("ivshmem");
    for time in 1..=3 {
        assert!(forwarder.cut() > 0, "the session has connections");
        let is_back = || server.log().matches("the client is back").count() >= time;
        assert!(within(PATIENCE, is_back), "{}", server.log());
        server.travels_by("ivshmem");
        assert!(!program.has_ended(), "{}", program.seen());
    }
}

/// Large copies are under way on every lane.
#[test]
fn copies_go_on_when_their_connections_break() {
    let (shared, folder) = (Shared::create(TWO), Folder::create());
    let place = folder.path("v.sock");
    let server = shared.serve(&["--vsock", &place, "--allow-anonymous", "--closed-grace", "60"]);
    let forwarder = Forwarder::to(&format!("{place}_9470"));
    let program = shared.program("big_copy").arg("100").start_through_list(&forwarder.address);
    server.travels_by("ivshmem");
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(300));
        forwarder.cut();
    }
    program.finish().expect_success("big_copy");
}

#[test]
fn a_worker_that_is_killed_leaves_its_part_to_others() {
    let shared = Shared::create(ONE);
    let server = shared.serve(&["--warm", "0"]);
    let mut program = shared.program("endless").arg("16").start_through(&server);
    program.wait_for_line("running");
    server.travels_by("ivshmem");
    expect_refused(&shared.program("burst").through(&server), "all 1 parts");
    let worker = i32::try_from(server.only_worker()).expect("a process");
    let worker = rustix::process::Pid::from_raw(worker).expect("a process");
    rustix::process::kill_process(worker, rustix::process::Signal::KILL).expect("it can be killed");
    assert!(within(PATIENCE, || server.workers().is_empty()), "it has ended");
    shared.program("burst").through(&server).expect_success("burst");
}

#[test]
fn who_finds_no_part_stays_with_the_network() {
    let shared = Shared::create(ONE);
    let server = shared.serve(&["--socket", "none"]);
    let mut first = shared.given("endless").arg("16").start_through(&server);
    first.wait_for_line("running");
    server.travels_by("ivshmem");
    shared.given("copies_2d_3d").through(&server).expect_success("copies_2d_3d");
    says_why(&shared, &server, "all 1 parts");
    first.kill();
    assert!(within(PATIENCE, || shared.program("burst").through(&server).status.success()));
}

#[test]
fn a_program_that_uses_the_network_says_why() {
    let (shared, other) = (Shared::create(ONE), Shared::create(ONE));
    let server = shared.serve(&["--socket", "none"]);
    says_why(&other, &server, "none of the server's regions");
    std::fs::remove_file(other.path()).expect("it was there");
    says_why(&other, &server, "No such file");
    let without =
        Server::start_with(&["--driver", Driver::chosen().name(), "--socket", "none"], &[]);
    says_why(&shared, &without, "runs without `--ivshmem`");
}

#[test]
fn parts_stay_with_their_sessions_when_the_server_is_upgraded() {
    let shared = Shared::create(ONE);
    let server = shared.serve(&[]);
    let mut program = shared.program("endless").arg("16").start_through(&server);
    program.wait_for_line("running");
    server.ask_to_upgrade();
    server.expect_upgrades(1);
    server.travels_by("ivshmem");
    expect_refused(&shared.program("burst").through(&server), "all 1 parts");
    assert!(!program.has_ended(), "{}", program.seen());
    program.kill();
    assert!(within(PATIENCE, || shared.program("burst").through(&server).status.success()));
}

#[test]
fn who_asks_for_the_memory_is_told_why_there_is_none() {
    let (shared, other) = (Shared::create(ONE), Shared::create(ONE));
    let server = shared.serve(&[]);
    let burst = |memory: &Shared| memory.program("burst").through(&server);
    expect_refused(&burst(&other), "none of the server's regions");
    let gone = other.path().to_owned();
    drop(other);
    let burst = shared.program("burst");
    let missing = burst.clone().env("OUTBOARD_IVSHMEM", &gone).through(&server);
    expect_refused(&missing, &gone);
    let off = burst.clone().env("OUTBOARD_IVSHMEM", "off").through(&server);
    expect_refused(&off, "no device");
    let without = Server::start();
    expect_refused(&burst.through(&without), "runs without `--ivshmem`");
    // A device whose machine has just been started serves the session after the first attempt,
    // which a program may make itself.
    let fresh = Shared::create(ONE);
    std::fs::copy(fresh.path(), shared.path()).expect("all zeros");
    let first = burst.through(&server);
    if !first.status.success() {
        expect_refused(&first, "serves the sessions that begin after");
    }
    burst.through(&server).expect_success("burst");
}
