//! Programs whose sessions move to RDMA adapters, and what becomes of them when these fail. Between
//! two devices of the machine of `cargo xtask rdma`; client and server meet over the loopback
//! interface.

use std::time::Duration;

use outboard_e2e::{
    Driver, Folder, Outcome, Program, Server, compare_suite, known_to, reaching_loopback, within,
};
use outboard_test_support::{run, skip};

/// On a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two devices that reach each other, the network interface of the first, and the script that
/// switches it on, where the machine was set up so: `rxe0 rxe1 veth0 FILE`.
const PAIR: &str = "OUTBOARD_TEST_RDMA_PAIR";

struct Pair {
    client: String,
    server: String,
    interface: String,
    plug_in: String,
}

/// Two more of them, on a cable of their own.
const SECOND: &str = "OUTBOARD_TEST_RDMA_SECOND";
/// Two whose interfaces are at the places of PCI where the software device has its first two GPUs.
const PLACED: &str = "OUTBOARD_TEST_RDMA_PLACED";

fn pair() -> Option<Pair> {
    named_by(PAIR)
}

fn named_by(variable: &str) -> Option<Pair> {
    let said = std::env::var(variable).ok()?;
    let words: Vec<_> = said.split_whitespace().map(str::to_owned).collect();
    let [client, server, interface, plug_in] = words.try_into().ok()?;
    Some(Pair { client, server, interface, plug_in })
}

macro_rules! needs_two_devices {
    () => {
        match pair() {
            Some(pair) => pair,
            None => skip!("{PAIR} names no two devices"),
        }
    };
}

macro_rules! needs_two_cables {
    () => {
        match (pair(), named_by(SECOND)) {
            (Some(pair), Some(second)) => [pair, second],
            _ => skip!("{PAIR} and {SECOND} name no two cables"),
        }
    };
}

impl Pair {
    fn serve(&self, flags: &[&str]) -> Server {
        self.serve_by(&self.server, flags)
    }

    fn serve_by(&self, devices: &str, flags: &[&str]) -> Server {
        self.serve_with(devices, flags, &[])
    }

    fn serve_with(&self, devices: &str, flags: &[&str], env: &[(&str, &str)]) -> Server {
        let usual = ["--driver", Driver::chosen().name(), "--rdma-device", devices];
        Server::start_with(&reaching_loopback(&[&usual, flags].concat()), env)
    }

    fn program(&self, name: &str) -> Program {
        self.moves(Program::new(name))
    }

    fn moves(&self, program: Program) -> Program {
        program.env("OUTBOARD_TRANSPORT", "rdma").env("OUTBOARD_RDMA_DEVICE", &self.client)
    }

    /// Bytes that have gone over the cable, both ways.
    fn carried(&self) -> u64 {
        let count = |name: &str| {
            let path = format!("/sys/class/net/{}/statistics/{name}", self.interface);
            std::fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap()
        };
        count("tx_bytes") + count("rx_bytes")
    }

    fn link(&self, command: &str) {
        run(&command.replace("LINK", &self.interface).replace("PLUG_IN", &self.plug_in));
    }

    /// The same with the server's interface.
    fn servers_link(&self, command: &str) {
        let parent = format!("/sys/class/infiniband/{}/parent", self.server);
        run(&command.replace("LINK", std::fs::read_to_string(parent).unwrap().trim()));
    }
}

fn expect_refused(outcome: &Outcome, wanted: &str) {
    assert!(!outcome.status.success(), "it does not run");
    assert!(outcome.stderr.contains(wanted), "{wanted}: {}", outcome.stderr);
}

#[test]
fn programs_run_between_adapters() {
    let pair = needs_two_devices!();
    let server = pair.serve(&[]);
    compare_suite(|program| pair.moves(program), |program| program.through(&server));
    let mut program = pair.program("endless").arg("16").start_through(&server);
    program.wait_for_line("running");
    server.travels_by("rdma");
    program.kill();
    assert!(within(PATIENCE, || server.workers().is_empty()), "the worker sees the end");
}

#[test]
fn sessions_move_by_themselves_where_they_cannot_share_memory() {
    let pair = needs_two_devices!();
    let program = || Program::new("endless").arg("16").env("OUTBOARD_TRANSPORT", "auto");
    let server = pair.serve(&["--socket", "none"]);
    let mut moved = program().env("OUTBOARD_RDMA_DEVICE", &pair.client).start_through(&server);
    moved.wait_for_line("running");
    server.travels_by("rdma");
    let server = pair.serve(&[]);
    let mut shares = program().start_through(&server);
    shares.wait_for_line("running");
    server.travels_by("shm");
}

