//! The turns.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use super::way::{Seat, Way};
use super::{Progress, Setup, entry, upload};
use crate::apps::{self, Process};
use crate::child::PROBE;
use crate::measures::{self, Measure};
use crate::participant::Participant;
use crate::protocol::{Answer, Request};
use crate::results::{Group, Measured, Results, Round, Unit};
use crate::{BenchError, statistics};

/// How long setting up may take: of an application, with imports and compiling.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a turn may take. None is meant to take more than 2 s.
const TURN_LIMIT: Duration = Duration::from_secs(20);

/// The subcommand of `outboard` that is a participant.
const PARTICIPANT: &str = "bench-participant";

pub(super) struct Bench<'a> {
    setup: &'a Setup,
    ways: Vec<Way>,
    progress: &'a mut dyn Progress,
    started: Instant,
}

/// A participant for each way, where one could be started.
type Seats = Vec<Option<Seat>>;

impl<'a> Bench<'a> {
    /// Finds out which ways there are: each transport gets a server, and a first client, which tells whether it really
    /// came over that transport and how long its start took.
    pub(super) fn open(
        setup: &'a Setup,
        results: &mut Results,
        progress: &'a mut dyn Progress,
    ) -> Result<Bench<'a>, BenchError> {
        let mut bench = Bench { setup, ways: vec![Way::native(setup)?], progress, started: Instant::now() };
        bench.tell("native driver");
        match bench.probe(0) {
            Ok(facts) => results.machine.extend(facts),
            Err(reason) => return Err(BenchError::Nothing(format!("the native driver cannot be used: {reason}"))),
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
                None if used.is_empty() => "the client does not say which transport it used".to_owned(),
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
            let rounds = if waiting { self.setup.rounds.div_ceil(3).min(2) } else { self.setup.rounds };
            let mut entry = entry(measure);
            self.turns(&mut seats, &program, &args, &mut entry, rounds);
            results.measures.push(entry);
            self.progress.so_far(results);
        }
        for seat in seats.into_iter().flatten() {
            seat.finish();
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
                if let Some(reason) = reasons.max().filter(|_| entry.ways.values().all(|way| way.rounds.is_empty())) {
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
        let Some((asked, title)) = process.measures.first().filter(|_| !chosen.is_empty()) else { return };
        if self.is_late(title, results) {
            return;
        }
        self.tell("first work of PyTorch");
        let args = arguments(script, process);
        let mut entries: Vec<Measured> = chosen.iter().map(entry).collect();
        let mut uploads: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for round in 0..self.setup.rounds.min(3) {
            for (way, statistics) in self.fresh(&self.order(round), python, &args, asked, &mut entries) {
                if let Some(bytes) = uploaded(&statistics) {
                    uploads.entry(self.ways[way].name.clone()).or_default().push(bytes);
                }
            }
        }
        let reasons = entries.iter().flat_map(|entry| entry.ways.values()).filter_map(|series| series.missing.clone());
        let reason = reasons.max();
        if entries.iter().all(|entry| entry.ways.values().all(|way| way.rounds.is_empty())) {
            results.skipped.push(format!("Left out ({}): first work of PyTorch.", reason.unwrap_or_default()));
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

    /// Takes the turns of one measure. Returns what participants that were started said of themselves.
    fn turns(
        &mut self,
        seats: &mut Seats,
        program: &Path,
        args: &[OsString],
        entry: &mut Measured,
        rounds: u32,
    ) -> BTreeMap<String, String> {
        let facts = self.seat(seats, program, args, entry);
        let request =
            Request::Prepare { measure: entry.id.clone(), milliseconds: self.setup.turn().as_millis() as u64 };
        // Set up side by side; measured one after the other.
        for seat in seats.iter_mut().flatten() {
            seat.participant.send(&request);
        }
        let mut ready: Vec<bool> = Vec::new();
        for (way, seat) in self.ways.iter().zip(seats.iter_mut()) {
            let answer = seat.as_mut().map(|seat| seat.participant.receive(LIMIT));
            ready.push(answer == Some(Answer::Ready));
            if let Some(Answer::Skipped { reason } | Answer::Failed { reason }) = answer {
                missing(entry, &way.name, reason);
            }
        }
        for round in 0..rounds {
            for way in self.order(round) {
                if let (Some(true), Some(Some(seat))) = (ready.get(way), seats.get_mut(way)) {
                    take(&self.ways[way], seat, std::slice::from_mut(entry));
                    ready[way] = seat.participant.alive();
                }
            }
        }
        for seat in seats.iter_mut() {
            // What failed starts anew for the next measure.
            if let Some(living) = seat.as_mut().filter(|seat| seat.participant.alive()) {
                living.participant.ask(&Request::Release, TURN_LIMIT);
            } else {
                *seat = None;
            }
        }
        facts
    }

    /// Starts the participants that are not there.
    fn seat(
        &mut self,
        seats: &mut Seats,
        program: &Path,
        args: &[OsString],
        entry: &mut Measured,
    ) -> BTreeMap<String, String> {
        seats.resize_with(self.ways.len(), || None);
        let mut new = vec![false; seats.len()];
        for ((way, seat), new) in self.ways.iter_mut().zip(seats.iter_mut()).zip(&mut new) {
            if seat.is_none() {
                match way.start(self.setup, program, args) {
                    Ok(started) => (*seat, *new) = (Some(started), true),
                    Err(error) => missing(entry, &way.name, error.to_string()),
                }
            }
        }
        let mut facts = BTreeMap::new();
        for ((way, seat), _) in self.ways.iter().zip(seats.iter_mut()).zip(new).filter(|(_, new)| *new) {
            match seat.as_mut().map(|seat| seat.participant.receive(LIMIT)) {
                Some(Answer::Hello { facts: said }) => facts.extend(said),
                Some(Answer::Failed { reason }) => {
                    missing(entry, &way.name, reason);
                    *seat = None;
                }
                _ => {}
            }
        }
        facts
    }

    /// One turn of each of some ways, in new processes: started side by side, measured one after the other. Returns their
    /// statistics.
    fn fresh(
        &mut self,
        ways: &[usize],
        program: &Path,
        args: &[OsString],
        measure: &str,
        entries: &mut [Measured],
    ) -> Vec<(usize, serde_json::Value)> {
        let started: Vec<_> = ways.iter().map(|way| (*way, self.ways[*way].start(self.setup, program, args))).collect();
        let greeted = started.into_iter().map(|(way, seat)| {
            let seat = seat.map_err(|error| error.to_string());
            (way, seat.and_then(|mut seat| hello(&mut seat.participant).map(|()| seat)))
        });
        let greeted: Vec<_> = greeted.collect();
        let prepare = Request::Prepare { measure: measure.to_owned(), milliseconds: 0 };
        let mut all = Vec::new();
        for (way, seat) in greeted {
            let prepared = seat.and_then(|mut seat| match seat.participant.ask(&prepare, LIMIT) {
                Answer::Skipped { reason } | Answer::Failed { reason } => Err(reason),
                _ => Ok(seat),
            });
            match prepared {
                Ok(mut seat) => {
                    take(&self.ways[way], &mut seat, entries);
                    all.extend(seat.finish().map(|statistics| (way, statistics)));
                }
                Err(reason) => {
                    let name = &self.ways[way].name;
                    entries.iter_mut().for_each(|entry| missing(entry, name, reason.clone()));
                }
            }
        }
        all
    }

    /// The first client of a way's server. Returns the transport that its statistics name.
    fn first_client(&mut self, way: usize, cold: &mut Measured) -> Option<String> {
        let (program, args) = self.own_participant();
        let mut total = Measured { id: "startup.total".to_owned(), ..cold.clone() };
        let all = self.fresh(&[way], &program, &args, measures::STARTUP, std::slice::from_mut(&mut total));
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
        (self.setup.outboard.clone(), vec![OsString::from(PARTICIPANT)])
    }

    /// Each round begins with another way, so that none is always the one behind another.
    fn order(&self, round: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.ways.len()).collect();
        order.rotate_left(round as usize % self.ways.len());
        order
    }
}

/// Waits for a participant's greeting.
fn hello(participant: &mut Participant) -> Result<(), String> {
    match participant.receive(LIMIT) {
        Answer::Failed { reason } | Answer::Skipped { reason } => Err(reason),
        _ => Ok(()),
    }
}

/// One turn, noted with every entry that it has samples for.
fn take(way: &Way, seat: &mut Seat, entries: &mut [Measured]) {
    let before = way.used(seat);
    let answer = seat.participant.ask(&Request::Run, TURN_LIMIT);
    let (client_cpu, server_cpu) = way.used(seat).since(&before);
    for entry in entries {
        match &answer {
            Answer::Taken(turn) => {
                let samples = turn.samples.get(&entry.id).map(Vec::as_slice).unwrap_or_default();
                if let Some(value) = statistics::median(samples) {
                    let samples = samples.len() as u64;
                    let (operations, seconds) = (turn.operations, turn.seconds);
                    let round = Round { value, samples, operations, seconds, client_cpu, server_cpu };
                    entry.ways.entry(way.name.clone()).or_default().rounds.push(round);
                }
            }
            Answer::Failed { reason } | Answer::Skipped { reason } => missing(entry, &way.name, reason.clone()),
            _ => {}
        }
    }
}

/// Notes why a way has no figures, unless a reason stands there already.
fn missing(entry: &mut Measured, way: &str, reason: String) {
    entry.ways.entry(way.to_owned()).or_default().missing.get_or_insert(reason);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::NATIVE;

    #[test]
    fn the_first_reason_stays() {
        let mut entry = entry(&Measure::new("a", "a", Unit::Time, Group::Calls));
        missing(&mut entry, NATIVE, "first".to_owned());
        missing(&mut entry, NATIVE, "second".to_owned());
        assert_eq!(entry.ways[NATIVE].missing.as_deref(), Some("first"));
    }
}
