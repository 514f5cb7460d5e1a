//! What happens in the machine: two devices are made, the tests run on them, rates are compared.

use super::packages;
use crate::util::{print, run, said, step, target_dir};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Programs of tests, each behind the part of its tests that is run: `rdma::=FILE`.
    programs: Vec<String>,
}

/// The devices, the interfaces they are made of, and the addresses of these.
const DEVICES: [&str; 2] = ["rxe0", "rxe1"];
const INTERFACES: [&str; 2] = ["veth0", "veth1"];
const ADDRESSES: [&str; 2] = ["10.9.0.1", "10.9.0.2"];

/// The tests that use both devices, and change the link between them, one after the other.
const TWO_DEVICES: &str = "rdma::tests::two_devices";

pub(crate) fn run_all(args: &Args) -> Result<()> {
    install()?;
    connect()?;
    let mut failed = Vec::new();
    for program in &args.programs {
        let (part, program) = program.split_once('=').context("a part and a program")?;
        let mut parts = vec![test(program, &[part, "--skip", TWO_DEVICES], false)];
        if part.starts_with("rdma::") {
            parts.push(test(program, &[TWO_DEVICES, "--test-threads", "1"], true));
        }
        failed.extend(parts.into_iter().filter_map(Result::err));
    }
    if let Some(error) = failed.into_iter().next() {
        return Err(error);
    }
    rates()
}

/// Puts the packages where they would be if they were installed: what is written here is gone with
/// the machine.
fn install() -> Result<()> {
    for folder in ["usr", "etc"] {
        run(Command::new("cp").arg("-a").arg(packages::dir().join(folder)).arg("/"))?;
    }
    run(&mut Command::new("ldconfig"))
}

/// Makes two devices on the ends of a cable. All addresses are this machine's own, so rules see to
/// it that packets between the two leave by the cable, and are taken in at its other end.
/// Namespaces would not do: soft-RoCE of Linux 6.1 listens in the first one only.
fn connect() -> Result<()> {
    step("making two RDMA devices");
    for module in ["rdma_rxe", "veth", "sch_netem"] {
        run(Command::new("modprobe").arg(module))?;
    }
    let [one, other] = INTERFACES;
    ip(&format!("link add {one} type veth peer name {other}"))?;
    for (end, peer) in [(0, 1), (1, 0)] {
        let (interface, own, address) = (INTERFACES[end], ADDRESSES[end], ADDRESSES[peer]);
        ip(&format!("address add {own}/24 dev {interface}"))?;
        // Packets of 4096 bytes, with their heads.
        ip(&format!("link set {interface} mtu 4300 up"))?;
        for setting in ["accept_local=1", "rp_filter=0"] {
            sysctl(&format!("net.ipv4.conf.{interface}.{setting}"))?;
        }
        let table = 100 + end;
        ip(&format!("route add {address} dev {interface} src {own} table {table}"))?;
        let rule = format!("from {own} to {address} iif lo lookup {table}");
        ip(&format!("rule add pref {} {rule}", 10 + end))?;
        let theirs = format!("/sys/class/net/{}/address", INTERFACES[peer]);
        let theirs = std::fs::read_to_string(&theirs).with_context(|| theirs.clone())?;
        ip(&format!("neigh replace {address} lladdr {} dev {interface}", theirs.trim()))?;
    }
    sysctl("net.ipv4.conf.all.rp_filter=0")?;
    ip("rule add pref 20 lookup local")?;
    ip("rule del pref 0")?;
    for (device, interface) in DEVICES.into_iter().zip(INTERFACES) {
        let link = format!("link add {device} type rxe netdev {interface}");
        run(Command::new("rdma").args(link.split(' ')))?;
    }
    Ok(())
}

fn ip(words: &str) -> Result<()> {
    run(Command::new("ip").args(words.split(' ')))
}

fn sysctl(setting: &str) -> Result<()> {
    run(Command::new("sysctl").args(["-qw", setting]))
}

/// Runs some tests of a program; one that is skipped here has failed.
fn test(program: &str, args: &[&str], two_devices: bool) -> Result<()> {
    let mut command = Command::new(program);
    command.args(args.iter().filter(|arg| !arg.is_empty()));
    if two_devices {
        let pair = format!("{} {} {}", DEVICES[0], DEVICES[1], INTERFACES[0]);
        command.env("OUTBOARD_TEST_RDMA_PAIR", pair);
    }
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    let [out, error] =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    print(&out)?;
    eprint!("{error}");
    if !output.status.success() {
        bail!("{program} failed ({})", output.status);
    }
    if let Some(skipped) = error.lines().find(|line| line.starts_with("skipped ")) {
        bail!("in this machine every test can run, and one did not: {skipped}");
    }
    Ok(())
}

/// How often each rate is measured, in turns.
const ROUNDS: usize = 3;

/// Compares what a stream carries with what `ib_write_bw` does, on one device and between two.
fn rates() -> Result<()> {
    let stream = target_dir().join("debug/examples/rdma-bandwidth");
    let [one, other] = DEVICES;
    for (server, address, interface) in
        [(one, ADDRESSES[0], None), (other, ADDRESSES[1], Some(INTERFACES[0]))]
    {
        for _ in 0..ROUNDS {
            print(&format!(
                "{one} to {server}: ib_write_bw {} MB/s\n",
                perftest(server, address)?
            ))?;
            let mut command = Command::new(&stream);
            command.args([one, server]).args(interface);
            print(&said(&mut command)?)?;
        }
    }
    Ok(())
}

/// What `ib_write_bw` carries from the first device, as it prints it.
fn perftest(server: &str, address: &str) -> Result<String> {
    let program = Path::new("ib_write_bw");
    let usual = ["-F", "-D", "4", "-d"];
    let mut listening = Command::new(program);
    listening.args(usual).arg(server).stdout(std::process::Stdio::null());
    let mut listening = listening.spawn().context("cannot start ib_write_bw")?;
    thread::sleep(Duration::from_secs(2));
    let text = said(Command::new(program).args(usual).args([DEVICES[0], address]))?;
    listening.wait().context("cannot wait for ib_write_bw")?;
    // Bytes, iterations, the peak, the average.
    let mut figures = text.lines().filter(|line| line.trim_start().starts_with("65536"));
    let average = figures.next_back().and_then(|line| line.split_whitespace().nth(3));
    average.map(str::to_owned).with_context(|| format!("ib_write_bw says no rate:\n{text}"))
}