#[test]
fn bytes_stay_encrypted_unless_both_sides_agree() {
    let pair = needs_two_devices!();
    let folder = Folder::create();
    let state = folder.path("state");
    let known = known_to(&state);
    for (rdma, tls, transport) in
        [("auto", "auto", "rdma+tls"), ("clear", "auto", "rdma"), ("clear", "on", "rdma+tls")]
    {
        let flags = ["--state", &state, "--require-authentication", "--tls", "on", "--rdma", rdma];
        let server = pair.serve(&[&flags[..], &STAGED].concat());
        let program = |name: &str| known(pair.program(name)).env("OUTBOARD_TLS", tls);
        program("burst").through(&server).expect_success("burst");
        // What an adapter moves by itself, nobody encrypts.
        program("lent_memory").arg("1").through(&server).expect_success("lent_memory");
        assert_eq!(moves_copies(&server), [transport == "rdma"; 2], "{}", server.log());
        let mut program = program("endless").arg("16").start_through(&server);
        program.wait_for_line("running");
        server.travels_by(transport);
    }
}

/// Whether the server's adapter writes copies into page-locked memory of the client's, and reads
/// them from there, by what the server's log says.
fn moves_copies(server: &Server) -> [bool; 2] {
    let log = server.log();
    ["writes copies straight into", "reads copies straight from"].map(|said| log.contains(said))
}

/// Whether an adapter writes and reads copies from and to device memory. The software device's is
/// this machine's, which stands in for what a GPU's driver shows to adapters.
fn moves_device_memory(server: &Server) -> [bool; 2] {
    let log = server.log();
    ["from device memory into the client's", "memory into device memory"]
        .map(|said| log.contains(said))
}

/// Device memory is left to the driver.
const STAGED: [&str; 2] = ["--rdma-gpudirect", "off"];

#[test]
fn an_adapter_moves_copies_between_page_locked_and_device_memory() {
    let pair = needs_two_devices!();
    let server = pair.serve(&[]);
    let program = pair.program("lent_memory").arg("2").arg("9");
    let (direct, remote) = (program.directly(), program.through(&server));
    direct.expect_success("lent_memory");
    remote.expect_success("lent_memory");
    assert_eq!(direct.stdout, remote.stdout);
    assert_eq!(moves_device_memory(&server), [true; 2], "{}", server.log());
}

#[test]
fn an_adapter_moves_copies_of_page_locked_memory() {
    let pair = needs_two_devices!();
    let server = pair.serve(&STAGED);
    let before = pair.carried();
    let program = pair.program("lent_memory").arg("1").arg("3");
    let (direct, remote) = (program.directly(), program.through(&server));
    direct.expect_success("lent_memory");
    remote.expect_success("lent_memory");
    assert_eq!(direct.stdout, remote.stdout);
    assert_eq!(moves_copies(&server), [true; 2], "{}", server.log());
    assert!(pair.carried() - before > 30 << 20, "it goes over the cable");
    assert_eq!(moves_device_memory(&server), [false; 2], "{}", server.log());
    // Pageable memory goes as before.
    let server = pair.serve(&[]);
    pair.program("only_copies").arg("0").arg("1").arg("4").through(&server).expect_success("it");
    assert_eq!(moves_copies(&server), [false; 2], "{}", server.log());
}

/// A program that may lock no more than its connections do has its copies all the same.
#[test]
fn page_locked_memory_that_may_not_be_registered_goes_as_before() {
    let pair = needs_two_devices!();
    let server = pair.serve(&[]);
    let limit = ["prlimit", "--memlock=8388608:8388608", "setpriv", "--bounding-set=-ipc_lock"];
    let program = pair.program("lent_memory").arg("1").arg("9").under(&limit);
    program.through(&server).expect_success("lent_memory");
    assert_eq!(moves_copies(&server), [false; 2], "{}", server.log());
}

/// Ways in which the adapters fail, and come back.
const LOST: (&str, &str) = ("ip link set LINK down", "sh PLUG_IN");
const SILENT: (&str, &str) =
    ("tc qdisc add dev LINK root netem loss 100%", "tc qdisc del dev LINK root");

