//! Page-locked and managed memory that kernels of devices of several servers use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outboard_e2e::{Driver, Program, Server, list, reaching_loopback};
use outboard_test_support::skip;
use rustix::process::{Pid, Signal, kill_process};

use crate::proxy::Proxy;

/// Memory of a software device.
const MEMORY: (&str, &str) = ("OUTBOARD_CPU_MEMORY", "256M");

fn server_with(devices: &str, arguments: &[&str]) -> Server {
    let arguments = [&["--driver", Driver::chosen().name()], arguments].concat();
    Server::start_with(&reaching_loopback(&arguments), &[("OUTBOARD_CPU_DEVICES", devices), MEMORY])
}

fn server() -> Server {
    server_with("1", &[])
}

/// All parts of the program, of which each checks its own results.
fn works(list: &str, transport: &str) {
    let program = Program::new("common_memory").env("OUTBOARD_TRANSPORT", transport);
    let outcome =
        program.env("OUTBOARD_LOCAL_DRIVER", Driver::chosen().name()).env(MEMORY.0, MEMORY.1);
    let outcome = outcome.through_list(list);
    outcome.expect_success("memory that all devices use");
    assert!(outcome.stdout.ends_with("common memory: done\n"), "{}", outcome.stdout);
    assert_eq!(outcome.stdout.matches(": ok\n").count(), 28, "{}", outcome.stdout);
}

#[test]
fn two_devices_of_one_server_use_it() {
    if Driver::chosen() != Driver::Cpu {
        skip!("the GPUs of this machine may be one");
    }
    works(server_with("2", &[]).address(), "tcp");
}

#[test]
fn two_servers_use_it_over_tcp() {
    works(&list(&[server(), server()]), "tcp");
}

#[test]
fn two_servers_use_it_in_shared_memory() {
    works(&list(&[server(), server()]), "shm");
}

#[test]
fn three_servers_use_it() {
    works(&list(&[server(), server(), server()]), "tcp");
}

/// Numbers that a kernel has counted up go to a server that works together, not one by one: each
/// changes in one of its bytes.
#[test]
fn numbers_that_changed_go_to_servers_in_few_commands() {
    let program = Program::new("common_memory").arg("events").env("OUTBOARD_TRANSPORT", "tcp");
    let said = program.statistics_of_list(&list(&[server(), server()]));
    for server in said["servers"].as_array().expect("servers") {
        let posted = server["posted"].as_u64().expect("a number");
        // For 128 kernels; one by one, the numbers take some 500,000.
        assert!(posted < 20_000, "{posted} commands: {server}");
    }
}

/// Some have the program's own pages, and some do not.
#[test]
fn servers_near_and_far_use_it() {
    let far = server_with("1", &["--socket", "none"]);
    let near = [server(), server()];
    works(&format!("{},local/0", far.address()), "");
    works(&format!("{},{}", list(&near), far.address()), "");
}

/// The others keep the memory when a server is lost, also what was made for that server's device.
#[test]
fn a_lost_server_takes_no_memory_along() {
    for transport in ["tcp", "shm"] {
        let servers = [server(), server(), server()];
        let program =
            Program::new("common_memory").arg("lost").env("OUTBOARD_TRANSPORT", transport);
        let mut running = program.env("OUTBOARD_LOG", "1").start_through_list(&list(&servers));
        running.wait_for_line("waiting");
        let worker = Pid::from_raw(servers[2].only_worker() as i32).expect("a process");
        kill_process(worker, Signal::KILL).expect("it runs");
        let outcome = running.finish();
        outcome.expect_success("the other servers' devices");
        assert!(outcome.stdout.ends_with("lost: done\n"), "{}{}", outcome.stdout, outcome.stderr);
    }
}

/// Connections that break are replaced, and nothing is lost or done twice.
#[test]
fn cut_connections_change_nothing() {
    let servers = [server(), server()];
    let proxy = Proxy::start(servers[1].address());
    let both = format!("{},{}", servers[0].address(), proxy.address());
    for part in ["turns", "events", "random"] {
        let program = Program::new("common_memory").arg(part).env("OUTBOARD_TRANSPORT", "tcp");
        let (is_over, cuts) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut running = program.start_through_list(&both);
        // A session that has not begun cannot be resumed.
        running.wait_for_line("begun");
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if proxy.cut(None) > 0 {
                        cuts.store(true, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let outcome = running.finish();
            is_over.store(true, Ordering::Relaxed);
            outcome
        });
        outcome.expect_success(part);
        assert!(outcome.stdout.ends_with("common memory: done\n"), "{}", outcome.stdout);
        assert!(cuts.load(Ordering::Relaxed), "{part} was over before its connections were cut");
    }
}
