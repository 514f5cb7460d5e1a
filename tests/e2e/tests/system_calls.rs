//! System calls and forked children reach page-locked memory that kernels have used, as natively.

use outboard_e2e::{Folder, Outcome, Program, Server};
use outboard_test_support::skip;

#[test]
fn system_calls_and_children_reach_page_locked_memory() {
    let server = Server::start();
    for is_shared in [false, true] {
        all_right(&through(&server, is_shared, "children"), 3);
    }
}

#[test]
fn system_calls_reach_closed_pages_where_the_kernel_watches_them() {
    if !watches_pages() {
        skip!("the kernel lets this process have no userfaultfd for the system's own touches");
    }
    let server = Server::start();
    for is_shared in [false, true] {
        all_right(&through(&server, is_shared, "closed"), 4);
    }
}

#[test]
fn a_warning_says_that_system_calls_may_not_reach_closed_pages() {
    let (server, folder) = (Server::start(), Folder::create());
    let log = folder.path("log");
    for (program, warnings) in [("managed_memory", 1), ("mapped_memory", 0)] {
        let program = Program::new(program).env("OUTBOARD_PAGE_TOUCHES", "signals");
        program.env("CUDA_LOG_FILE", &log).through(&server).expect_success("with a log");
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let warning = "[CUDA][W] the program has managed memory, or more page-locked memory";
        assert_eq!(said.matches(warning).count(), warnings, "{said}");
        let _ = std::fs::remove_file(&log);
    }
}

fn through(server: &Server, is_shared: bool, what: &str) -> Outcome {
    let program = Program::new("system_calls").arg(what);
    let program = match is_shared {
        true => program.sharing_memory(),
        false => program.env("OUTBOARD_TRANSPORT", "tcp"),
    };
    program.through(server)
}

fn all_right(outcome: &Outcome, kinds: usize) {
    outcome.expect_success("memory that kernels have used");
    assert_eq!(outcome.stdout.matches(": right\n").count(), kinds, "{}", outcome.stdout);
}

/// Whether this is Linux 6.4 or later, and lets this process have touches of the system told.
fn watches_pages() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next(), numbers.next());
    // SAFETY: it watches nothing.
    let given = unsafe { rustix::mm::userfaultfd(rustix::mm::UserfaultfdFlags::CLOEXEC) };
    version >= (Some(6), Some(4)) && given.is_ok()
}
