//! Tables.

use std::fmt::Write as _;

use super::{GROUPS, Texts};
use crate::numbers;
use crate::results::{Group, Measured, NATIVE, Results, Streams, Unit};
use crate::statistics;
use crate::targets::{Row, Verdict};

/// What a way is called.
pub(super) fn name(way: &str) -> &str {
    match way {
        "shm" => "shared memory",
        "tcp" => "TCP",
        "tls" => "TCP with TLS",
        other => other,
    }
}

/// The ways other than native.
fn remote(results: &Results) -> impl Iterator<Item = &str> {
    results.ways.iter().map(String::as_str).filter(|way| *way != NATIVE)
}

/// Median and spread of a way, or why there is none.
fn figure(measured: &Measured, way: &str) -> String {
    match (measured.summary(way), measured.ways.get(way)) {
        (Some(summary), _) => numbers::spread(measured.unit, &summary),
        (None, Some(_)) => failure(measured, way).unwrap_or_else(|| "–".to_owned()),
        (None, None) => "–".to_owned(),
    }
}

/// Why a way has no figure.
fn failure(measured: &Measured, way: &str) -> Option<String> {
    let series = measured.ways.get(way).filter(|series| series.rounds.is_empty())?;
    let reason = series.missing.as_ref()?.replace('|', "/");
    let words: Vec<&str> = reason.split_whitespace().take(16).collect();
    Some(words.join(" "))
}

fn ratio(measured: &Measured, way: &str) -> String {
    measured.ratio(way).map_or_else(|| "–".to_owned(), |summary| numbers::ratio(&summary))
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Missed(_) => "**missed**",
        Verdict::Open => "–",
    }
}

/// The table of targets.
pub(super) fn targets(results: &Results, rows: &[Row]) -> String {
    let mut table = String::from("| | native |");
    for way in remote(results) {
        let _ = write!(table, " {}: target | measured | × native | |", name(way));
    }
    table += "\n|---|---|";
    remote(results).for_each(|_| table += "---|---|---|---|");
    table.push('\n');
    for row in rows {
        let Some(measured) = results.measure(&row.measure) else { continue };
        let _ = write!(table, "| {} | {} |", measured.title, figure(measured, NATIVE));
        for way in remote(results) {
            let (goal, judged) = match row.target(way) {
                Some(target) if failure(measured, way).is_some() => {
                    (target.to_string(), "**failed**")
                }
                Some(target) => (target.to_string(), verdict(target.judge(results, measured, way))),
                None => ("–".to_owned(), "–"),
            };
            let _ = write!(
                table,
                " {goal} | {} | {} | {judged} |",
                figure(measured, way),
                ratio(measured, way)
            );
        }
        table.push('\n');
    }
    table.push('\n');
    table
}

/// A list of the targets that are missed, with what people say about them.
pub(super) fn missed(results: &Results, texts: &Texts) -> String {
    let mut list = String::new();
    for row in &texts.rows {
        let Some(measured) = results.measure(&row.measure) else { continue };
        for way in remote(results) {
            let judged = row.target(way).map(|target| target.judge(results, measured, way));
            let by = match (failure(measured, way), judged) {
                (Some(reason), _) => format!("failed ({reason})"),
                (None, Some(Verdict::Missed(part))) if part.is_finite() => {
                    format!("{} times the target", numbers::digits(part))
                }
                (None, Some(Verdict::Missed(_))) => "not nothing".to_owned(),
                _ => continue,
            };
            let why = match texts.note(&row.measure, way) {
                Some(note) => format!("{} {}", note.why, note.closes),
                None => "Not explained yet.".to_owned(),
            };
            let _ = writeln!(list, "- {}, {}: {by}. {why}", measured.title, name(way));
        }
    }
    if list.is_empty() { list } else { format!("### Missed\n\n{list}\n") }
}

