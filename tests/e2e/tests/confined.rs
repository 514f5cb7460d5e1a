//! Workers are confined before they read a byte of their client. What each layer of the sandbox stops is shown by `outboard-server`'s own test.

use outboard_e2e::{Program, Server};
use std::fs;

/// A line of a thread's status.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim)
}

fn statuses_of_a_worker(server: &Server) -> Vec<String> {
    let mut program = Program::new("endless").arg("4").start_through(server);
    program.wait_for_line("running");
    let tasks = fs::read_dir(format!("/proc/{}/task", server.only_worker())).expect("the worker runs");
    let statuses = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect();
    program.kill();
    statuses
}

#[test]
fn every_thread_of_a_worker_is_filtered_and_gains_no_privileges() {
    let server = Server::start_with(&["--driver", "cpu", "--sandbox", "strict"], &[]);
    let statuses = statuses_of_a_worker(&server);
    assert!(statuses.len() > 1, "a worker at work has several threads");
    for status in &statuses {
        assert_eq!(field(status, "NoNewPrivs:"), "1", "{status}");
        assert_eq!(field(status, "Seccomp:"), "2", "{status}");
    }
}

#[test]
fn there_is_no_sandbox_unless_it_is_asked_for() {
    let server = Server::start_with(&["--driver", "cpu"], &[]);
    for status in &statuses_of_a_worker(&server) {
        assert_eq!(field(status, "Seccomp:"), field(&own_status(), "Seccomp:"), "{status}");
    }
}

/// What a sandbox might forbid by mistake: compiled code, host threads, memory shared by processes, errors, copies on lanes.
#[test]
fn programs_run_in_the_sandbox() {
    let server = Server::start_with(&["--driver", "cpu", "--sandbox", "strict"], &[]);
    for program in
        ["thrust_algorithms", "ipc", "shareable_handles", "device_printf", "big_copy", "fault_trap", "mapped_memory"]
    {
        Program::new(program).through(&server).expect_success(program);
    }
}

fn own_status() -> String {
    fs::read_to_string("/proc/self/status").expect("this process has a status")
}
