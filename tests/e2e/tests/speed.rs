//! How fast the software device is, against the same loops on the host.

use outboard_e2e::{Driver, Outcome, Program};
use outboard_test_support::skip;

const SIZE: &str = "512";
const ROUNDS: &str = "3";

/// Seconds for one product, as both programs tell it.
fn seconds(outcome: &Outcome) -> f64 {
    outcome.expect_success("a matrix product");
    let told = outcome.stderr.lines().find_map(|line| line.strip_prefix("seconds per product: "));
    told.and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("no time in {:?}", outcome.stderr))
}

#[test]
fn a_naive_matrix_product_takes_at_most_ten_times_the_loops_on_the_host() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let device =
        Program::new("matmul_naive").arg(SIZE).arg(ROUNDS).env("OUTBOARD_CPU_THREADS", &threads);
    let host = Program::new("matmul_host").arg(SIZE).arg(ROUNDS).arg(&threads);
    // Other work on the machine only ever adds, so the best of a few runs counts for both.
    let best = |program: &Program| {
        (0..3).map(|_| seconds(&program.directly())).fold(f64::INFINITY, f64::min)
    };
    let (device, host) = (best(&device), best(&host));
    assert!(
        device <= 10.0 * host,
        "{device:.3} s on the device, {host:.3} s on the host: {:.1} times",
        device / host
    );
}
