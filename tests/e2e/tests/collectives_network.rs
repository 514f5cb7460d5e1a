//! How collectives find the other servers: over sockets that supervisors make, since workers are
//! in their sandbox, and where `--peers` lets them.

use std::fs;
use std::net::Ipv4Addr;

use outboard_e2e::{Folder, Outcome, Program, Running, Server, programs, reaching_loopback};

/// A server with one device, in the sandbox.
fn server(listen: &str, flags: &[&str]) -> Server {
    let library = programs().join("fake_nccl");
    let library = library.to_str().expect("a plain path");
    let own = ["--driver", "cpu", "--nccl", library];
    let device = [("OUTBOARD_CPU_DEVICES", "1"), ("OUTBOARD_CPU_MEMORY", "256M")];
    Server::start_at(listen, &reaching_loopback(&[&own[..], flags].concat()), &device)
}

/// Two ranks, each a program with one of the servers.
fn start(how: &str, servers: [&Server; 2]) -> (Folder, Vec<Running>) {
    let folder = Folder::create();
    let file = folder.path("id");
    let rank = |(rank, server): (usize, &Server)| {
        let program = Program::new("collectives").arg(how).arg(&file);
        program.arg(&rank.to_string()).arg("2").start_through(server)
    };
    let running = servers.into_iter().enumerate().map(rank).collect();
    (folder, running)
}

fn finish(running: Vec<Running>) -> Vec<Outcome> {
    running.into_iter().map(Running::finish).collect()
}

/// The two ends of each connection of this machine over IPv4.
fn connections() -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let address = |text: &str| {
        let number = u32::from_str_radix(text.split(':').next()?, 16).ok()?;
        Some(Ipv4Addr::from(number.to_ne_bytes()))
    };
    let table = fs::read_to_string("/proc/net/tcp").expect("the system tells");
    let connection = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_made = *words.get(3)? == "01";
        is_made.then_some((address(words.get(1)?)?, address(words.get(2)?)?))
    };
    table.lines().skip(1).filter_map(connection).collect()
}

#[test]
fn ranks_of_two_servers_connect_from_the_servers_own_addresses() {
    let servers = ["127.0.0.71:0", "127.0.0.72:0"].map(|listen| server(listen, &[]));
    let servers = servers.each_ref();
    let (_folder, running) = start("rank", servers);
    for outcome in finish(running) {
        outcome.expect_success("a rank");
    }
    // The program goes on until a rank is lost.
    let (_folder, mut running) = start("lost", servers);
    for rank in &mut running {
        rank.wait_for_line("ready");
    }
    let (one, other) = (Ipv4Addr::new(127, 0, 0, 71), Ipv4Addr::new(127, 0, 0, 72));
    let found = connections();
    let between = found.iter().filter(|ends| **ends == (other, one)).count();
    assert!(between >= 2, "{found:?}");
    for mut rank in running {
        rank.kill();
    }
}

/// The sockets of a communicator are the workers', and further ones come from the next supervisor.
#[test]
fn communicators_go_on_and_are_made_while_servers_are_upgraded() {
    let servers = ["127.0.0.73:0", "127.0.0.74:0"].map(|listen| server(listen, &[]));
    let folder = Folder::create();
    let (id, go) = (folder.path("id"), folder.path("go"));
    let rank = |(rank, server): (usize, &Server)| {
        let program = Program::new("collectives_later").arg(&id).arg(&rank.to_string());
        program.arg("2").arg(&go).start_through(server)
    };
    let mut running: Vec<Running> = servers.iter().enumerate().map(rank).collect();
    for rank in &mut running {
        rank.wait_for_line("ready");
    }
    for server in &servers {
        server.ask_to_upgrade();
    }
    for server in &servers {
        server.expect_upgrades(1);
    }
    folder.write("go", "");
    for outcome in finish(running) {
        outcome.expect_success("a rank");
    }
}

#[test]
fn a_server_that_connects_to_no_others_makes_no_collectives_and_says_why() {
    let server = server("127.0.0.1:0", &["--peers", "none"]);
    let said = Program::new("collectives").arg("refused").through(&server);
    said.expect_success("refused");
    assert!(said.stdout.contains("--peers none"), "{}", said.stdout);
}

#[test]
fn a_server_that_is_not_among_the_peers_is_not_connected_to() {
    let first = server("127.0.0.1:0", &[]);
    let second = server("127.0.0.1:0", &["--peers", "10.0.0.0/8"]);
    let (_folder, mut running) = start("rank", [&first, &second]);
    let refused = running.pop().expect("there are two").finish();
    assert!(!refused.status.success() && refused.stdout.contains("Permission denied"));
    second.expect_logged("--peers NETWORK");
    for mut rank in running {
        rank.kill();
    }
}

#[test]
fn the_interface_that_is_named_must_be_there() {
    let server = server("127.0.0.1:0", &["--peer-interface", "none7"]);
    let said = Program::new("collectives").arg("refused").through(&server);
    said.expect_success("refused");
    assert!(said.stdout.contains("--peer-interface"), "{}", said.stdout);
}

#[test]
fn a_server_without_nccl_where_packages_put_it_does_not_start() {
    let found = ["/usr/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/lib64/libnccl.so.2"];
    if found.iter().any(|file| fs::exists(file).unwrap_or(false)) {
        outboard_test_support::skip!("this machine has an NCCL of its own");
    }
    let mut command = outboard_e2e::command();
    command.args(["serve", "--driver", "cpu", "--nccl", "auto", "--listen", "127.0.0.1:0"]);
    command.env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX").env("OUTBOARD_CONFIG", "none");
    let output = command.output().expect("outboard starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("OB0309"), "{said}");
}
