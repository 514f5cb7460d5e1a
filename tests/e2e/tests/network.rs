//! A network that fails in the middle of a training run. The program runs in a network namespace of
//! its own, and what connects it to the server is cut: packets vanish, and nobody is told. That
//! needs root; without it, there is a proxy which hears nothing that is sent to it, or closes the
//! connections and takes no new ones for as long.
#![allow(clippy::print_stdout)]

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use outboard_e2e::{Driver, Folder, Program, Running, Server, SharedFile, outboard, within};

use crate::proxy::Proxy;

/// What lies between a program and its server.
enum Network {
    Namespace {
        /// The program's.
        name: String,
        router: String,
        /// The server's end.
        device: String,
        /// From there to the program, as `ip route` has it.
        route: String,
    },
    Proxy(Proxy),
}

/// Ways to cut.
#[derive(Clone, Copy)]
enum Cut {
    /// Packets are dropped on their way.
    Dropped,
    /// The network device is down.
    Down,
}

/// Room for two sessions, in bytes.
const SHARED: u64 = 20 << 20;

fn run(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().expect("a command")).args(words).output();
    output.is_ok_and(|output| output.status.success())
}

/// How programs use the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Tcp,
    /// Encrypted, with a token.
    Tls,
    /// Through memory that both sides have, as a virtual machine and its host; the network tells
    /// either side that the other one is there.
    SharedMemory,
}

/// A server, and a network to it.
struct Site {
    server: Server,
    network: Network,
    /// Where programs find it.
    address: String,
    /// What they need to be let in.
    env: Vec<(&'static str, String)>,
    _folder: Folder,
    _shared: SharedFile,
}

/// A network of one's own, if the system lets us have one; with the server's address in it. A
/// router is in between, so that neither end notices when packets vanish there.
fn namespace() -> Option<(Network, String)> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let (name, device) = (
        format!("ob{}-{number}", std::process::id()),
        format!("ob{}v{number}", std::process::id()),
    );
    let router = format!("{name}r");
    let net = format!("10.231.{}", (std::process::id() + number * 16) % 250);
    let route = format!("{net}.4/30 via {net}.2");
    let made = [
        format!("ip netns add {name}"),
        format!("ip netns add {router}"),
        format!("ip link add {device} type veth peer name near netns {router}"),
        format!("ip -n {router} link add far type veth peer name own netns {name}"),
        format!("ip addr add {net}.1/30 dev {device}"),
        format!("ip -n {router} addr add {net}.2/30 dev near"),
        format!("ip -n {router} addr add {net}.5/30 dev far"),
        format!("ip -n {name} addr add {net}.6/30 dev own"),
        format!("ip link set {device} up"),
        format!("ip -n {router} link set near up"),
        format!("ip -n {router} link set far up"),
        format!("ip -n {name} link set own up"),
        format!("ip -n {name} link set lo up"),
        format!("ip route add {route}"),
        format!("ip -n {name} route add default via {net}.5"),
    ]
    .iter()
    .all(|command| run(command));
    let works = made && forward(&router, true);
    let network = Network::Namespace { name, router, device, route };
    works.then(|| (network, format!("{net}.1")))
}

/// Has a router let packets through, or drop them; whether it does so now.
fn forward(router: &str, through: bool) -> bool {
    let write = format!("echo {} > /proc/sys/net/ipv4/ip_forward", u8::from(through));
    let output = Command::new("ip").args(["netns", "exec", router, "sh", "-c", &write]).output();
    output.is_ok_and(|output| output.status.success())
}

impl Site {
    fn new(way: Way, args: &[&str]) -> Site {
        let folder = Folder::create();
        let state = folder.path("state");
        let mut all = vec!["--driver", Driver::chosen().name(), "--state", &state];
        all.extend(args);
        let shared = SharedFile::create(SHARED);
        let region = shared.path();
        let env = match way {
            Way::SharedMemory => {
                all.extend(["--tls", "off", "--allow-anonymous", "--ivshmem", region]);
                vec![
                    ("OUTBOARD_TLS", "off".to_owned()),
                    ("OUTBOARD_IVSHMEM", region.to_owned()),
                    ("OUTBOARD_TRANSPORT", "ivshmem".to_owned()),
                ]
            }
            Way::Tcp => {
                all.extend(["--tls", "off", "--allow-anonymous"]);
                vec![("OUTBOARD_TLS", "off".to_owned())]
            }
            Way::Tls => {
                all.extend(["--tls", "on", "--require-authentication"]);
                let made =
                    outboard(&["token", "create", "--json", "--owner", "alice", "--state", &state]);
                let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
                let part = |name: &str| made[name].as_str().expect("a text").to_owned();
                vec![
                    ("OUTBOARD_TLS_FINGERPRINT", part("fingerprint")),
                    ("OUTBOARD_TOKEN", part("token")),
                ]
            }
        };
        if let Some((network, ip)) = namespace() {
            let server = Server::start_at(&format!("{ip}:0"), &all, &[]);
            let address = server.address().to_owned();
            return Site { server, network, address, env, _folder: folder, _shared: shared };
        }
        println!("no network namespaces here: a proxy cuts instead");
        let server = Server::start_with(&all, &[]);
        let proxy = Proxy::start(server.address());
        let address = proxy.address().to_owned();
        Site {
            server,
            network: Network::Proxy(proxy),
            address,
            env,
            _folder: folder,
            _shared: shared,
        }
    }

