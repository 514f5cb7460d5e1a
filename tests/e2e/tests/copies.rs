//! What copies leave behind, those of graphs too.

use outboard_e2e::{Program, Server};

/// Mebibytes that a process has in memory.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") >> 10
}

/// Staging memory of a copy is used again for the next one, though the program waits for nothing else: 64 copies of 8 MiB must not take 512 MiB.
#[test]
fn a_program_that_only_copies_does_not_fill_the_servers_memory() {
    let server = Server::start();
    let program = Program::new("only_copies").arg("60000").env("OUTBOARD_TRANSPORT", "tcp");
    let mut running = program.start_through(&server);
    running.wait_for_line("copied");
    let used = resident(server.only_worker());
    assert!(used < 400, "the worker has {used} MiB in memory");
    running.kill();
}

/// An executable graph that is changed before each launch does not keep what it needed before: 160 changes with copies of 2 MiB must not take 480 MiB.
#[test]
fn a_graph_that_is_changed_again_and_again_does_not_fill_the_servers_memory() {
    let server = Server::start();
    let program = Program::new("graph_steady").arg("60000").env("OUTBOARD_TRANSPORT", "tcp");
    let mut running = program.start_through(&server);
    running.wait_for_line("changed");
    let used = resident(server.only_worker());
    assert!(used < 300, "the worker has {used} MiB in memory");
    running.kill();
}