/// Copies that the adapter has not done are done again, and those after them go on lanes.
#[test]
fn copies_of_page_locked_memory_go_on_over_tcp_when_the_adapters_fail() {
    let pair = needs_two_devices!();
    let moves: [fn(&Server) -> [bool; 2]; 2] = [moves_copies, moves_device_memory];
    for ((goes, comes), (mode, moves)) in [
        (LOST, (&STAGED[..], moves[0])),
        (SILENT, (&STAGED[..], moves[0])),
        (LOST, (&[][..], moves[1])),
        (SILENT, (&[][..], moves[1])),
    ] {
        let server = pair.serve(&[&["--closed-grace", "60"][..], mode].concat());
        let program = pair.program("lent_memory").arg("1").arg("12").start_through(&server);
        assert!(within(PATIENCE, || moves(&server) == [true; 2]), "{}", server.log());
        eprintln!("{goes}");
        pair.link(goes);
        let outcome = program.finish();
        pair.link(comes);
        eprintln!("{:?}", outcome.taken);
        outcome.expect_success("lent_memory");
        server.expect_logged("moves no further copies itself");
        server.expect_logged("the client is back");
    }
}

/// Nothing is lost or done twice: the program counts. (`rdma link delete` would wait in the kernel
/// until nobody has the device open.)
#[test]
fn a_session_goes_on_over_tcp_when_the_adapters_fail() {
    let pair = needs_two_devices!();
    for (goes, comes) in [LOST, SILENT] {
        let server = pair.serve(&["--closed-grace", "60"]);
        let mut program = pair.program("endless").arg("16").start_through(&server);
        program.wait_for_line("running");
        server.travels_by("rdma");
        eprintln!("{goes}");
        pair.link(goes);
        server.travels_by("tcp");
        std::thread::sleep(Duration::from_secs(2));
        let ended = program.has_ended();
        pair.link(comes);
        assert!(!ended, "{goes}: {}", program.seen());
        server.expect_logged("the client is back");
        program.kill();
    }
}

/// Large copies are under way on every lane.
#[test]
fn copies_go_on_over_tcp_when_the_adapters_fail() {
    let pair = needs_two_devices!();
    let server = pair.serve(&["--closed-grace", "60"]);
    let program = pair.program("big_copy").arg("16").start_through(&server);
    server.travels_by("rdma");
    std::thread::sleep(Duration::from_secs(1));
    pair.link("ip link set LINK down");
    let outcome = program.finish();
    pair.link("sh PLUG_IN");
    outcome.expect_success("big_copy");
    server.expect_logged("the client is back");
}

#[test]
fn who_asks_for_rdma_is_told_why_there_is_none() {
    let Some(pair) = pair() else {
        // Without a device, that is the reason.
        let server = Server::start();
        let program = Program::new("burst").env("OUTBOARD_TRANSPORT", "rdma");
        expect_refused(&program.through(&server), "shows no RDMA device");
        return;
    };
    let burst = pair.program("burst");
    expect_refused(&burst.through(&pair.serve(&["--rdma", "off"])), "the server offers none");
    let elsewhere = pair.serve(&["--rdma-network", "192.0.2.0/24"]);
    expect_refused(&burst.through(&elsewhere), "the server says: no port of the RDMA device");
    let server = pair.serve(&[]);
    let other = burst.clone().env("OUTBOARD_RDMA_DEVICE", "mlx5_77");
    expect_refused(&other.through(&server), "there is no RDMA device `mlx5_77`");
    let little = ["prlimit", "--memlock=100000:100000", "setpriv", "--bounding-set=-ipc_lock"];
    // The adapters are there: only the program itself finds that it cannot use them.
    let limited = burst.env("OUTBOARD_LOG", "1").under(&little).through(&server);
    expect_refused(&limited, "the limit is 100000 (`ulimit -l`");
}

/// Links move as the client's connections do, here without the client's, whose bytes would hide
/// those of the links.
#[test]
fn links_of_servers_move_to_adapters_and_stay_encrypted() {
    let pair = needs_two_devices!();
    let folder = Folder::create();
    let state = folder.path("state");
    let known = known_to(&state);
    let strict = ["--state", &state, "--require-authentication", "--tls", "on"];
    let clear = [&strict[..], &["--rdma", "clear"]].concat();
    for flags in [&[][..], &strict, &clear] {
        let flags = [flags, &["--socket", "none"]].concat();
        let servers = [&pair.client, &pair.server].map(|device| pair.serve_by(device, &flags));
        let list = servers.each_ref().map(Server::address).join(",");
        let before = pair.carried();
        let mut program = Program::new("across").arg("4").env("OUTBOARD_TRANSPORT", "tcp");
        if flags.contains(&"--tls") {
            program = known(program);
        }
        let statistics = program.statistics_of_list(&list);
        let carried = pair.carried() - before;
        let linked = statistics["bytes_linked"].as_u64().unwrap();
        assert_eq!(statistics["bytes_relayed"], 0, "{statistics}");
        assert!(linked > 200 << 20 && carried > linked, "{carried} bytes of {statistics}");
    }
}

