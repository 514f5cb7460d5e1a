//! What a session may have of a server, and what it sees of it.

use outboard_e2e::{Driver, Program, Server};

/// A server of the device under test, with further arguments.
fn serve(args: &[&str]) -> Server {
    let all: Vec<&str> = ["--driver", Driver::chosen().name()].into_iter().chain(args.iter().copied()).collect();
    Server::start_with(&all, &[])
}

#[test]
fn a_session_sees_a_device_of_the_size_that_it_may_have() {
    let server = serve(&["--session-memory", "256M"]);
    let limited = Program::new("memory_limit").arg(&(256_u64 << 20).to_string()).through(&server);
    limited.expect_success("memory_limit");
    assert!(limited.stdout.contains("graphs end at the limit\nmemory_limit: done"), "{}", limited.stdout);
    // Programs that stay below it notice nothing.
    for program in ["memory_pools", "driver_memory"] {
        Program::new(program).through(&server).expect_success(program);
    }
}
