//! System calls and forked children reach page-locked memory that kernels have used, as natively.

use outboard_e2e::{Outcome, Program, Server};
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
