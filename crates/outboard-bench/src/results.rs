//! What a run found, as it is written to a JSON file and read again for the page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::statistics::{self, Summary};

/// The way to the device that the others are compared with.
pub const NATIVE: &str = "native";

/// What a measure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds; less is better.
    Time,
    /// Bytes per second; more is better.
    Rate,
    /// Bytes; less is better.
    Bytes,
    /// How many times as much one thing is as another; less is better.
    Factor,
}

/// Where a measure stands on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Calls that queue work or wait for it.
    Calls,
    /// Memory taken and given back.
    Memory,
    /// Copies between host and device.
    Copies,
    /// Copies between host and device, many queued at once.
    Queued,
    /// Copies of several clients at once.
    Clients,
    /// Questions that the client can answer itself.
    Local,
    /// From the start of a process to its first work.
    Startup,
    /// Waiting for a long time, and doing nothing.
    Waiting,
    /// Whole programs.
    Applications,
}

/// A measure and what every way to the device reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name, such as `launch.cost`.
    pub id: String,
    /// What it is, for people.
    pub title: String,
    /// What it counts.
    pub unit: Unit,
    /// Where it stands.
    pub group: Group,
    /// By way to the device: `native`, `shm`, `tcp`.
    pub ways: BTreeMap<String, Series>,
}

/// What one way to the device reached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The turns, in order; turns of the same place belong to the same round.
    pub rounds: Vec<Round>,
    /// Why there are no rounds, or not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// One turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The median of the turn's samples.
    pub value: f64,
    /// How many samples there were.
    pub samples: u64,
    /// How many operations.
    pub operations: u64,
    /// Wall time of the turn, in seconds.
    pub seconds: f64,
    /// CPU time of the client's process in the turn, in seconds.
    pub client_cpu: f64,
    /// CPU time of the server and its workers in the turn, in seconds.
    pub server_cpu: f64,
}

impl Series {
    /// The rounds' values.
    pub fn values(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.value).collect()
    }

    /// Median and spread of the rounds.
    pub fn summary(&self) -> Option<Summary> {
        statistics::summary(&self.values())
    }

    /// CPU time for each operation, of client and server: the medians of the rounds.
    pub fn cpu_each(&self) -> Option<(f64, f64)> {
        let each = |cpu: fn(&Round) -> f64| {
            let with_work = self.rounds.iter().filter(|round| round.operations > 0);
            statistics::median(
                &with_work.map(|round| cpu(round) / round.operations as f64).collect::<Vec<_>>(),
            )
        };
        Some((each(|round| round.client_cpu)?, each(|round| round.server_cpu)?))
    }
}

impl Measured {
    /// Median and spread of one way.
    pub fn summary(&self, way: &str) -> Option<Summary> {
        self.ways.get(way)?.summary()
    }

    /// The ratio of one way to native, from turns of the same round.
    pub fn ratio(&self, way: &str) -> Option<Summary> {
        let (values, native) = (self.ways.get(way)?.values(), self.ways.get(NATIVE)?.values());
        statistics::summary(&statistics::ratios(&values, &native))
    }
}

/// What plain TCP streams between two processes of this machine carry, in bytes per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Streams {
    /// How many at once.
    pub streams: u32,
    /// One value a round.
    pub rounds: Vec<f64>,
}

/// A whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Outboard's release.
    pub outboard: String,
    /// Its revision, if it was told.
    #[serde(default)]
    pub revision: Option<String>,
    /// The day.
    pub date: String,
    /// The command line.
    pub command: String,
    /// The machine and what runs on it: names and values.
    pub machine: BTreeMap<String, String>,
    /// How many rounds were asked for.
    pub rounds: u32,
    /// Whether turns were kept short, for a look at whether it works.
    pub quick: bool,
    /// The ways to the device that took part.
    pub ways: Vec<String>,
    /// Sentences about what was left out.
    pub skipped: Vec<String>,
    /// How many connections Outboard uses for copies over TCP.
    #[serde(default)]
    pub lanes: u32,
    /// Plain TCP streams.
    pub streams: Vec<Streams>,
    /// Such that carry bytes both ways at once: the rate each way.
    #[serde(default)]
    pub streams_both: Vec<Streams>,
    /// What a round trip of 64 bytes takes over plain TCP, in seconds; one value a round.
    #[serde(default)]
    pub round_trip: Vec<f64>,
    /// All measures.
    pub measures: Vec<Measured>,
}

impl Results {
    /// The measure of that name.
    pub fn measure(&self, id: &str) -> Option<&Measured> {
        self.measures.iter().find(|measure| measure.id == id)
    }

    /// What as many plain TCP streams carry as Outboard uses for copies.
    pub fn same_streams(&self) -> Option<Summary> {
        rate_of(&self.streams, self.lanes)
    }

    /// What as many carry each way, both at once.
    pub fn same_streams_both(&self) -> Option<Summary> {
        rate_of(&self.streams_both, self.lanes)
    }

    /// What a single plain TCP stream carries.
    pub fn one_stream(&self) -> Option<Summary> {
        rate_of(&self.streams, 1)
    }
}

fn rate_of(streams: &[Streams], count: u32) -> Option<Summary> {
    let streams = streams.iter().find(|streams| streams.streams == count)?;
    statistics::summary(&streams.rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        let round = |value: &f64| Round {
            value: *value,
            samples: 1,
            operations: 10,
            seconds: 1.0,
            client_cpu: 0.5,
            server_cpu: 0.2,
        };
        Series { rounds: values.iter().map(round).collect(), missing: None }
    }

    #[test]
    fn a_ratio_is_taken_within_rounds() {
        let ways = BTreeMap::from([
            (NATIVE.to_owned(), series(&[1.0, 2.0, 4.0])),
            ("tcp".to_owned(), series(&[2.0, 2.0, 12.0])),
        ]);
        let measured = Measured {
            id: "x".into(),
            title: "x".into(),
            unit: Unit::Time,
            group: Group::Calls,
            ways,
        };
        assert_eq!(measured.ratio("tcp").unwrap(), Summary { median: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(measured.ratio("shm"), None);
        assert_eq!(measured.ways["tcp"].cpu_each(), Some((0.05, 0.02)));
    }

    #[test]
    fn results_survive_their_file() {
        let results = Results {
            streams: vec![Streams { streams: 8, rounds: vec![1.0] }],
            lanes: 8,
            ..Results::default()
        };
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
        assert_eq!(results.same_streams().unwrap().median, 1.0);
        assert_eq!((results.one_stream(), results.same_streams_both()), (None, None));
    }
}
