//! `cargo xtask latency`: what a step of typical loops takes on networks with latency, and how
//! often it waits.
//!
//! Server and client are in network namespaces of this run's own ([`network`]), and `tc netem`
//! delays what goes between them, so that TCP itself meets the distance. That needs root and a
//! kernel with netem; `--vm` boots a machine that has one and measures there.
//!
//! How often a step waits is counted, must be the same at each distance, and is an error if it is
//! not.

mod checks;
mod network;
mod steps;
mod streams;

use crate::programs;
use crate::server::Server;
use crate::stage::{Dist, Profile};
use crate::util::{self, step};
use crate::vm::Machine;
use anyhow::{Context, Result, bail};
use network::{Network, SERVER, Side};
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Round trips in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "0,0.05,0.2,1,10,30")]
    round_trips: Vec<f64>,
    /// Only these loops of the program `steps`.
    #[arg(long, value_delimiter = ',')]
    loops: Vec<String>,
    /// Use an optimised build.
    #[arg(long)]
    release: bool,
    /// The driver library to serve; the software device if none is named.
    #[arg(long)]
    driver: Option<String>,
    /// Measure in an emulated machine, whose kernel has netem.
    #[arg(long)]
    vm: bool,
    /// Build nothing: measure what was laid out before.
    #[arg(long)]
    no_build: bool,
}

/// The loops of the program `steps`, with how many steps to take.
const LOOPS: [(&str, u32); 7] = [
    ("train", 20),
    ("infer", 20),
    ("graph", 40),
    ("pool", 40),
    ("blocks", 10),
    ("upload", 6),
    ("download", 6),
];

/// Those of them that copy so many bytes a step.
const COPIES: [&str; 2] = ["upload", "download"];
const COPIED: usize = 64 << 20;

/// Loops that send more at once than TCP lets be under way to begin with: on a long way its windows
/// cost them time beside their waits.
const LARGE: [&str; 3] = ["train", "upload", "download"];

/// How many plain TCP connections the copies are compared with.
const STREAMS: [usize; 3] = [1, 4, 8];

/// Seconds that the emulated machine may take.
const LIMIT: u64 = 3600;
/// Its memory in MiB.
const MEMORY: u32 = 6144;

pub(crate) fn run(args: &Args) -> Result<()> {
    let known = |name: &String| LOOPS.iter().any(|(known, _)| known == name);
    if let Some(name) = args.loops.iter().find(|name| !known(name)) {
        bail!(
            "there is no loop `{name}`; the loops are {}",
            LOOPS.map(|(name, _)| name).join(", ")
        );
    }
    if !args.vm {
        // Whoever cannot measure learns it before anything is built.
        Network::create(longest(&args.round_trips))?;
    }
    if !args.no_build {
        programs::only(&["steps"])?;
        Dist::build(Profile::of(args.release))?;
    }
    if args.vm { measure_inside(args) } else { measure(args) }
}

/// Has this program measure in a machine.
fn measure_inside(args: &Args) -> Result<()> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let list = |numbers: &[f64]| numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
    let mut command = vec![program.display().to_string(), "latency".into(), "--no-build".into()];
    command.extend(["--round-trips".into(), list(&args.round_trips)]);
    if !args.loops.is_empty() {
        command.extend(["--loops".into(), args.loops.join(",")]);
    }
    if let Some(driver) = &args.driver {
        command.extend(["--driver".into(), driver.clone()]);
    }
    match (Machine { memory: MEMORY, limit: LIMIT, ..Machine::default() }).run(&command)? {
        0 => Ok(()),
        status => bail!("measuring in the machine failed (exit status {status})"),
    }
}

fn measure(args: &Args) -> Result<()> {
    let dist = Dist::laid_out()?;
    let wanted = |name: &str| args.loops.is_empty() || args.loops.iter().any(|only| only == name);
    let loops: Vec<_> = LOOPS.into_iter().filter(|(name, _)| wanted(name)).collect();
    let copies = loops.iter().any(|(name, _)| COPIES.contains(name));
    let mut rows: Vec<Row> =
        loops.iter().map(|(name, _)| Row::new(name, COPIES.contains(name))).collect();
    rows.extend(
        STREAMS
            .iter()
            .filter(|_| copies)
            .map(|count| Row::new(&format!("plain TCP × {count}"), true)),
    );
    let (count, mut heads) = (loops.len(), Vec::new());
    for round_trip in &args.round_trips {
        let driver = args.driver.as_deref().unwrap_or("cpu");
        let (found, shortest) = at_distance(*round_trip, &dist, driver, &loops, copies)?;
        rows.iter_mut().zip(found).for_each(|(row, found)| row.found.push(found));
        heads.push(match shortest {
            f64::MAX => format!("{round_trip} ms"),
            shortest => format!("{round_trip} ms ({:.2})", 1e3 * shortest),
        });
    }
    let loops: Vec<&Row> = rows.iter().filter(|row| !row.copies).collect();
    let copies: Vec<&Row> = rows.iter().filter(|row| row.copies).collect();
    let waiting: Vec<&Row> = rows.iter().take(count).collect();
    util::print(&table("waits a step", &heads, &waiting, |found| format!("{:.1}", found.waits)))?;
    util::print(&table("ms a step", &heads, &loops, |found| format!("{:.1}", found.milliseconds)))?;
    let rate = |found: &Found| COPIED as f64 / 1e3 / found.milliseconds;
    util::print(&table("MB/s", &heads, &copies, |found| format!("{:.0}", rate(found))))?;
    checks::same_waits(&rows)?;
    rows.retain(|row| {
        LOOPS.iter().any(|(name, _)| row.name == *name) && !LARGE.contains(&row.name.as_str())
    });
    checks::no_other_waits(&rows, &args.round_trips)
}