/// All measures of a group, with CPU time.
pub(super) fn group(results: &Results, group: Group, heading: &str) -> String {
    let measures: Vec<&Measured> =
        results.measures.iter().filter(|measured| measured.group == group).collect();
    if measures.is_empty() {
        return String::new();
    }
    let mut table = format!("### {heading}\n\n| | native | CPU |");
    for way in remote(results) {
        let _ = write!(table, " {} | × native | CPU: client + server |", name(way));
    }
    table += "\n|---|---|---|";
    remote(results).for_each(|_| table += "---|---|---|");
    table.push('\n');
    for measured in measures {
        let _ = write!(
            table,
            "| {} | {} | {} |",
            measured.title,
            figure(measured, NATIVE),
            cpu(measured, NATIVE)
        );
        for way in remote(results) {
            let _ = write!(
                table,
                " {} | {} | {} |",
                figure(measured, way),
                ratio(measured, way),
                cpu(measured, way)
            );
        }
        table.push('\n');
    }
    table.push('\n');
    table
}

/// CPU time for each operation.
fn cpu(measured: &Measured, way: &str) -> String {
    let Some((client, server)) = measured.ways.get(way).and_then(|series| series.cpu_each()) else {
        return "–".to_owned();
    };
    let time = |seconds: f64| {
        if seconds == 0.0 { "0".to_owned() } else { numbers::value(Unit::Time, seconds) }
    };
    if way == NATIVE { time(client) } else { format!("{} + {}", time(client), time(server)) }
}

/// What plain TCP does.
pub(super) fn plain_tcp(results: &Results) -> String {
    let mut text = String::new();
    if let Some(summary) = statistics::summary(&results.round_trip) {
        let figure = numbers::spread(Unit::Time, &summary);
        let _ = writeln!(
            text,
            "### A round trip over plain TCP\n\n64 bytes there and 64 back over loopback, between two threads that look for them all the time: {figure}.\n"
        );
    }
    text + &streams(results)
}

fn streams(results: &Results) -> String {
    if results.streams.is_empty() {
        return String::new();
    }
    let mut table = format!(
        "### Plain TCP streams over loopback\n\n256 MiB of memory, sent by as many threads and received by as many; in \
         the last column as much each way at once over the same streams, the rate each way. Outboard's copies use \
         {}.\n\n| streams | one way | both ways |\n|---|---|---|\n",
        results.lanes
    );
    let rate = |streams: &Streams| {
        statistics::summary(&streams.rounds)
            .map(|summary| numbers::spread(Unit::Rate, &summary))
            .unwrap_or_default()
    };
    for streams in &results.streams {
        let both = results.streams_both.iter().find(|both| both.streams == streams.streams);
        let both = both.map_or("–".to_owned(), rate);
        let _ = writeln!(table, "| {} | {} | {both} |", streams.streams, rate(streams));
    }
    table.push('\n');
    table
}

/// For the terminal: what has targets comes last, where it is seen.
pub(super) fn short(results: &Results, rows: &[Row]) -> String {
    let mut table = format!("{:<72} {:>11}", "", "native");
    for way in remote(results) {
        let _ = write!(table, " {way:>11} {:>8} {:<6}", "× native", "");
    }
    table.push('\n');
    let known = |measured: &&Measured| rows.iter().any(|row| row.measure == measured.id);
    let (judged, others): (Vec<&Measured>, Vec<&Measured>) =
        results.measures.iter().partition(known);
    let in_order = GROUPS
        .iter()
        .flat_map(|(group, _)| others.iter().filter(move |measured| measured.group == *group));
    for measured in in_order.chain(&judged) {
        let title: String = measured.title.chars().take(72).collect();
        let median = |way| {
            measured
                .summary(way)
                .map_or("–".to_owned(), |all| numbers::value(measured.unit, all.median))
        };
        let _ = write!(table, "{title:<72} {:>11}", median(NATIVE));
        for way in remote(results) {
            let ratio =
                measured.ratio(way).map_or("–".to_owned(), |all| numbers::digits(all.median));
            let target =
                rows.iter().find(|row| row.measure == measured.id).and_then(|row| row.target(way));
            let judged = target.map_or("", |target| match target.judge(results, measured, way) {
                Verdict::Met => "met",
                Verdict::Missed(_) => "missed",
                Verdict::Open => "",
            });
            let _ = write!(table, " {:>11} {ratio:>8} {judged:<6}", median(way));
        }
        table.truncate(table.trim_end_matches(' ').len());
        table.push('\n');
    }
    table
}
