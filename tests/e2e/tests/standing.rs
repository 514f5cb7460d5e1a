//! Servers that stop, are killed and start again, while programs run.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use outboard_e2e::{Driver, PATIENCE, Program, Running, Server, is_alive, within};

/// A file that a program waits for; removed when dropped.
struct Sign(PathBuf);

impl Sign {
    fn new(name: &str) -> Sign {
        Sign(std::env::temp_dir().join(format!("outboard-e2e-{name}-{}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }

    fn give(&self) {
        fs::write(&self.0, "").expect("the file can be written");
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn steady(server: &Server, end: &Sign) -> Running {
    let mut program = Program::new("steady").arg(end.path()).start_through(server);
    program.wait_for_line("running");
    program
}

fn end_well(program: Running, end: &Sign, what: &str) {
    end.give();
    let outcome = program.finish();
    outcome.expect_success(what);
    assert!(outcome.stdout.contains("rounds"), "{what}: {}", outcome.stdout);
}

fn survives(name: &str, server: &mut Server, start: impl Fn(&Server, &Sign) -> Running) {
    let end = Sign::new(name);
    let mut program = start(server, &end);
    let worker = server.only_worker();
    for _ in 0..2 {
        server.kill();
        assert!(!program.has_ended() && is_alive(worker), "the program went on without its server");
        server.start_again();
        Program::new("vector_add").through(server).expect_success("a new program");
        assert!(!program.has_ended() && is_alive(worker), "the program went on with its next server");
    }
    end_well(program, &end, name);
    assert!(within(PATIENCE, || !is_alive(worker) && server.records().is_empty()), "nothing is left");
}

#[test]
fn a_program_goes_on_when_its_server_is_killed_and_starts_again() {
    survives("killed", &mut Server::start(), steady);
}

#[test]
fn so_does_one_that_shares_memory_with_its_worker() {
    survives("killed-shm", &mut Server::start(), |server, end| {
        let mut program = Program::new("steady").arg(end.path()).sharing_memory().start_through(server);
        program.wait_for_line("running");
        program
    });
}

#[test]
fn so_does_one_whose_worker_is_confined() {
    let mut server = Server::start_with(&["--driver", Driver::chosen().name(), "--sandbox", "on"], &[]);
    survives("killed-confined", &mut server, steady);
}

#[test]
fn lanes_are_opened_with_the_next_server() {
    let mut server = Server::start();
    let (end, begin) = (Sign::new("lanes-end"), Sign::new("lanes-begin"));
    let mut program = Program::new("steady").arg(end.path()).arg(begin.path()).start_through(&server);
    program.wait_for_line("waiting");
    server.kill();
    server.start_again();
    begin.give();
    program.wait_for_line("running");
    end_well(program, &end, "the program");
}

#[test]
fn a_stopping_server_lets_a_program_finish_and_says_why_it_takes_no_other() {
    let mut server = Server::start_with(&["--driver", Driver::chosen().name(), "--drain", "600"], &[]);
    let end = Sign::new("drain");
    let mut program = steady(&server, &end);
    server.ask_to_stop();
    let refused = || {
        let outcome = Program::new("vector_add").through(&server);
        outcome.stderr.contains("the server is stopping and takes no new sessions")
    };
    assert!(within(PATIENCE, refused), "{}", server.log());
    assert!(!program.has_ended(), "the program went on");
    assert!(server.log().contains("waiting for sessions to end"), "{}", server.log());
    end_well(program, &end, "the program");
    let status = server.ended(Duration::from_secs(60));
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", server.log());
}
