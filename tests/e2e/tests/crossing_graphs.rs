//! Graphs whose nodes are on several servers.

use outboard_e2e::{Driver, Program, Server, reaching_loopback};
use outboard_test_support::skip;
use rustix::process::{Pid, Signal, kill_process};

fn server(devices: &str) -> Server {
    let env = [("OUTBOARD_CPU_DEVICES", devices), ("OUTBOARD_CPU_MEMORY", "256M")];
    Server::start_with(&reaching_loopback(&["--driver", Driver::chosen().name()]), &env)
}

/// One device of each.
fn list(servers: &[&Server]) -> String {
    let first = |server: &&Server| format!("{}/0", server.address());
    servers.iter().map(first).collect::<Vec<_>>().join(",")
}

/// The devices of servers, or of one, run graphs together.
fn run(list: &str, transport: &str) {
    let program = Program::new("crossing_graphs").env("OUTBOARD_TRANSPORT", transport);
    let outcome = program.through_list(list);
    outcome.expect_success("graphs that cross devices");
    assert!(outcome.stdout.ends_with("crossing graphs: done\n"), "{}", outcome.stdout);
}

#[test]
fn two_servers_run_graphs_together() {
    let (first, second) = (server("1"), server("1"));
    run(&list(&[&first, &second]), "tcp");
}

/// Of three servers, the first and the last one, in shared memory; the one between has nothing to
/// do.
#[test]
fn two_of_three_servers_run_graphs_together() {
    let servers = [server("1"), server("1"), server("1")];
    run(&list(&servers.each_ref()), "shm");
}

#[test]
fn devices_of_one_server_run_graphs_alike() {
    if Driver::chosen() != Driver::Cpu {
        skip!("the GPUs of this machine may be one");
    }
    run(server("2").address(), "tcp");
}

/// Parts of the program that work where bytes go through the client: all but `memory and
/// conditions`, for which NVIDIA's driver needs a link.
const PARTS_WITHOUT_LINK: [&str; 9] = [
    "capture", "fills", "order", "pipeline", "shapes", "updates", "children", "the rest", "threads",
];

/// Bytes go from server to server, or through the client where they cannot.
#[test]
fn bytes_of_graphs_pass_no_client() {
    let counts = |servers: [&Server; 2], part: &str| {
        let program = Program::new("crossing_graphs").arg("0").arg("1").arg(part);
        let statistics = program.statistics_of_list(&list(&servers));
        ["bytes_linked", "bytes_relayed"].map(|name| statistics[name].as_u64().expect("a number"))
    };
    let (first, second) = (server("1"), server("1"));
    for part in ["capture", "pipeline", "shapes"] {
        let [linked, relayed] = counts([&first, &second], part);
        assert!(linked > 1 << 20 && relayed == 0, "{part}: {linked} {relayed}");
    }
    let driver = ["--driver", Driver::chosen().name(), "--peers", "none"];
    let apart = Server::start_with(&driver, &[("OUTBOARD_CPU_MEMORY", "256M")]);
    for part in PARTS_WITHOUT_LINK {
        let program = Program::new("crossing_graphs").arg("0").arg("1").arg(part);
        let outcome = program.through_list(&list(&[&apart, &second]));
        outcome.expect_success(part);
        assert!(outcome.stdout.contains(part), "{}", outcome.stdout);
    }
    let [linked, relayed] = counts([&apart, &second], "capture");
    assert!(linked == 0 && relayed > 10 << 20, "{linked} {relayed}");
}

/// A launch that waits for a server that is lost goes on, and the next wait returns the error.
#[test]
fn a_launch_that_waits_for_a_server_that_is_lost_goes_on() {
    let (first, second) = (server("1"), server("1"));
    let program = Program::new("crossing_graphs").arg("lost");
    let mut running = program.start_through_list(&list(&[&first, &second]));
    running.wait_for_line("waiting");
    let worker = Pid::from_raw(second.only_worker() as i32).expect("a process");
    kill_process(worker, Signal::KILL).expect("it runs");
    let outcome = running.finish();
    outcome.expect_success("the first server's device");
    assert!(outcome.stdout.ends_with("the other server goes on\n"), "{}", outcome.stdout);
}
