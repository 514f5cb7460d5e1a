//! Kernels that the software device cannot run leave an error that the program sees, whoever
//! launched them.

use outboard_e2e::{Driver, Program, Server};
use outboard_test_support::skip;

#[test]
fn a_kernel_without_ptx_is_told_of() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let server = Server::start();
    let outcome = Program::new("no_ptx").through(&server);
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(outcome.stdout.contains("a wait says so, too"), "{outcome:?}");
    let sentences = outcome.stderr.matches("machine code for sm_90 and no PTX").count();
    assert_eq!(sentences, 1, "{outcome:?}");
}
