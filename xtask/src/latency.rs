//! `cargo xtask latency`: what a step of typical loops takes on networks with latency, and how often it waits.
//!
//! The server is reached through a relay that holds every byte back for half a round trip. It needs no privileges, unlike `tc netem`, and is as
//! exact as the machine's timers; what a step waited for at the least is printed beside, as the round trip that there really was. TCP itself
//! sees no delay: what a long way does to its windows is not in these numbers.

mod relay;

use crate::programs;
use crate::server::Server;
use crate::stage::Dist;
use crate::toolchain::Toolchain;
use crate::util::{self, step};
use anyhow::{Context, Result, bail};
use relay::Relay;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Round trips in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "0,0.05,0.2,1,10,30")]
    round_trips: Vec<f64>,
    /// Use an optimised build.
    #[arg(long)]
    release: bool,
    /// The driver library to serve; the software device if none is named.
    #[arg(long)]
    driver: Option<String>,
}

/// The loops of the program `steps`, with how many steps to take.
const KINDS: [(&str, u32); 5] = [("train", 30), ("infer", 30), ("graph", 60), ("pool", 60), ("blocks", 30)];

/// What a process leaves of each function.
#[derive(Deserialize)]
struct Profile {
    functions: BTreeMap<String, Function>,
}

#[derive(Deserialize)]
struct Function {
    round_trips: u64,
    shortest_answer: f64,
}

/// What one run has shown.
struct Shown {
    milliseconds: f64,
    round_trips: u64,
    shortest: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    programs::ensure(&Toolchain::ensure()?)?;
    let dist = Dist::build(args.release)?;
    let server = Server::start(&dist, Some(args.driver.as_deref().unwrap_or("cpu")))?;
    let mut rows: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut heads = vec!["waits a step".to_owned()];
    for (index, round_trip) in args.round_trips.iter().enumerate() {
        let relay = Relay::start(&server.address, Duration::from_secs_f64(round_trip / 2e3))?;
        let mut shortest = f64::MAX;
        for (kind, steps) in KINDS {
            step(&format!("{kind}, {round_trip} ms"));
            let shown = take_steps(&dist, &relay.address, kind, steps)?;
            shortest = shortest.min(shown.shortest);
            let row = rows.entry(kind).or_default();
            if index == 0 {
                // Twice as many steps wait that many times more: what is waited for once is not a step's.
                let more = take_steps(&dist, &relay.address, kind, 2 * steps)?.round_trips.abs_diff(shown.round_trips);
                row.push(format!("{:.1}", more as f64 / f64::from(steps)));
            }
            row.push(format!("{:.2}", shown.milliseconds));
        }
        heads.push(format!("{round_trip} ms ({:.2})", 1e3 * shortest));
    }
    let mut text = format!("| | {} |\n|---|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for (kind, _) in KINDS {
        text += &format!("| `{kind}` | {} |\n", rows[kind].join(" | "));
    }
    util::print(&text)
}

/// Takes some steps of a loop.
fn take_steps(dist: &Dist, address: &str, kind: &str, steps: u32) -> Result<Shown> {
    let file = dist.dir.join(format!("latency-{}.json", std::process::id()));
    let output = Command::new(dist.outboard())
        .args(["run", "--server", address, "--"])
        .arg(programs::dir().join("steps"))
        .args([kind, &steps.to_string(), "time"])
        .env("OUTBOARD_PROFILE", &file)
        // A relay is no place for shared memory.
        .env("OUTBOARD_TRANSPORT", "tcp")
        .output()
        .context("cannot start `outboard run`")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("`steps {kind}` failed ({}): {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let milliseconds = text.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    let milliseconds = milliseconds.with_context(|| format!("`steps {kind}` said {text:?}"))?;
    let profile = read(&file);
    let _ = std::fs::remove_file(&file);
    let functions = profile?.functions;
    let shortest = functions.values().map(|function| function.shortest_answer).filter(|time| *time > 0.0);
    Ok(Shown {
        milliseconds,
        round_trips: functions.values().map(|function| function.round_trips).sum(),
        shortest: shortest.fold(f64::MAX, f64::min),
    })
}

fn read(file: &Path) -> Result<Profile> {
    let text = std::fs::read(file).context("the program has left no profile")?;
    serde_json::from_slice(&text).context("cannot understand the profile")
}
