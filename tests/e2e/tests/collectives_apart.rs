//! Collectives of two servers that have a network among themselves, which their clients are not
//! in: each server is in a network namespace of its own.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use outboard_e2e::{Folder, Program, Running, Server, dist, programs};
use outboard_test_support::skip;

fn run(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().expect("a command")).args(words).output();
    output.is_ok_and(|output| output.status.success())
}

/// Two namespaces; each is connected with this one and with the other.
struct Networks {
    /// A number of this process's own.
    number: u32,
}

impl Networks {
    /// None if the system does not let us have them.
    fn make() -> Option<Networks> {
        let networks = Networks { number: std::process::id() };
        let number = networks.number;
        let [one, other] = networks.names();
        let net = |of: u32| networks.net(of);
        let mut made = run(&format!("ip netns add {one}"))
            && run(&format!("ip netns add {other}"))
            && run(&format!(
                "ip link add b{number} netns {one} type veth peer b{number} netns {other}"
            ));
        for (of, name) in [(1, &one), (2, &other)] {
            let (here, there) = (format!("a{number}n{of}"), format!("c{number}"));
            made = made
                && run(&format!("ip link add {here} type veth peer {there} netns {name}"))
                && run(&format!("ip addr add {}.1/24 dev {here}", net(of)))
                && run(&format!("ip link set {here} up"))
                && run(&format!("ip -n {name} addr add {}.2/24 dev {there}", net(of)))
                && run(&format!("ip -n {name} link set {there} up"))
                && run(&format!("ip -n {name} addr add {}.{of}/24 dev b{number}", net(0)))
                && run(&format!("ip -n {name} link set b{number} up"))
                && run(&format!("ip -n {name} link set lo up"));
        }
        made.then_some(networks)
    }

    fn names(&self) -> [String; 2] {
        [1, 2].map(|of| format!("obc{}-{of}", self.number))
    }

    /// The network with this one, or of both.
    fn net(&self, of: u32) -> String {
        format!("10.{}.{}", 232 + of, self.number % 250)
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for name in self.names() {
            // Its devices go with it, and so do their other ends.
            run(&format!("ip netns del {name}"));
        }
    }
}

/// The command in a namespace.
fn inside(folder: &Folder, name: &str) -> PathBuf {
    let outboard = dist().join("bin/outboard");
    let text = format!("#!/bin/sh\nexec ip netns exec {name} {} \"$@\"\n", outboard.display());
    let file = PathBuf::from(folder.write(&format!("in-{name}"), &text));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("the file is ours");
    file
}

#[test]
fn servers_connect_over_the_network_that_they_have_among_themselves() {
    let Some(networks) = Networks::make() else {
        skip!("this system lets us have no network namespaces");
    };
    let folder = Folder::create();
    let library = programs().join("fake_nccl");
    let (library, among) = (library.to_str().expect("a plain path"), networks.net(0) + ".0/24");
    let interface = format!("b{}", networks.number);
    let args = ["--driver", "cpu", "--nccl", library, "--tls", "off", "--allow-anonymous"];
    let own = ["--peers", &among, "--peer-interface", &interface];
    let device = [("OUTBOARD_CPU_DEVICES", "1"), ("OUTBOARD_CPU_MEMORY", "256M")];
    let server = |(of, name): (u32, &String)| {
        let listen = format!("{}.2:0", networks.net(of));
        let program = inside(&folder, name);
        Server::start_program_at(&program, &listen, &[&args[..], &own].concat(), &device)
    };
    let names = networks.names();
    let servers: Vec<Server> = (1..).zip(&names).map(server).collect();
    // Neither server has a way to the network of the other one's clients, and clients have none to
    // the servers' own.
    assert!(!run(&format!("ip -n {} route get {}.2", names[0], networks.net(2))));
    assert!(run(&format!("ip -n {} route get {}.2", names[0], networks.net(0))));
    let id = folder.path("id");
    let rank = |(rank, server): (usize, &Server)| {
        let program = Program::new("collectives").arg("rank").arg(&id).arg(&rank.to_string());
        program.arg("2").env("OUTBOARD_TLS", "off").start_through(server)
    };
    let running: Vec<Running> = servers.iter().enumerate().map(rank).collect();
    for (rank, running) in running.into_iter().enumerate() {
        running.finish().expect_success(&format!("rank {rank}"));
    }
    // One program on both.
    let list = servers.iter().map(Server::address).collect::<Vec<_>>().join(",");
    let all = Program::new("collectives").arg("all").env("OUTBOARD_TLS", "off");
    all.through_list(&list).expect_success("one program");
}
