//! What happens in the machine: devices are made, the tests run on them, rates are compared.

use super::packages;
use crate::util::{print, run, said, show, step, target_dir};
use crate::vm::{CABLE, run_every_test};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Programs of tests, each behind the part of its tests that is run: `rdma::=FILE`.
    programs: Vec<String>,
    /// Of whole sessions, only tests whose names have one of these in them.
    #[arg(long)]
    named: Vec<String>,
    /// Compare rates, too.
    #[arg(long)]
    rates: bool,
    /// Compare rates with several settings, too.
    #[arg(long)]
    shapes: bool,
}

/// In place of a part: the tests of whole sessions, which use both devices.
pub(super) const SESSIONS: &str = "sessions";

/// Two that the kernel makes, and that of the machine, whose ends have places of PCI.
const CABLES: usize = 3;
/// The devices on the two ends of each cable, the interfaces they are made of, and the addresses of
/// these.
const DEVICES: [[&str; 2]; CABLES] = [["rxe0", "rxe1"], ["rxe2", "rxe3"], ["rxe4", "rxe5"]];
const INTERFACES: [[&str; 2]; CABLES] = [["veth0", "veth1"], ["veth2", "veth3"], ["pci1", "pci2"]];
const ADDRESSES: [[&str; 2]; CABLES] =
    [["10.9.0.1", "10.9.0.2"], ["10.9.1.1", "10.9.1.2"], ["10.9.2.1", "10.9.2.2"]];
/// What tells tests of each cable.
const NAMES: [&str; CABLES] =
    ["OUTBOARD_TEST_RDMA_PAIR", "OUTBOARD_TEST_RDMA_SECOND", "OUTBOARD_TEST_RDMA_PLACED"];
/// What plugs each cable in.
const SCRIPTS: [&str; CABLES] = ["/run/plug-in-0", "/run/plug-in-1", "/run/plug-in-2"];

/// The tests that use both devices, and change the link between them, one after the other.
const TWO_DEVICES: &str = "rdma::tests::two_devices";

pub(crate) fn run_all(args: &Args) -> Result<()> {
    install()?;
    connect()?;
    let mut failed = Vec::new();
    for program in &args.programs {
        let (part, program) = program.split_once('=').context("a part and a program")?;
        if part == SESSIONS {
            let alone = ["--test-threads", "1", "--nocapture"].into_iter();
            let mut named: Vec<&str> = args.named.iter().map(String::as_str).collect();
            if named.is_empty() {
                named.push("rdma::");
            }
            named.extend(alone);
            failed.extend(test(program, &named, true).err());
            continue;
        }
        let mut parts = vec![test(program, &[part, "--skip", TWO_DEVICES], false)];
        if part.starts_with("rdma::") {
            parts.push(test(program, &[TWO_DEVICES, "--test-threads", "1"], true));
        }
        failed.extend(parts.into_iter().filter_map(Result::err));
    }
    if let Some(error) = failed.into_iter().next() {
        return Err(error);
    }
    if args.rates {
        rates()?;
    }
    if args.shapes { shapes() } else { Ok(()) }
}

/// Puts the packages where they would be if they were installed: what is written here is gone with
/// the machine.
fn install() -> Result<()> {
    for folder in ["usr", "etc"] {
        run(Command::new("cp").arg("-a").arg(packages::dir().join(folder)).arg("/"))?;
    }
    run(&mut Command::new("ldconfig"))
}

/// Makes two devices on the ends of each cable. All addresses are this machine's own, so rules see
/// to it that packets between the two leave by the cable, and are taken in at its other end.
/// Namespaces would not do: soft-RoCE of Linux 6.1 listens in the first one only.
fn connect() -> Result<()> {
    step("making RDMA devices");
    for module in ["rdma_rxe", "veth", "virtio_net", "sch_netem"] {
        run(Command::new("modprobe").arg(module))?;
    }
    let [made @ .., found] = &INTERFACES;
    for [one, other] in made {
        ip(&format!("link add {one} type veth peer name {other}"))?;
    }
    for (place, name) in CABLE.into_iter().zip(found) {
        ip(&format!("link set {} name {name}", interface_at(place)?))?;
    }
    for (cable, script) in SCRIPTS.into_iter().enumerate() {
        fs::write(script, plugged_in(cable)?).with_context(|| script.to_owned())?;
        run(Command::new("sh").arg(script))?;
        for end in [0, 1] {
            let (own, address) = (ADDRESSES[cable][end], ADDRESSES[cable][1 - end]);
            let rule = format!("from {own} to {address} iif lo lookup {}", table(cable, end));
            ip(&format!("rule add pref {} {rule}", 10 + 2 * cable + end))?;
        }
    }
    sysctl("net.ipv4.conf.all.rp_filter=0")?;
    ip("rule add pref 20 lookup local")?;
    ip("rule del pref 0")?;
    for (device, interface) in DEVICES.as_flattened().iter().zip(INTERFACES.as_flattened()) {
        let link = format!("link add {device} type rxe netdev {interface}");
        run(Command::new("rdma").args(link.split(' ')))?;
    }
    Ok(())
}

