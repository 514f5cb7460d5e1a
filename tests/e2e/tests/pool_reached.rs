//! Servers of a pool that cannot be reached: no program is started in vain.

use std::process::Output;

use outboard_pool::words::Condition;

use crate::pool_servers::{Pool, view};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn condition(pool: &Pool, at: usize) -> Condition {
    view(&pool.admin).servers[at].condition
}

#[test]
fn a_server_that_stops_has_signed_off() {
    let mut pool = Pool::start(2);
    // One that is used was heard a moment ago, and is heard again in a second only.
    assert!(pool.run(&["--gpus", "1", "--near", "rack=r0"]).status.success());
    let status = pool.servers[0].terminate().expect("it ends");
    assert_eq!(condition(&pool, 0), Condition::Draining, "{}", pool.servers[0].log());
    assert!(status.success());
    let output = pool.run(&["--gpus", "1", "--near", "rack=r0"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(!said(&output).contains("given back"), "{}", said(&output));
}

#[test]
fn a_program_gets_other_devices_if_a_server_is_not_reached() {
    let mut pool = Pool::start(2);
    pool.servers[0].kill();
    let output = pool.run(&["--gpus", "1", "--near", "rack=r0"]);
    assert!(output.status.success(), "{}", said(&output));
    let sentence = format!("nothing listens at {}", pool.servers[0].address());
    assert!(said(&output).contains("a device of gpu0"), "{}", said(&output));
    assert!(said(&output).contains(&sentence), "{}", said(&output));
    assert!(said(&output).contains("lease 1 is given back"), "{}", said(&output));
}

#[test]
fn no_program_is_started_if_there_are_no_other_devices() {
    let mut pool = Pool::start(2);
    pool.servers[0].kill();
    let output = pool.run(&["--gpus", "2", "--spread"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(output.stdout.is_empty(), "the program was started: {output:?}");
    let said = said(&output);
    assert!(said.contains("OB0101") && said.contains("a device of gpu0"), "{said}");
    assert!(said.contains("such a device is free on 1"), "{said}");
    // What it had of the other one is free again.
    assert!(pool.run(&["--gpus", "1", "--near", "rack=r1"]).status.success());
}

#[test]
fn what_is_kept_for_a_program_that_uses_no_device_is_free_with_its_lease() {
    let pool = Pool::start(1);
    let output = pool.shell(&["--gpus", "1"], "true").wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", said(&output));
    assert!(pool.is_free());
    let begin = std::time::Instant::now();
    let output = pool.run(&["--gpus", "1"]);
    assert!(output.status.success(), "{}", said(&output));
    let took = begin.elapsed();
    assert!(took < std::time::Duration::from_secs(20), "it took {took:?}: {}", said(&output));
}