    fn start(&self, program: Program) -> Running {
        let program =
            self.env.iter().fold(program, |program, (name, value)| program.env(name, value));
        match &self.network {
            Network::Namespace { name, .. } => {
                program.under(&["ip", "netns", "exec", name]).start_through_list(&self.address)
            }
            Network::Proxy(_) => program.start_through_list(&self.address),
        }
    }
}

impl Network {
    fn set(&self, cut: Cut, whole: bool) {
        match (self, cut) {
            (Network::Namespace { router, .. }, Cut::Dropped) => assert!(forward(router, whole)),
            (Network::Namespace { device, route, .. }, Cut::Down) => {
                let state = if whole { "up" } else { "down" };
                assert!(run(&format!("ip link set {device} {state}")));
                // It has gone with the device.
                assert!(!whole || run(&format!("ip route add {route}")));
            }
            (Network::Proxy(proxy), Cut::Dropped) => proxy.silence(!whole),
            (Network::Proxy(proxy), Cut::Down) => {
                proxy.close(!whole);
                if !whole {
                    proxy.cut(None);
                }
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Network::Namespace { name, router, device, .. } = self {
            run(&format!("ip link del {device}"));
            run(&format!("ip netns del {name}"));
            run(&format!("ip netns del {router}"));
        }
    }
}

/// A training run with cuts of these lengths must come out as one without.
fn train_with_cuts(way: Way, cuts: &[(Cut, u64)], args: &[&str]) {
    let program = || Program::new("train").arg("120").arg("10");
    let undisturbed = program().directly();
    undisturbed.expect_success("training on the device itself");
    let site = Site::new(way, args);
    let (server, network) = (&site.server, &site.network);
    let mut training = site.start(program());
    for (index, (cut, seconds)) in cuts.iter().enumerate() {
        let step = format!("step {}:", 20 + 20 * index);
        let line =
            undisturbed.stdout.lines().find(|line| line.starts_with(&step)).expect("it said so");
        training.wait_for_line(line);
        network.set(*cut, false);
        std::thread::sleep(Duration::from_secs(*seconds));
        assert!(!training.has_ended(), "it waits");
        network.set(*cut, true);
    }
    let whole = Instant::now();
    let outcome = training.finish();
    outcome.expect_success("training through cuts");
    println!(
        "{cuts} cuts: ended {:?} after the last, {} workers left",
        whole.elapsed(),
        server.workers().len(),
        cuts = cuts.len()
    );
    assert_eq!(outcome.stdout, undisturbed.stdout, "equal to the last bit\n{}", server.log());
    assert!(within(Duration::from_secs(20), || server.workers().is_empty()), "it said goodbye");
}

#[test]
fn a_training_run_survives_cuts_of_a_second() {
    train_with_cuts(
        Way::Tcp,
        &[(Cut::Dropped, 1), (Cut::Down, 1), (Cut::Dropped, 1)],
        &["--closed-grace", "60"],
    );
}

#[test]
fn a_training_run_survives_a_cut_of_ten_seconds() {
    train_with_cuts(Way::Tcp, &[(Cut::Dropped, 10)], &["--closed-grace", "60"]);
}

#[test]
fn an_encrypted_training_run_survives_cuts_of_a_second_and_of_ten() {
    train_with_cuts(Way::Tls, &[(Cut::Dropped, 1), (Cut::Down, 10)], &["--closed-grace", "60"]);
}

/// As when a virtual machine is paused: nobody has closed anything, so it is waited for as long as
/// `--grace` says.
#[test]
fn a_silent_client_is_waited_for_longer_than_one_that_has_closed() {
    let flags = ["--keepalive", "3", "--grace", "120", "--closed-grace", "1"];
    for way in [Way::Tcp, Way::SharedMemory] {
        train_with_cuts(way, &[(Cut::Dropped, 12)], &flags);
    }
}

/// Takes over a minute: `cargo test -p outboard-e2e --test all network:: -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn a_training_run_survives_cuts_of_a_minute() {
    for way in [Way::Tcp, Way::Tls] {
        train_with_cuts(
            way,
            &[(Cut::Dropped, 60), (Cut::Down, 60)],
            &["--grace", "120", "--closed-grace", "120"],
        );
    }
}

#[test]
fn a_network_that_stays_away_ends_both_sides() {
    let site = Site::new(Way::Tls, &["--grace", "3", "--keepalive", "3"]);
    let (server, network) = (&site.server, &site.network);
    let program = Program::new("train")
        .arg("1000000")
        .env("OUTBOARD_KEEPALIVE", "3")
        .env("OUTBOARD_LOG", "1");
    let mut training = site.start(program);
    training.wait_for_line("running");
    server.only_worker();
    let cut = Instant::now();
    network.set(Cut::Dropped, false);
    assert!(within(Duration::from_secs(60), || server.workers().is_empty()), "its memory is freed");
    println!("the worker ended after {:?}", cut.elapsed());
    let outcome = training.finish();
    println!("the program ended after {:?}", cut.elapsed());
    assert_eq!(outcome.status.code(), Some(1), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("cudaErrorDevicesUnavailable"), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("so that all later calls fail"), "{}", outcome.stderr);
}

#[test]
fn a_client_that_vanishes_without_a_word_is_found_dead() {
    let site = Site::new(Way::Tcp, &["--grace", "2", "--keepalive", "3"]);
    let (server, network) = (&site.server, &site.network);
    let mut program = site.start(Program::new("endless").arg("64"));
    program.wait_for_line("running");
    server.only_worker();
    network.set(Cut::Down, false);
    program.kill();
    let gone = Instant::now();
    assert!(within(Duration::from_secs(60), || server.workers().is_empty()), "its memory is freed");
    println!("the worker ended after {:?}", gone.elapsed());
}
