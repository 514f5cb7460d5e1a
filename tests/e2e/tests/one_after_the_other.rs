//! A program right after another one, where the server has room for one: what has ended does not
//! count.

use outboard_e2e::{Program, Server};

/// So many programs, one after the other.
const PROGRAMS: usize = 30;

fn run_all(limits: &[&str], transport: &str) {
    let server = Server::start_with(&[&["--driver", "cpu"], limits].concat(), &[]);
    for number in 0..PROGRAMS {
        let program = Program::new("attributes").env("OUTBOARD_TRANSPORT", transport);
        let output = program.through(&server);
        let said = &output.stderr;
        assert!(output.status.success(), "program {number}, {limits:?}, {transport}: {said}");
    }
}

#[test]
fn one_session_of_an_owner_is_enough() {
    run_all(&["--owner-sessions", "1"], "tcp");
    run_all(&["--owner-sessions", "1"], "shm");
}

#[test]
fn one_session_of_the_server_is_enough() {
    run_all(&["--max-sessions", "1"], "tcp");
    run_all(&["--max-sessions", "1"], "shm");
}

#[test]
fn memory_for_one_session_is_enough() {
    run_all(&["--memory", "100M", "--session-memory", "80M"], "tcp");
    run_all(&["--memory", "100M", "--session-memory", "80M"], "shm");
}