/// What was found of the loops, and of plain connections if wanted, at one distance, and the
/// seconds that a wait took at the least.
fn at_distance(
    round_trip: f64,
    dist: &Dist,
    driver: &str,
    loops: &[(&str, u32)],
    plain: bool,
) -> Result<(Vec<Found>, f64)> {
    // All is new at each distance, so that nothing is known from another one: not to us, and not to
    // TCP.
    let network = Network::create(longest(&[round_trip]))?;
    // Nobody else is in this network.
    let flags = ["--listen", &format!("{SERVER}:0"), "--tls", "off", "--allow-anonymous"];
    let server =
        Server::start(network.command(Side::Server, &dist.outboard()), &flags, Some(driver))?;
    let (mut found, mut shortest) = (Vec::new(), f64::MAX);
    for (name, count) in loops {
        step(&format!("{name}, {round_trip} ms"));
        let few = steps::take(&network, dist, &server.address, name, *count)?;
        let many = steps::take(&network, dist, &server.address, name, 2 * count)?;
        if !COPIES.contains(name) {
            // The answer to a copy may be on its way before it is waited for.
            shortest = shortest.min(few.shortest).min(many.shortest);
        }
        // Twice as many steps wait that many times more: what is waited for once is not a step's.
        let waits = many.waits.abs_diff(few.waits) as f64 / f64::from(*count);
        let milliseconds = few.milliseconds.min(many.milliseconds);
        eprintln!("    waits a step: {waits:.1}, ms a step: {milliseconds:.1}");
        found.push(Found { waits, milliseconds });
    }
    for count in STREAMS.into_iter().filter(|_| plain) {
        step(&format!("plain TCP over {count} connections, {round_trip} ms"));
        let seconds = streams::measure(&network, count, COPIED)?;
        found.push(Found { waits: 1.0, milliseconds: 1e3 * seconds });
    }
    Ok((found, shortest))
}

/// What was measured of a loop.
struct Row {
    name: String,
    /// Whether a step is [`COPIED`] bytes.
    copies: bool,
    /// At each distance.
    found: Vec<Found>,
}

impl Row {
    fn new(name: &str, copies: bool) -> Row {
        Row { name: name.to_owned(), copies, found: Vec::new() }
    }
}

/// Of a step.
struct Found {
    waits: f64,
    milliseconds: f64,
}

fn table(corner: &str, heads: &[String], rows: &[&Row], cell: impl Fn(&Found) -> String) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text =
        format!("| {corner} | {} |\n|---|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for row in rows {
        let cells: Vec<String> = row.found.iter().map(&cell).collect();
        text += &format!("| {} | {} |\n", row.name, cells.join(" | "));
    }
    text + "\n"
}

/// The longest of some round trips in milliseconds.
fn longest(round_trips: &[f64]) -> Duration {
    Duration::from_secs_f64(round_trips.iter().copied().fold(0.0, f64::max) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::{Found, Row, table};

    #[test]
    fn tables_have_a_column_for_each_distance() {
        let heads = ["0 ms (0.1)".to_owned(), "10 ms (10.1)".to_owned()];
        let found = [0.5, 10.5].map(|milliseconds| Found { waits: 1.0, milliseconds });
        let row = Row { name: "train".to_owned(), copies: false, found: found.into() };
        let text = table("ms", &heads, &[&row], |found| found.milliseconds.to_string());
        assert_eq!(
            text,
            "| ms | 0 ms (0.1) | 10 ms (10.1) |\n|---|---|---|\n| train | 0.5 | 10.5 |\n\n"
        );
        assert_eq!(table("ms", &heads, &[], |_| String::new()), "");
    }
}
