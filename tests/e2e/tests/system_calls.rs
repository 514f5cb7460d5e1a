//! System calls and forked children reach page-locked memory that kernels have used, as natively.

use outboard_e2e::{Program, Server};

#[test]
fn system_calls_and_children_reach_page_locked_memory() {
    let server = Server::start();
    for is_shared in [false, true] {
        let program = Program::new("system_calls").arg("children");
        let program = match is_shared {
            true => program.sharing_memory(),
            false => program.env("OUTBOARD_TRANSPORT", "tcp"),
        };
        let outcome = program.through(&server);
        outcome.expect_success("memory that kernels have used");
        assert_eq!(outcome.stdout.matches(": right\n").count(), 3, "{}", outcome.stdout);
    }
}
