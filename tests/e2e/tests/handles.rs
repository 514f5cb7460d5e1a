//! Handles that mean nothing any more. Not in the suite: a native driver may crash on them.

use outboard_e2e::{Program, Server};

#[test]
fn destroyed_handles_are_told_from_live_ones() {
    let server = Server::start();
    Program::new("freed_handles").through(&server).expect_success("freed handles through a server");
}
