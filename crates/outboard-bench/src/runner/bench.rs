//! What is measured, and by whose turns.

mod turns;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use super::way::Way;
use super::{Progress, Setup, entry, upload};
use crate::BenchError;
use crate::apps::{self, Process};
use crate::child::PROBE;
use crate::measures::{self, Measure};
use crate::participant::SUBCOMMAND;
use crate::protocol::{Answer, Request};
use crate::results::{Group, Measured, Results, Unit};
use turns::{LIMIT, Seats, hello};

pub(super) struct Bench<'a> {
    setup: &'a Setup,
    ways: Vec<Way>,
    progress: &'a mut dyn Progress,
    started: Instant,
}

impl<'a> Bench<'a> {
    /// Finds out which ways there are: each transport gets a server, and a first client, which
    /// tells whether it really came over that transport and how long its start took.
    pub(super) fn open(
        setup: &'a Setup,
        results: &mut Results,
        progress: &'a mut dyn Progress,
    ) -> Result<Bench<'a>, BenchError> {
        let mut bench =
            Bench { setup, ways: vec![Way::native(setup)?], progress, started: Instant::now() };
        bench.tell("native driver");
        match bench.probe(0) {
            Ok(facts) => results.machine.extend(facts),
            Err(reason) => {
                return Err(BenchError::Nothing(format!(
                    "the native driver cannot be used: {reason}"
                )));
            }
        }
        let cold = Measure::new(
            "startup.cold",
            "the three together, first client of a new server",
            Unit::Time,
            Group::Startup,
        );
        let mut cold = entry(&cold);
        bench.first_client(0, &mut cold);
        for transport in &setup.transports {
            bench.tell(&format!("server for {transport}"));
            bench.ways.push(Way::through(setup, transport)?);
            let way = bench.ways.len() - 1;
            let used = bench.first_client(way, &mut cold).unwrap_or_default();
            let failed = cold.ways.get(transport).and_then(|series| series.missing.clone());
            let why = match failed {
                Some(reason) => reason,
                None if used == bench.ways[way].transport() => continue,
                None if used.is_empty() => {
                    "the client does not say which transport it used".to_owned()
                }
                None => format!("a client that was told to use it used {used}"),
            };
            results.skipped.push(format!("The transport {transport} was left out: {why}."));
            cold.ways.remove(transport);
            bench.ways.pop();
        }
        if bench.ways.len() == 1 {
            return Err(BenchError::Nothing(results.skipped.join(" ")));
        }
        results.ways = bench.ways.iter().map(|way| way.name.clone()).collect();
        if setup.wanted(&cold.id) {
            results.measures.push(cold);
        }
        Ok(bench)
    }

    pub(super) fn tell(&mut self, what: &str) {
        self.progress.step(what);
    }

    /// Start-up, in a new process for each turn.
    pub(super) fn start_up(&mut self, results: &mut Results) {
        let chosen = self.setup.choose(measures::startup_catalogue());
        if chosen.is_empty() {
            return;
        }
        self.tell("start-up");
        let mut entries: Vec<Measured> = chosen.iter().map(entry).collect();
        let (program, args) = self.own_participant();
        for round in 0..self.setup.rounds {
            self.fresh(&self.order(round), &program, &args, measures::STARTUP, &mut entries);
        }
        results.measures.extend(entries);
    }

    /// Driver calls: participants that live through all of their turns.
    pub(super) fn driver_calls(&mut self, chosen: &[Measure], results: &mut Results) {
        let (program, args) = self.own_participant();
        let mut seats = Seats::new();
        for measure in chosen {
            if self.is_late(&measure.title, results) {
                continue;
            }
            self.tell(&measure.title);
            // These turns are long, and differ little.
            let waiting = measure.group == Group::Waiting;
            let rounds =
                if waiting { self.setup.rounds.div_ceil(3).min(2) } else { self.setup.rounds };
            let mut entry = entry(measure);
            self.turns(&mut seats, &program, &args, &mut entry, rounds);
            results.measures.push(entry);
            self.progress.so_far(results);
        }
        for seat in seats.into_iter().flatten() {
            seat.finish();
        }
    }

    /// Several clients at once, in new processes for each turn. Few rounds, as many processes take
    /// long to start.
    pub(super) fn several_clients(&mut self, results: &mut Results) {
        let chosen = self.setup.choose(measures::clients_catalogue(self.setup.quick));
        let count = |measure: &Measure| measures::clients_of(&measure.id);
        let (program, args) = self.own_participant();
        for same in chosen.chunk_by(|one, next| count(one) == count(next)) {
            if self.is_late(&same[0].title, results) {
                continue;
            }
            self.tell(&same[0].title);
            let mut entries: Vec<Measured> = same.iter().map(entry).collect();
            for round in 0..self.setup.rounds.min(2) {
                for way in self.order(round) {
                    self.alone(way, &program, &args, &mut entries);
                }
            }
            results.measures.extend(entries);
            self.progress.so_far(results);
        }
    }

    /// Applications.
    pub(super) fn applications(&mut self, python: &Path, script: &Path, results: &mut Results) {
        let mut facts = BTreeMap::new();
        let mut left_out: BTreeMap<String, Vec<String>> = BTreeMap::new();
        self.first_work(python, script, results);
        for process in &apps::STEADY {
            let chosen = self.setup.choose(apps::measures(process));
            if chosen.is_empty() {
                continue;
            }
            let args = arguments(script, process);
            let mut seats = Seats::new();
            for measure in &chosen {
                if self.is_late(&measure.title, results) {
                    continue;
                }
                self.tell(&measure.title);
                let mut entry = entry(measure);
                facts.extend(self.turns(&mut seats, python, &args, &mut entry, self.setup.rounds));
                let reasons = entry.ways.values().filter_map(|series| series.missing.clone());
                if let Some(reason) =
                    reasons.max().filter(|_| entry.ways.values().all(|way| way.rounds.is_empty()))
                {
                    left_out.entry(reason).or_default().push(measure.title.clone());
                } else {
                    results.measures.push(entry);
                    self.progress.so_far(results);
                }
            }
            for seat in seats.into_iter().flatten() {
                seat.finish();
            }
        }
        results.machine.extend(facts);
        for (reason, titles) in left_out {
            results.skipped.push(format!("Left out ({reason}): {}.", titles.join("; ")));
        }
    }

    /// The first work of a program, which is in a new process for each turn, and what it uploads.
    fn first_work(&mut self, python: &Path, script: &Path, results: &mut Results) {
        let process = &apps::FIRST;
        let chosen = self.setup.choose(apps::measures(process));
        let Some((asked, title)) = process.measures.first().filter(|_| !chosen.is_empty()) else {
            return;
        };
        if self.is_late(title, results) {
            return;
        }
        self.tell("first work of PyTorch");
        let args = arguments(script, process);
        let mut entries: Vec<Measured> = chosen.iter().map(entry).collect();
        let mut uploads: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for round in 0..self.setup.rounds.min(3) {
            for (way, statistics) in
                self.fresh(&self.order(round), python, &args, asked, &mut entries)
            {
                if let Some(bytes) = uploaded(&statistics) {
                    uploads.entry(self.ways[way].name.clone()).or_default().push(bytes);
                }
            }
        }
        let reasons = entries
            .iter()
            .flat_map(|entry| entry.ways.values())
            .filter_map(|series| series.missing.clone());
        let reason = reasons.max();
        if entries.iter().all(|entry| entry.ways.values().all(|way| way.rounds.is_empty())) {
            results
                .skipped
                .push(format!("Left out ({}): first work of PyTorch.", reason.unwrap_or_default()));
            return;
        }
        results.measures.extend(entries);
        let title = "bytes of images that a cuBLAS and cuDNN program uploads, first run";
        results.measures.push(upload(&uploads, "first", title));
        let title = "bytes of images that a cuBLAS and cuDNN program uploads, later run";
        results.measures.push(upload(&uploads, "later", title));
    }

    /// Whether the time is up, which is noted then.
    fn is_late(&self, title: &str, results: &mut Results) -> bool {
        let late = self.setup.within.is_some_and(|within| self.started.elapsed() > within);
        if late {
            results.skipped.push(format!("{title} was left out: the time of --within was up."));
        }
        late
    }

    /// The first client of a way's server. Returns the transport that its statistics name.
    fn first_client(&mut self, way: usize, cold: &mut Measured) -> Option<String> {
        let (program, args) = self.own_participant();
        let mut total = Measured { id: "startup.total".to_owned(), ..cold.clone() };
        let all = self.fresh(
            &[way],
            &program,
            &args,
            measures::STARTUP,
            std::slice::from_mut(&mut total),
        );
        cold.ways = total.ways;
        let (_, statistics) = all.into_iter().next()?;
        Some(statistics.get("transport")?.as_str()?.to_owned())
    }

    /// What the device says of itself.
    fn probe(&mut self, way: usize) -> Result<BTreeMap<String, String>, String> {
        let (program, args) = self.own_participant();
        let seat = self.ways[way].start(self.setup, &program, &args);
        let mut seat = seat.map_err(|error| error.to_string())?;
        hello(&mut seat.participant)?;
        let request = Request::Prepare { measure: PROBE.to_owned(), milliseconds: 0 };
        match seat.participant.ask(&request, LIMIT) {
            Answer::Hello { facts } => Ok(facts),
            Answer::Failed { reason } | Answer::Skipped { reason } => Err(reason),
            _ => Ok(BTreeMap::new()),
        }
    }

    fn own_participant(&self) -> (std::path::PathBuf, Vec<OsString>) {
        (self.setup.outboard.clone(), vec![OsString::from(SUBCOMMAND)])
    }
}

/// A Python participant's arguments.
fn arguments(script: &Path, process: &Process) -> Vec<OsString> {
    let modules = process.modules.iter().map(OsString::from);
    std::iter::once(script.as_os_str().to_owned()).chain(modules).collect()
}

/// Bytes of images that were sent, from a client's statistics.
fn uploaded(statistics: &serde_json::Value) -> Option<f64> {
    statistics.get("image_bytes_sent")?.as_f64()
}