/// The network interface at a place of PCI.
fn interface_at(place: &str) -> Result<String> {
    let folder = format!("/sys/bus/pci/devices/{place}");
    for entry in fs::read_dir(&folder).with_context(|| folder.clone())?.flatten() {
        if let Ok(interfaces) = fs::read_dir(entry.path().join("net"))
            && let Some(interface) = interfaces.flatten().next()
        {
            return Ok(interface.file_name().to_string_lossy().into_owned());
        }
    }
    bail!("the machine has no network interface at {place}")
}

/// The table of the routes from one end of a cable.
fn table(cable: usize, end: usize) -> usize {
    100 + 2 * cable + end
}

/// What makes a cable carry packets, as a script: the kernel forgets routes and neighbours when a
/// test switches an interface off.
fn plugged_in(cable: usize) -> Result<String> {
    let mut script = "set -e\n".to_owned();
    for end in [0, 1] {
        let (interface, peers) = (INTERFACES[cable][end], INTERFACES[cable][1 - end]);
        let (own, address) = (ADDRESSES[cable][end], ADDRESSES[cable][1 - end]);
        let theirs = format!("/sys/class/net/{peers}/address");
        let theirs = fs::read_to_string(&theirs).with_context(|| theirs.clone())?;
        let (theirs, table) = (theirs.trim(), table(cable, end));
        // Packets of 4096 bytes, with their heads.
        script += &format!(
            "ip address replace {own}/24 dev {interface}\n\
             ip link set {interface} mtu 4300 up\n\
             sysctl -qw net.ipv4.conf.{interface}.accept_local=1\n\
             sysctl -qw net.ipv4.conf.{interface}.rp_filter=0\n\
             ip route replace {address} dev {interface} src {own} table {table}\n\
             ip neigh replace {address} lladdr {theirs} dev {interface}\n"
        );
    }
    Ok(script)
}

fn ip(words: &str) -> Result<()> {
    run(Command::new("ip").args(words.split(' ')))
}

fn sysctl(setting: &str) -> Result<()> {
    run(Command::new("sysctl").args(["-qw", setting]))
}

/// Runs some tests of a program.
fn test(program: &str, args: &[&str], two_devices: bool) -> Result<()> {
    let mut command = Command::new(program);
    command.args(args.iter().filter(|arg| !arg.is_empty()));
    if two_devices {
        for (cable, name) in NAMES.into_iter().enumerate() {
            let [one, other] = DEVICES[cable];
            let (interface, script) = (INTERFACES[cable][0], SCRIPTS[cable]);
            command.env(name, format!("{one} {other} {interface} {script}"));
        }
        command.env("OUTBOARD_TEST_DRIVER", "cpu");
    }
    run_every_test(&mut command)
}

/// How often each rate is measured, in turns.
const ROUNDS: usize = 3;

/// What is asked of UCX: what `ib_write_bw` does, and messages that both sides copy.
const UCX: [(&str, [&str; 6]); 2] = [
    ("remote writes", ["-t", "put_bw", "-D", "zcopy", "-s", "65536"]),
    ("copied messages", ["-t", "am_bw", "-D", "bcopy", "-s", "8000"]),
];

/// Compares what a stream carries, and what an adapter moves itself, with what `ib_write_bw` and
/// UCX do, on one device and between two.
fn rates() -> Result<()> {
    let ([one, other], [own, far]) = (DEVICES[0], ADDRESSES[0]);
    for (server, address, interface) in [(one, own, None), (other, far, Some(INTERFACES[0][0]))] {
        for _ in 0..ROUNDS {
            let plain = perftest("ib_write_bw", server, address, &[])?;
            print(&format!("{one} to {server}: ib_write_bw {plain} MB/s\n"))?;
            for (what, test) in UCX {
                let rate = ucx(server, address, &test)?;
                print(&format!("{one} to {server}: UCX, {what} {rate} MB/s\n"))?;
            }
            let mut command = Command::new(stream());
            command.args([one, server]).args(interface);
            let text = said(&mut command)?;
            print(&text)?;
            let written = direct(&text, "written ")? / plain.parse::<f64>()?;
            let read = direct(&text, "read ")? / plain.parse::<f64>()?;
            print(&format!("of ib_write_bw: {written:.2} written, {read:.2} read\n"))?;
        }
    }
    Ok(())
}

