//! More managed memory than the device has: as natively, unless the session's share is smaller.

use outboard_e2e::{Driver, Outcome, Program, Server};

const ALL: &str = "0.5 of the device: cudaSuccess\n1.25 of the device: cudaSuccess\n\
     4 of the device: cudaSuccess\nof 24 sixteenths: all\nfreed\n";
const WITHIN_A_SHARE: &str = "0.5 of the device: cudaSuccess\n\
     1.25 of the device: cudaErrorMemoryAllocation\n4 of the device: cudaErrorMemoryAllocation\n\
     of 24 sixteenths: some\nfreed\n";

/// Of the software device.
const MEMORY: (&str, &str) = ("OUTBOARD_CPU_MEMORY", "256M");

fn program() -> Program {
    Program::new("managed_beyond")
}

fn server(more: &[&str], env: &[(&str, &str)]) -> Server {
    let driver = ["--driver", Driver::chosen().name()];
    Server::start_with(&[&driver, more].concat(), env)
}

fn expect(outcome: &Outcome, wanted: &str, way: &str) {
    outcome.expect_success(way);
    assert_eq!(outcome.stdout, wanted, "{way}");
}

#[test]
fn managed_memory_may_be_more_than_the_device_has() {
    expect(&program().env(MEMORY.0, MEMORY.1).directly(), ALL, "directly");
    let server = server(&[], &[MEMORY]);
    expect(&program().through(&server), ALL, "over TCP");
    expect(&program().sharing_memory().through(&server), ALL, "in shared memory");
}

#[test]
fn several_devices_have_it_too() {
    let server = server(&[], &[MEMORY, ("OUTBOARD_CPU_DEVICES", "2")]);
    expect(&program().through(&server), ALL, "two devices");
}

#[test]
fn it_counts_for_a_sessions_share() {
    let server = server(&["--session-memory", "256M"], &[]);
    expect(&program().through(&server), WITHIN_A_SHARE, "over TCP");
}
