//! What copies leave behind, those of graphs too.

use outboard_e2e::{Program, Server};

/// Mebibytes that a process has in memory.
fn resident(process: u32) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") >> 10
}

/// Mebibytes that a worker has in memory when its program, which runs over TCP and then stays, has
/// said this line.
fn used_behind(program: &str, line: &str) -> u64 {
    let server = Server::start();
    let program = Program::new(program).arg("60000").env("OUTBOARD_TRANSPORT", "tcp");
    let mut running = program.start_through(&server);
    running.wait_for_line(line);
    let used = resident(server.only_worker());
    running.kill();
    used
}

/// Staging memory of a copy is used again for the next one, though the program waits for nothing
/// else: 64 copies of 8 MiB must not take 512 MiB.
#[test]
fn a_program_that_only_copies_does_not_fill_the_servers_memory() {
    let used = used_behind("only_copies", "copied");
    assert!(used < 400, "the worker has {used} MiB in memory");
}

/// An executable graph that is changed before each launch does not keep what it needed before: 160
/// changes with copies of 2 MiB must not take 480 MiB.
#[test]
fn a_graph_that_is_changed_again_and_again_does_not_fill_the_servers_memory() {
    let used = used_behind("graph_steady", "changed");
    assert!(used < 300, "the worker has {used} MiB in memory");
}

/// The parts of `queued_copies` in which a stream stands still. `suite` runs the others alone, in
/// which streams hold few calls, over TCP and through shared memory.
const STANDING_STILL: std::ops::RangeInclusive<u8> = 5..=9;

/// Where a stream that stands still takes 1,020 calls before the caller waits, as NVIDIA's driver
/// has it, copies queued in it hold up no other stream.
#[test]
fn queued_copies_do_not_fill_a_stream_that_stands_still() {
    let server = Server::start_with(&[], &[("OUTBOARD_CPU_QUEUE", "1020")]);
    for transport in ["tcp", "shm"] {
        for part in STANDING_STILL {
            let program = Program::new("queued_copies").arg(&part.to_string());
            let said = program.env("OUTBOARD_TRANSPORT", transport).through(&server);
            said.expect_success(&format!("part {part} over {transport}"));
        }
    }
}
