//! Processes that die in the middle: the other side notices soon, and nobody else does. Only a
//! program that was killed leaves its worker waiting for a while, as something between the two may
//! have closed the connection.

use outboard_e2e::{Driver, Program, Server, is_alive, within};
use std::time::{Duration, Instant};

/// Long before a silent peer counts as gone. On machines that had much to do, 1.1 s (an H200) and
/// 2.2 s (two processors) went by.
const SOON: Duration = Duration::from_secs(5);

/// A server that waits for one second for clients whose connection was closed.
fn server() -> Server {
    Server::start_with(&["--driver", Driver::chosen().name(), "--closed-grace", "1"], &[])
}

/// That second, and time for a machine that has much to do.
const KEPT: Duration = Duration::from_secs(10);

fn running(server: &Server) -> outboard_e2e::Running {
    let mut program = Program::new("endless").arg("64").start_through(server);
    program.wait_for_line("running");
    program
}

fn kill(process: u32) {
    let pid = rustix::process::Pid::from_raw(process as i32).expect("a process has a number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)
        .expect("the process is there");
}

#[test]
fn a_killed_worker_gives_its_program_a_lasting_error_and_spares_the_neighbour() {
    let server = Server::start();
    let program = running(&server);
    let worker = server.only_worker();
    let mut neighbour = running(&server);

    let killed = Instant::now();
    kill(worker);
    let outcome = program.finish();
    assert!(killed.elapsed() < SOON, "the program took {:?} to fail", killed.elapsed());
    assert_eq!(outcome.status.code(), Some(3), "{}{}", outcome.stdout, outcome.stderr);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(
        matches!(lines[..], ["running", error, "then the same"] if error.starts_with("cudaError")),
        "{lines:?}"
    );

    assert!(!neighbour.has_ended(), "the neighbour went on");
    // The server takes new clients, and the neighbour is there after them.
    Program::new("vector_add").through(&server).expect_success("a new client");
    assert!(!neighbour.has_ended(), "the neighbour went on");
}

#[test]
fn deaths_are_noticed_in_shared_memory() {
    let server = Server::start();
    let running = || {
        let mut program = Program::new("endless").arg("64").sharing_memory().start_through(&server);
        program.wait_for_line("running");
        program
    };
    let program = running();
    let killed = Instant::now();
    kill(server.only_worker());
    let outcome = program.finish();
    assert!(killed.elapsed() < SOON, "the program took {:?} to fail", killed.elapsed());
    assert_eq!(outcome.status.code(), Some(3), "{}{}", outcome.stdout, outcome.stderr);

    let mut program = running();
    server.only_worker();
    program.kill();
    assert!(within(SOON, || server.workers().is_empty()), "the worker ended soon");
}

/// The software device touches pages that the file no longer has, and its worker dies of that; a
/// driver that locks pages has kept them.
#[test]
fn a_file_whose_pages_are_taken_away_ends_its_own_session_at_most() {
    let server = Server::start();
    let mut neighbour = running(&server);
    for _ in 0..3 {
        let outcome = Program::new("truncated").sharing_memory().through(&server);
        assert_eq!(outcome.status.code(), Some(0), "{}{}", outcome.stdout, outcome.stderr);
        match Driver::chosen() {
            Driver::Cpu => assert!(outcome.stdout.starts_with("cudaError"), "{}", outcome.stdout),
            Driver::Nvidia => assert_eq!(outcome.stdout, "cudaSuccess\n"),
        }
    }
    assert!(!neighbour.has_ended(), "the neighbour went on");
    Program::new("vector_add").sharing_memory().through(&server).expect_success("a new client");
}

#[test]
fn a_program_whose_worker_dies_under_a_host_function_gets_the_same_error() {
    let server = Server::start();
    for _ in 0..5 {
        let mut program = Program::new("endless").arg("1").arg("functions").start_through(&server);
        program.wait_for_line("running");
        let killed = Instant::now();
        kill(server.only_worker());
        let outcome = program.finish();
        assert!(killed.elapsed() < SOON, "the program took {:?} to fail", killed.elapsed());
        assert_eq!(outcome.status.code(), Some(3), "{}{}", outcome.stdout, outcome.stderr);
    }
}

/// Asynchronous copies of registered memory, which is given back afterwards.
#[test]
fn a_program_whose_worker_dies_under_copies_gets_the_same_error() {
    let server = Server::start();
    for shares_memory in [true, false, true, true] {
        let program = Program::new("endless").arg("64").arg("copies");
        let program = if shares_memory { program.sharing_memory() } else { program };
        let mut program = program.start_through(&server);
        program.wait_for_line("running");
        let killed = Instant::now();
        kill(server.only_worker());
        let outcome = program.finish();
        assert!(killed.elapsed() < SOON, "the program took {:?} to fail", killed.elapsed());
        assert_eq!(outcome.status.code(), Some(3), "{}{}", outcome.stdout, outcome.stderr);
    }
}

#[test]
fn a_program_killed_in_a_host_function_frees_its_worker() {
    let server = server();
    let mut program = Program::new("endless").arg("1").arg("functions").start_through(&server);
    program.wait_for_line("running");
    server.only_worker();
    program.kill();
    assert!(within(KEPT, || server.workers().is_empty()), "the worker ended");
}

#[test]
fn a_killed_program_frees_its_worker_and_spares_the_neighbour() {
    let server = server();
    let mut program = running(&server);
    let worker = server.only_worker();
    let mut neighbour = running(&server);
    let neighbours_worker: Vec<u32> =
        server.workers().into_iter().filter(|process| *process != worker).collect();

    program.kill();
    assert!(within(KEPT, || server.workers() == neighbours_worker), "the worker ended");
    assert!(!neighbour.has_ended(), "the neighbour went on");
    Program::new("vector_add").through(&server).expect_success("a new client");
    assert!(!neighbour.has_ended(), "the neighbour went on");
}

#[test]
fn a_faulting_kernel_spares_the_neighbour() {
    let server = Server::start();
    let mut neighbour = running(&server);
    for fault in ["fault_address", "fault_trap", "fault_assert"] {
        Program::new(fault).through(&server).expect_success(fault);
    }
    assert!(!neighbour.has_ended(), "the neighbour went on");
}

#[test]
fn a_stopped_server_gives_its_programs_an_error_and_leaves_no_process() {
    let mut server = Server::start();
    let program = running(&server);
    let worker = server.only_worker();
    let status = server.terminate();
    assert_eq!(status.and_then(|status| status.code()), Some(0), "a clean stop: {}", server.log());
    let outcome = program.finish();
    assert_eq!(outcome.status.code(), Some(3), "{}{}", outcome.stdout, outcome.stderr);
    assert!(!is_alive(worker), "no worker is left");
}

#[test]
fn a_killed_server_that_notes_nothing_takes_its_workers_along() {
    // Its programs hope for so many seconds that it comes back.
    let args = ["--driver", Driver::chosen().name(), "--records", "none", "--grace", "2"];
    let server = Server::start_with(&args, &[]);
    let program = running(&server);
    let worker = server.only_worker();
    kill(server.id());
    let outcome = program.finish();
    assert_eq!(outcome.status.code(), Some(3), "{}{}", outcome.stdout, outcome.stderr);
    assert!(within(SOON, || !is_alive(worker)), "no worker is left");
}