/// The example that measures our streams.
fn stream() -> PathBuf {
    target_dir().join("debug/examples/rdma-bandwidth")
}

/// Messages under way, and bytes of a packet.
const SHAPES: [(u32, u32); 6] =
    [(4, 4096), (16, 4096), (128, 4096), (1024, 4096), (128, 1024), (128, 256)];

/// Compares what streams and adapters carry between two devices with what the programs of perftest
/// do with the same settings.
fn shapes() -> Result<()> {
    let ([one, other], [_, far]) = (DEVICES[0], ADDRESSES[0]);
    print("MB/s: depth packet  ib_write_bw ib_read_bw  up down written read\n")?;
    for (depth, packet) in SHAPES {
        let settings = [depth, packet].map(|number| number.to_string());
        let [of_depth, of_packet] = &settings;
        let theirs = ["ib_write_bw", "ib_read_bw"];
        let theirs =
            theirs.map(|program| perftest(program, other, far, &["-t", of_depth, "-m", of_packet]));
        let mut command = Command::new(stream());
        command.env("DEPTH", of_depth).env("MTU", of_packet);
        let text = said(command.args([one, other]))?;
        let ours = ["up ", "down ", "written ", "read "].map(|name| direct(&text, name));
        let ours = ours.into_iter().map(|rate| Ok(format!("{:.2}", rate?)));
        let rates = theirs.into_iter().chain(ours).collect::<Result<Vec<_>>>()?;
        print(&format!("{} {}\n", settings.join(" "), rates.join(" ")))?;
    }
    Ok(())
}

/// What the example says of one of its rates, in MB/s.
fn direct(text: &str, name: &str) -> Result<f64> {
    let rate = text.lines().find_map(|line| line.strip_prefix(name)?.split(' ').next());
    rate.context("the example says no rate")?.parse().context("it is no number")
}

/// What a program of perftest carries from or to the first device, as it prints it.
fn perftest(program: &str, server: &str, address: &str, settings: &[&str]) -> Result<String> {
    let command = |device: &str| {
        let mut command = Command::new(program);
        command.args(["-F", "-D", "4", "-d", device]).args(settings);
        command
    };
    let text = measured(&mut command(server), command(DEVICES[0][0]).arg(address))?;
    // Bytes, iterations, the peak, the average.
    let mut figures = text.lines().filter(|line| line.trim_start().starts_with("65536"));
    let average = figures.next_back().and_then(|line| line.split_whitespace().nth(3));
    average.map(str::to_owned).with_context(|| format!("{program} says no rate:\n{text}"))
}

/// What UCX carries from the first device over a reliable connection, in MB/s, by one of its tests.
/// Its streams, which meet over datagrams of the adapter, do not come up between these devices.
fn ucx(server: &str, address: &str, test: &[&str]) -> Result<String> {
    const MESSAGES: &str = "1000";
    let command = |device: &str| {
        let mut command = Command::new("ucx_perftest");
        command.args(["-d", &format!("{device}:1")]);
        command
    };
    let mut calling = command(DEVICES[0][0]);
    calling.args([address, "-x", "rc_verbs", "-n", MESSAGES, "-f"]).args(test);
    let text = measured(&mut command(server), &mut calling)?;
    // Messages, three times, the average rate of messages and that of the whole run.
    let figures = text.lines().find(|line| line.trim_start().starts_with(MESSAGES));
    let rate = figures.and_then(|line| line.split_whitespace().nth(5));
    rate.map(str::to_owned).with_context(|| format!("ucx_perftest says no rate:\n{text}"))
}

/// What the side of a program that measures says which calls the listening one.
fn measured(listening: &mut Command, calling: &mut Command) -> Result<String> {
    let shown = show(listening);
    let mut listening =
        listening.stdout(Stdio::null()).spawn().with_context(|| format!("cannot start {shown}"))?;
    // What they say of listening stays in their buffers.
    thread::sleep(Duration::from_secs(2));
    let text = said(calling)?;
    listening.wait().with_context(|| format!("cannot wait for {shown}"))?;
    Ok(text)
}
