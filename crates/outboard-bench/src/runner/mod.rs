//! A whole run: which processes are started, and in which order turns are taken.

mod bench;
mod way;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::measures::{self, Measure};
use crate::results::{Group, Measured, Results, Series, Streams, Unit};
use crate::{BenchError, apps, machine, streams};

use bench::Bench;
use streams::Ways;

/// What is to be measured, and with what.
#[derive(Debug)]
pub struct Setup {
    /// The command `outboard`, which starts servers and clients.
    pub outboard: PathBuf,
    /// The native driver library as `outboard serve --driver` takes it.
    pub driver: OsString,
    /// The folder where the native driver is `libcuda.so.1`. `None` if the loader finds it by
    /// itself.
    pub native: Option<PathBuf>,
    /// The transports to compare.
    pub transports: Vec<String>,
    /// Only measures whose names contain one of these; all if there are none.
    pub only: Vec<String>,
    /// Short turns and few: whether it works, not how fast it is.
    pub quick: bool,
    /// How many rounds.
    pub rounds: u32,
    /// The interpreter for the applications; without it they are left out.
    pub python: Option<PathBuf>,
    /// No measure is begun after this time.
    pub within: Option<Duration>,
    /// A folder for logs and caches.
    pub scratch: PathBuf,
    /// The command line, for the page.
    pub command: String,
    /// Outboard's revision, for the page.
    pub revision: Option<String>,
}

/// How many connections copies use, unless the client tells.
const LANES: u32 = 8;

impl Setup {
    /// How long a turn of driver calls is.
    fn turn(&self) -> Duration {
        Duration::from_millis(if self.quick { 5 } else { 50 })
    }

    fn wanted(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| id.contains(part.as_str()))
    }

    /// The wanted ones of some measures.
    fn choose(&self, mut all: Vec<Measure>) -> Vec<Measure> {
        all.retain(|measure| self.wanted(&measure.id));
        all
    }
}

/// Who wants to know how a run goes.
pub trait Progress {
    /// This comes next.
    fn step(&mut self, what: &str);
    /// This is what there is so far; a run that is broken off has at least that.
    fn so_far(&mut self, results: &Results);
}

/// Measures, and tells about each step.
pub fn run(setup: &Setup, progress: &mut dyn Progress) -> Result<Results, BenchError> {
    let mut results = Results {
        outboard: env!("CARGO_PKG_VERSION").to_owned(),
        revision: setup.revision.clone(),
        date: machine::today(),
        command: setup.command.clone(),
        machine: machine::describe(),
        rounds: setup.rounds,
        quick: setup.quick,
        lanes: LANES,
        ..Results::default()
    };
    let mut bench = Bench::open(setup, &mut results, progress)?;
    let measures = setup.choose(measures::catalogue(setup.quick));
    let chosen = |start: &str| measures.iter().any(|measure| measure.id.starts_with(start));
    if chosen("copy.") || chosen("queue.") {
        bench.tell("plain TCP streams");
        results.streams = plain_streams(setup, Ways::One)?;
    }
    if chosen("queue.both.") {
        results.streams_both = plain_streams(setup, Ways::Both)?;
    }
    if chosen("launch.sync") || chosen("copy.small.") {
        bench.tell("a round trip over plain TCP");
        results.round_trip =
            streams::round_trip(setup.rounds).map_err(BenchError::system(LOOPBACK))?;
    }
    bench.start_up(&mut results);
    bench.driver_calls(&measures, &mut results);
    if let Some(python) = &setup.python {
        let script = apps::unpack(&setup.scratch.join("apps"))?;
        bench.applications(python, &script, &mut results);
    } else {
        results
            .skipped
            .push("Applications were left out: no Python interpreter was named.".to_owned());
    }
    // Last: many clients take long to start, and --within is to leave these out first.
    bench.several_clients(&mut results);
    drop(bench);
    if results
        .measures
        .iter()
        .all(|measure| measure.ways.values().all(|series| series.rounds.is_empty()))
    {
        let why = results
            .measures
            .iter()
            .flat_map(|measure| measure.ways.values())
            .find_map(|way| way.missing.clone());
        return Err(BenchError::Nothing(format!(
            "nothing could be measured: {}",
            why.unwrap_or_else(|| "no measure has a name with what --only says".to_owned())
        )));
    }
    Ok(results)
}

/// What has failed if plain TCP cannot be measured.
const LOOPBACK: &str = "cannot send over the loopback interface";

fn plain_streams(setup: &Setup, ways: Ways) -> Result<Vec<Streams>, BenchError> {
    let measure = |count: u32| {
        let rounds = streams::measure(count, ways, setup.rounds, setup.quick)
            .map_err(BenchError::system(LOOPBACK))?;
        Ok(Streams { streams: count, rounds })
    };
    streams::COUNTS.into_iter().map(measure).collect()
}

/// An empty entry for a measure.
fn entry(measure: &Measure) -> Measured {
    let Measure { id, title, unit, group } = measure.clone();
    Measured { id, title, unit, group, ways: BTreeMap::new() }
}

/// What a second run of a program sends of images, from the statistics of its process.
fn upload(uploads: &BTreeMap<String, Vec<f64>>, which: &str, title: &str) -> Measured {
    let measure = Measure::new(format!("upload.{which}"), title, Unit::Bytes, Group::Startup);
    let mut entry = entry(&measure);
    for (way, values) in uploads {
        let chosen = if which == "first" {
            values.first()
        } else {
            values.last().filter(|_| values.len() > 1)
        };
        let round =
            |value: &f64| crate::results::Round { value: *value, samples: 1, ..Default::default() };
        entry.ways.insert(
            way.clone(),
            Series { rounds: chosen.iter().map(|value| round(value)).collect(), missing: None },
        );
    }
    entry
}
