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

#[test]
fn a_load_that_a_library_drops_is_told_of_by_the_next_wait() {
    let software = Driver::chosen() == Driver::Cpu;
    let server = Server::start();
    let library = outboard_e2e::programs().join("libcufft_stand_in");
    let program = Program::new("dropped_loads").arg(&library.display().to_string());
    for outcome in [program.directly(), program.through(&server)] {
        assert!(outcome.status.success(), "{outcome:?}");
        let dropped = if software { "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" } else { "CUDA_SUCCESS" };
        for (when, wanted) in [
            ("after a module", "CUDA_SUCCESS"),
            ("after a module with options", "CUDA_SUCCESS"),
            ("after a library", "CUDA_SUCCESS"),
            ("after what a library did", dropped),
            ("once more", "CUDA_SUCCESS"),
        ] {
            let line = format!("a wait {when}: {wanted}");
            assert!(outcome.stdout.lines().any(|said| said == line), "{line}: {outcome:?}");
        }
        let sentences = outcome.stderr.matches("outboard: ").count();
        assert_eq!(sentences, usize::from(software), "{outcome:?}");
    }
}
