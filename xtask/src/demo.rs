//! `cargo xtask demo`: sets up all that is needed, starts a server, and runs CUDA programs through
//! it.

use crate::programs;
use crate::server::Server;
use crate::stage::{Dist, Profile};
use crate::toolchain;
use crate::util::{self, step};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What is shown, each with its arguments.
const SHOWN: &[(&str, &[&str])] = &[
    ("vector_add", &[]),
    ("matmul_tiled", &[]),
    ("reduction", &[]),
    ("nbody", &[]),
    ("smith_waterman", &[]),
    ("triangles", &[]),
    ("device_printf", &[]),
    ("streams_events", &[]),
    ("burst", &[]),
    ("big_copy", &["64"]),
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The driver: `nvidia`, `cpu` or a path. Without it the GPU of this machine if it has one,
    /// else the software device.
    #[arg(long)]
    driver: Option<String>,
}

/// What the client library counts in a run; it writes this to the file that `OUTBOARD_PROFILE`
/// names.
#[derive(Deserialize)]
struct Statistics {
    device: String,
    transport: String,
    posted: u64,
    waited: u64,
    bytes_to_device: u64,
    bytes_from_device: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let dist = prepare()?;
    let server = Server::local(&dist, args.driver.as_deref())?;
    step(&format!("`outboard serve` listens at {}", server.address));
    let devices = Command::new(dist.outboard())
        .args(["devices", "--server", &server.address])
        .output()
        .context("cannot run `outboard devices`")?;
    if !devices.status.success() {
        bail!("{}", String::from_utf8_lossy(&devices.stderr));
    }
    let devices = String::from_utf8_lossy(&devices.stdout).into_owned();
    let on_gpu = devices.contains("NVIDIA");
    step(if on_gpu {
        "this machine has an NVIDIA GPU, which is used:"
    } else {
        "no NVIDIA GPU here: using the software device"
    });
    eprint!("{devices}");

    let mut table = String::new();
    for (name, program_args) in SHOWN {
        let (statistics, seconds) = run_program(&dist, &server.address, name, program_args)?;
        let moved = (statistics.bytes_to_device + statistics.bytes_from_device) as f64 / 1e6;
        table.push_str(&format!(
            "{name:<15} {:<25} {:<9} {:>8} {:>7} {moved:>10.2} {seconds:>8.2}\n",
            statistics.device, statistics.transport, statistics.posted, statistics.waited
        ));
    }
    util::print(&format!(
        "\n{:<15} {:<25} {:<9} {:>8} {:>7} {:>10} {:>8}\n{table}\nposted: calls that did not wait for the server; waited: calls that did.\n",
        "program", "device", "transport", "posted", "waited", "MB moved", "seconds"
    ))
}

/// Builds what is shown with, and beside it fetches the compiler and compiles what is shown: one
/// waits for the network, and both have parts that keep only one processor busy.
fn prepare() -> Result<Dist> {
    toolchain::require_tools()?;
    let names: Vec<&str> = SHOWN.iter().map(|(name, _)| *name).collect();
    step("the first time this takes some minutes: what is built now is kept in target/ and .venv/");
    std::thread::scope(|scope| {
        let programs = scope.spawn(|| programs::only(&names));
        let dist = Dist::build(Profile::Demo);
        let programs = programs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        programs.and(dist)
    })
}

/// Runs one program through the server, its output shown as it comes.
fn run_program(dist: &Dist, address: &str, name: &str, args: &[&str]) -> Result<(Statistics, f64)> {
    let statistics = dist.dir.join(format!("statistics-{}.json", std::process::id()));
    step(&format!("outboard run --server {address} -- {name} {}", args.join(" ")));
    let started = Instant::now();
    let status = Command::new(dist.outboard())
        .args(["run", "--server", address, "--"])
        .arg(programs::dir().join(name))
        .args(args)
        .env("OUTBOARD_PROFILE", &statistics)
        .status()
        .with_context(|| format!("cannot start {name}"))?;
    let seconds = started.elapsed().as_secs_f64();
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    let counted = read_statistics(&statistics);
    // It is rewritten by the next program, and only in the way after the last.
    let _ = std::fs::remove_file(&statistics);
    Ok((counted?, seconds))
}

fn read_statistics(path: &Path) -> Result<Statistics> {
    let text = std::fs::read(path)
        .with_context(|| format!("the client library did not write {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("cannot understand {}", path.display()))
}
