//! Steps of the program `steps` at one end of a network, and what they waited for.

use super::network::{Network, Side};
use crate::programs;
use crate::stage::Dist;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What a process leaves of each function.
#[derive(Deserialize)]
struct Profile {
    functions: BTreeMap<String, Function>,
}

#[derive(Deserialize)]
struct Function {
    round_trips: u64,
    /// Seconds; 0 where nothing was answered.
    shortest_answer: f64,
}

/// What one run has shown.
pub(super) struct Shown {
    /// A step took so long.
    pub(super) milliseconds: f64,
    /// Waits of all steps, and of what comes before them.
    pub(super) waits: u64,
    /// Seconds that a wait took at the least.
    pub(super) shortest: f64,
}

/// Takes so many steps of a loop.
pub(super) fn take(
    network: &Network,
    dist: &Dist,
    address: &str,
    name: &str,
    steps: u32,
) -> Result<Shown> {
    let file = dist.dir.join(format!("latency-{}.json", std::process::id()));
    let mut command = network.command(Side::Client, &dist.outboard());
    command.args(["run", "--server", address, "--"]).arg(programs::dir().join("steps"));
    command.args([name, &steps.to_string(), "time"]).env("OUTBOARD_PROFILE", &file);
    // Both ends are on one machine, which clients notice.
    command.env("OUTBOARD_TRANSPORT", "tcp").env("OUTBOARD_TLS", "off");
    let output = command.output().context("cannot start `outboard run`")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!(
            "`steps {name}` failed ({}): {text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let milliseconds = text.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    let milliseconds = milliseconds.with_context(|| format!("`steps {name}` said {text:?}"))?;
    let profile = read(&file);
    let _ = std::fs::remove_file(&file);
    let functions = profile?.functions;
    let shortest =
        functions.values().map(|function| function.shortest_answer).filter(|time| *time > 0.0);
    Ok(Shown {
        milliseconds,
        waits: functions.values().map(|function| function.round_trips).sum(),
        shortest: shortest.fold(f64::MAX, f64::min),
    })
}

fn read(file: &Path) -> Result<Profile> {
    let text = std::fs::read(file).context("the program has left no profile")?;
    serde_json::from_slice(&text).context("cannot understand the profile")
}