/// What is under way fails with the link; what comes later goes by a new one, over TCP.
#[test]
fn links_are_made_over_tcp_when_the_adapters_fail() {
    let pair = needs_two_devices!();
    pair.link("tc qdisc add dev LINK root netem loss 100%");
    let servers =
        [&pair.client, &pair.server].map(|device| pair.serve_by(device, &["--socket", "none"]));
    let list = servers.each_ref().map(Server::address).join(",");
    let program = Program::new("across").arg("4").env("OUTBOARD_TRANSPORT", "tcp");
    let statistics = program.statistics_of_list(&list);
    pair.link("tc qdisc del dev LINK root");
    assert_eq!(statistics["bytes_relayed"], 0, "{statistics}");
    let logs = servers.each_ref().map(|server| server.log()).concat();
    assert!(logs.contains("a link does not move to RDMA"), "{logs}");
}

/// A session with both adapters of its server spreads large copies over both cables; one that is
/// pinned to an adapter leaves the other cable alone.
#[test]
fn large_copies_use_all_adapters_or_the_one_that_is_named() {
    let cables = needs_two_cables!();
    let server =
        cables[0].serve_by(&cables.each_ref().map(|pair| pair.server.as_str()).join(","), &[]);
    let carried = |devices: &str| {
        let before = cables.each_ref().map(Pair::carried);
        let program = Program::new("big_copy").arg("4").env("OUTBOARD_TRANSPORT", "rdma");
        let outcome = program.env("OUTBOARD_RDMA_DEVICE", devices).through(&server);
        outcome.expect_success("big_copy");
        let after = cables.each_ref().map(Pair::carried);
        eprintln!("{devices}: {before:?}, then {after:?} bytes");
        [after[0] - before[0], after[1] - before[1]]
    };
    let [first, other] = carried(&cables[0].client);
    assert!(first > 40 << 20 && other < 1 << 20, "{first} and {other} bytes:\n{}", server.log());
    let [first, other] = carried(&cables.each_ref().map(|pair| pair.client.as_str()).join(","));
    assert!(first.min(other) > 4 << 20, "{first} and {other} bytes:\n{}", server.log());
}

/// The client has the adapter that is nearest to the first GPU, so that only what comes from the
/// other one's goes over the cable.
#[test]
fn a_session_has_the_adapter_that_is_nearest_to_its_gpu() {
    let Some(pair) = named_by(PLACED) else {
        skip!("{PLACED} names no devices at the places of GPUs");
    };
    let both = format!("{},{}", pair.client, pair.server);
    let gpus = [("OUTBOARD_CPU_DEVICES", "2")];
    let server = pair.serve_with(&both, &["--rdma-adapters", "nearest"], &gpus);
    let carried = |gpu: u32| {
        let before = pair.carried();
        let program = pair.program("big_copy").arg("4");
        program.through_list(&format!("{}/{gpu}", server.address())).expect_success("big_copy");
        pair.carried() - before
    };
    let of_each = [0, 1].map(carried);
    assert!(of_each[0] < 1 << 20 && of_each[1] > 40 << 20, "{of_each:?}:\n{}", server.log());
}

/// Each cable carries 2.5 MB/s to the client. What programs take besides their copies does not
/// count: one makes two copies of 32 MiB more than another.
#[test]
fn two_adapters_carry_nearly_twice_what_one_does() {
    let cables = needs_two_cables!();
    for cable in &cables {
        cable.servers_link("tc qdisc add dev LINK root tbf rate 20mbit burst 64k limit 4m");
    }
    let devices = cables.each_ref().map(|pair| pair.server.as_str()).join(",");
    // Few messages under way: adapters wait a quarter of a second for each.
    let server = cables[0].serve_by(&devices, &["--lanes", "2", "--rdma-depth", "4"]);
    let taken = |devices: &str, copies: &str| {
        let program = Program::new("only_copies").arg("0").arg(copies).arg("32");
        let program =
            program.env("OUTBOARD_TRANSPORT", "rdma").env("OUTBOARD_RDMA_DEVICE", devices);
        let outcome = program.through(&server);
        outcome.expect_success("only_copies");
        outcome.taken.as_secs_f64()
    };
    let of_two = |devices: &str| taken(devices, "3") - taken(devices, "1");
    let alone = of_two(&cables[0].client);
    let together = of_two(&cables.each_ref().map(|pair| pair.client.as_str()).join(","));
    for cable in &cables {
        cable.servers_link("tc qdisc del dev LINK root");
    }
    eprintln!("{alone:.1} s by one adapter, {together:.1} s by two");
    assert!(alone > 1.8 * together, "{alone:.1} s by one adapter, {together:.1} s by two");
}
