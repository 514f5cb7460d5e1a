//! Targets, which `benches/targets.toml` holds, and whether a run meets them.

use serde::Deserialize;

use crate::BenchError;
use crate::numbers;
use crate::results::{Measured, Results, Unit};
use crate::statistics;

/// The file of targets, which travels inside the program.
const FILE: &str = include_str!("../../../benches/targets.toml");

/// A measure with targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The measure's name.
    pub measure: String,
    /// Targets by way: `shm`, `tcp`.
    pub ways: Vec<(String, Target)>,
}

/// What is to be reached: all of some comparisons.
#[derive(Debug, Clone, PartialEq)]
pub struct Target(Vec<Limit>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Limit {
    at_most: bool,
    number: f64,
    of: Of,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Of {
    /// The figure itself, in base units.
    Figure(Unit),
    /// The ratio to native.
    Native,
    /// The part of what a single client of the same kind reaches.
    OneClient,
    /// The part of what plain TCP streams carry.
    Streams,
    /// The part of what they carry each way, both ways at once.
    StreamsBoth,
    /// A round trip over plain TCP, and so many times what one plain TCP stream takes for the
    /// bytes.
    Stream,
}

/// What a target says of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// Reached.
    Met,
    /// Not reached: how many times the target, or which part of it.
    Missed(f64),
    /// There is no figure, or it was not measured on the device that the target is for.
    Open,
}

#[derive(Deserialize)]
struct File {
    row: Vec<FileRow>,
}

#[derive(Deserialize)]
struct FileRow {
    measure: String,
    #[serde(flatten)]
    ways: std::collections::BTreeMap<String, String>,
}

/// The rows of the file, in its order.
pub fn rows() -> Result<Vec<Row>, BenchError> {
    let wrong =
        |reason: String| BenchError::File { file: "benches/targets.toml".to_owned(), reason };
    let file: File = toml::from_str(FILE).map_err(|error| wrong(error.to_string()))?;
    let row = |row: FileRow| {
        let FileRow { measure, ways } = row;
        let ways = ways.into_iter().map(|(way, text)| {
            let target = Target::parse(&text);
            let target = target
                .ok_or_else(|| wrong(format!("the target \"{text}\" of {measure} cannot be read")));
            Ok((way, target?))
        });
        let ways = ways.collect::<Result<_, BenchError>>()?;
        Ok(Row { measure, ways })
    };
    file.row.into_iter().map(row).collect()
}

impl Row {
    /// The target of a way.
    pub fn target(&self, way: &str) -> Option<&Target> {
        self.ways.iter().find(|(name, _)| name == way).map(|(_, target)| target)
    }
}

impl Target {
    fn parse(text: &str) -> Option<Target> {
        text.split(" and ").map(Limit::parse).collect::<Option<_>>().map(Target)
    }

    /// Whether the medians of a run meet it.
    pub fn judge(&self, results: &Results, measured: &Measured, way: &str) -> Verdict {
        let mut verdict = Verdict::Met;
        for limit in &self.0 {
            let Some((seen, wanted)) = limit.seen(results, measured, way) else {
                return Verdict::Open;
            };
            let reached = if limit.at_most { seen <= wanted } else { seen >= wanted };
            let part = if wanted == 0.0 { f64::INFINITY } else { seen / wanted };
            verdict = match verdict {
                Verdict::Met if !reached => Verdict::Missed(part),
                Verdict::Missed(other) if !reached => {
                    Verdict::Missed(if limit.at_most { other.max(part) } else { other.min(part) })
                }
                other => other,
            };
        }
        verdict
    }
}

impl Limit {
    fn parse(text: &str) -> Option<Limit> {
        let (at_most, rest) = match text.trim().strip_prefix("<=") {
            Some(rest) => (true, rest),
            None => (false, text.trim().strip_prefix(">=")?),
        };
        let rest = rest.trim();
        // A sum, of which the first part has no number.
        let (rest, sum) =
            rest.strip_prefix("round trip + ").map_or((rest, false), |rest| (rest, true));
        let (number, unit) = rest.split_once(' ')?;
        let number: f64 = number.parse().ok()?;
        let (factor, of) = match unit.trim() {
            "x stream" if sum => (1.0, Of::Stream),
            _ if sum => return None,
            "ns" => (1e-9, Of::Figure(Unit::Time)),
            "us" => (1e-6, Of::Figure(Unit::Time)),
            "ms" => (1e-3, Of::Figure(Unit::Time)),
            "GB/s" => (1e9, Of::Figure(Unit::Rate)),
            "B" => (1.0, Of::Figure(Unit::Bytes)),
            "times" => (1.0, Of::Figure(Unit::Factor)),
            "x" => (1.0, Of::Native),
            "% of one client" => (0.01, Of::OneClient),
            "% of streams" => (0.01, Of::Streams),
            "% of streams both ways" => (0.01, Of::StreamsBoth),
            _ => return None,
        };
        Some(Limit { at_most, number: number * factor, of })
    }

    /// What the limit is about, and what it is held against. `None` if there is nothing to judge.
    fn seen(&self, results: &Results, measured: &Measured, way: &str) -> Option<(f64, f64)> {
        let median = measured.summary(way)?.median;
        let seen = match self.of {
            Of::Figure(unit) if unit == measured.unit => {
                // Counted bytes are the same everywhere, and a factor compares what is there.
                let anywhere = matches!(unit, Unit::Bytes | Unit::Factor);
                let same_device =
                    results.machine.get("device").is_some_and(|device| device.contains("H200"));
                if same_device || anywhere { median } else { return None }
            }
            Of::Figure(_) => return None,
            Of::Native => measured.ratio(way)?.median,
            Of::OneClient => {
                let (same, _) = measured.id.rsplit_once('.')?;
                median / results.measure(&format!("{same}.1"))?.summary(way)?.median
            }
            Of::Streams => median / results.same_streams()?.median,
            Of::StreamsBoth => median / results.same_streams_both()?.median,
            Of::Stream => {
                let bytes = numbers::size(measured.id.rsplit('.').next()?)? as f64;
                let round_trip = statistics::median(&results.round_trip)?;
                return Some((
                    median,
                    round_trip + self.number * bytes / results.one_stream()?.median,
                ));
            }
        };
        Some((seen, self.number))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, limit) in self.0.iter().enumerate() {
            let (and, sign) =
                (if index == 0 { "" } else { ", " }, if limit.at_most { "≤" } else { "≥" });
            let size = match limit.of {
                Of::Figure(unit) => numbers::plain(unit, limit.number),
                Of::Native => format!("{} ×", limit.number),
                Of::OneClient => format!("{:.0} % of one client", limit.number * 100.0),
                Of::Streams => format!("{:.0} % of plain streams", limit.number * 100.0),
                Of::StreamsBoth => {
                    format!("{:.0} % of plain streams both ways", limit.number * 100.0)
                }
                Of::Stream => format!("round trip + {} × one plain stream", limit.number),
            };
            write!(out, "{and}{sign} {size}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Group, NATIVE, Round, Series, Streams};
    use std::collections::BTreeMap;

    fn measured(unit: Unit, native: f64, tcp: f64) -> Measured {
        let series = |value| {
            let round = Round { value, ..Round::default() };
            Series { rounds: vec![round], missing: None }
        };
        let ways =
            BTreeMap::from([(NATIVE.to_owned(), series(native)), ("tcp".to_owned(), series(tcp))]);
        Measured { id: "x".into(), title: "x".into(), unit, group: Group::Calls, ways }
    }

    fn on(device: &str) -> Results {
        let machine = BTreeMap::from([("device".to_owned(), device.to_owned())]);
        Results {
            machine,
            lanes: 2,
            streams: vec![Streams { streams: 2, rounds: vec![20e9] }],
            ..Results::default()
        }
    }

    fn judge(target: &str, results: &Results, measured: &Measured) -> Verdict {
        Target::parse(target).unwrap().judge(results, measured, "tcp")
    }

    #[test]
    fn every_target_can_be_read_and_names_a_measure() {
        let mut known: Vec<String> =
            crate::measures::catalogue(false).into_iter().map(|measure| measure.id).collect();
        known.extend(crate::measures::clients_catalogue(false).into_iter().map(|m| m.id));
        known.extend(
            crate::apps::STEADY
                .iter()
                .chain([&crate::apps::FIRST])
                .flat_map(crate::apps::measures)
                .map(|m| m.id),
        );
        known.push("upload.later".to_owned());
        for row in rows().unwrap() {
            assert!(known.contains(&row.measure), "{}", row.measure);
            let ways: Vec<&str> = row.ways.iter().map(|(way, _)| way.as_str()).collect();
            assert!(
                !ways.is_empty() && ways.iter().all(|way| ["shm", "tcp"].contains(way)),
                "{row:?}"
            );
            let sums = row
                .ways
                .iter()
                .flat_map(|(_, target)| &target.0)
                .filter(|limit| limit.of == Of::Stream);
            let size = row.measure.rsplit('.').next().and_then(numbers::size);
            assert!(sums.count() == 0 || size.is_some(), "{} names no size", row.measure);
        }
    }

    #[test]
    fn figures_are_judged_on_their_device_only() {
        let call = measured(Unit::Time, 2e-6, 0.4e-6);
        assert_eq!(judge("<= 0.5 us", &on("NVIDIA H200"), &call), Verdict::Met);
        assert_eq!(judge("<= 0.2 us", &on("NVIDIA H200"), &call), Verdict::Missed(2.0));
        assert_eq!(judge("<= 0.2 us", &on("another"), &call), Verdict::Open);
        assert_eq!(judge("<= 0.25 x", &on("another"), &call), Verdict::Met);
    }

    #[test]
    fn both_of_two_limits_are_to_be_met() {
        let target = ">= 80 % of streams and >= 12 GB/s";
        assert_eq!(
            judge(target, &on("NVIDIA H200"), &measured(Unit::Rate, 50e9, 17e9)),
            Verdict::Met
        );
        assert_eq!(
            judge(target, &on("NVIDIA H200"), &measured(Unit::Rate, 50e9, 8e9)),
            Verdict::Missed(0.5)
        );
        assert_eq!(
            Target::parse(target).unwrap().to_string(),
            "≥ 80 % of plain streams, ≥ 12 GB/s"
        );
    }

    #[test]
    fn both_ways_are_compared_with_both_ways() {
        let streams_both = vec![Streams { streams: 2, rounds: vec![10e9] }];
        let results = Results { streams_both, ..on("x") };
        let target = ">= 80 % of streams both ways";
        assert_eq!(judge(target, &results, &measured(Unit::Rate, 50e9, 9e9)), Verdict::Met);
        assert_eq!(judge(target, &on("x"), &measured(Unit::Rate, 50e9, 9e9)), Verdict::Open);
        assert_eq!(Target::parse(target).unwrap().to_string(), "≥ 80 % of plain streams both ways");
    }

    #[test]
    fn a_small_copy_has_a_round_trip_and_a_stream() {
        let streams = vec![Streams { streams: 1, rounds: vec![4.0 * 1048576.0] }];
        let results = Results { streams, round_trip: vec![0.5, 0.75, 9.0], ..on("x") };
        // A round trip of 0.75 s and twice 0.25 s for a mebibyte.
        let target = "<= round trip + 2 x stream";
        let copy = |tcp| Measured { id: "copy.x.1M".into(), ..measured(Unit::Time, 0.1, tcp) };
        assert_eq!(judge(target, &results, &copy(1.25)), Verdict::Met);
        assert_eq!(judge(target, &results, &copy(2.5)), Verdict::Missed(2.0));
        assert_eq!(
            judge(target, &results, &measured(Unit::Time, 0.1, 0.1)),
            Verdict::Open,
            "no size"
        );
        assert_eq!(judge(target, &on("x"), &copy(1.0)), Verdict::Open, "no round trip");
        assert_eq!(
            Target::parse(target).unwrap().to_string(),
            "≤ round trip + 2 × one plain stream"
        );
        assert!(
            Target::parse("<= round trip + 2 us").is_none()
                && Target::parse("<= 2 x stream").is_none()
        );
    }

    #[test]
    fn many_clients_are_compared_with_one() {
        let of = |id: &str, tcp| Measured { id: id.into(), ..measured(Unit::Rate, 50e9, tcp) };
        let many = of("clients.h2d.64", 8e9);
        let results = Results { measures: vec![of("clients.h2d.1", 10e9)], ..on("another") };
        assert_eq!(judge(">= 80 % of one client", &results, &many), Verdict::Met);
        assert_eq!(judge(">= 90 % of one client", &on("another"), &many), Verdict::Open);
        let spread = measured(Unit::Factor, 1.0, 1.4);
        assert_eq!(judge("<= 1.4 times", &results, &spread), Verdict::Met);
        assert!(matches!(judge("<= 1.3 times", &results, &spread), Verdict::Missed(_)));
        let both = Target::parse("<= 1.3 times and >= 90 % of one client").unwrap();
        assert_eq!(both.to_string(), "≤ 1.3 ×, ≥ 90 % of one client");
    }

    #[test]
    fn nothing_may_be_a_target() {
        assert_eq!(judge("<= 0 B", &on("x"), &measured(Unit::Bytes, 0.0, 0.0)), Verdict::Met);
        assert_eq!(
            judge("<= 0 B", &on("x"), &measured(Unit::Bytes, 0.0, 5.0)),
            Verdict::Missed(f64::INFINITY)
        );
        assert!(Target::parse("less").is_none());
    }
}
