//! How turns are taken: who is started when, and what is noted of what each way says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::super::way::{Seat, Way};
use super::Bench;
use crate::BenchError;
use crate::measures::asked;
use crate::participant::Participant;
use crate::protocol::{Answer, Request};
use crate::results::{Measured, Round};
use crate::statistics;

/// How long setting up may take: of an application, with imports and compiling.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// How long a turn may take. None is meant to take more than 2 s.
const TURN_LIMIT: Duration = Duration::from_secs(20);

/// The same of many clients at once, which a small machine starts one after another.
const MANY_LIMIT: Duration = Duration::from_secs(180);
const MANY_TURN_LIMIT: Duration = Duration::from_secs(60);

/// A participant for each way, where one could be started.
pub(super) type Seats = Vec<Option<Seat>>;

impl Bench<'_> {
    /// Takes the turns of one measure. Returns what participants that were started said of
    /// themselves.
    pub(super) fn turns(
        &mut self,
        seats: &mut Seats,
        program: &Path,
        args: &[OsString],
        entry: &mut Measured,
        rounds: u32,
    ) -> BTreeMap<String, String> {
        let facts = self.seat(seats, program, args, entry);
        let request = self.preparation(&entry.id);
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
                    take(&self.ways[way], seat, std::slice::from_mut(entry), TURN_LIMIT);
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
        for ((way, seat), _) in
            self.ways.iter().zip(seats.iter_mut()).zip(new).filter(|(_, new)| *new)
        {
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

    /// One turn of each of some ways, in new processes: started side by side, measured one after
    /// the other. Returns their statistics.
    pub(super) fn fresh(
        &mut self,
        ways: &[usize],
        program: &Path,
        args: &[OsString],
        measure: &str,
        entries: &mut [Measured],
    ) -> Vec<(usize, serde_json::Value)> {
        let started: Vec<_> = ways
            .iter()
            .map(|way| (*way, self.ways[*way].start(self.setup, program, args)))
            .collect();
        let greeted: Vec<_> = started.into_iter().map(|(way, seat)| (way, greeted(seat))).collect();
        let prepare = Request::Prepare { measure: measure.to_owned(), milliseconds: 0 };
        let mut all = Vec::new();
        for (way, seat) in greeted {
            let prepared = seat.and_then(|mut seat| match seat.participant.ask(&prepare, LIMIT) {
                Answer::Skipped { reason } | Answer::Failed { reason } => Err(reason),
                _ => Ok(seat),
            });
            match prepared {
                Ok(mut seat) => {
                    take(&self.ways[way], &mut seat, entries, TURN_LIMIT);
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

    /// One turn each of some measures, or of several in a row that share their turns, one way, in a
    /// new process that no other participant is beside: what it starts may need all of the device's
    /// memory.
    pub(super) fn alone(
        &mut self,
        way: usize,
        program: &Path,
        args: &[OsString],
        entries: &mut [Measured],
    ) {
        let seat = greeted(self.ways[way].start(self.setup, program, args));
        let name = self.ways[way].name.clone();
        let mut seat = match seat {
            Ok(seat) => seat,
            Err(reason) => {
                return entries.iter_mut().for_each(|entry| missing(entry, &name, reason.clone()));
            }
        };
        for same in entries.chunk_by_mut(|one, next| asked(&one.id) == asked(&next.id)) {
            match seat.participant.ask(&self.preparation(asked(&same[0].id)), MANY_LIMIT) {
                Answer::Skipped { reason } | Answer::Failed { reason } => {
                    same.iter_mut().for_each(|entry| missing(entry, &name, reason.clone()))
                }
                _ => take(&self.ways[way], &mut seat, same, MANY_TURN_LIMIT),
            }
        }
        seat.finish();
    }

    /// The request for a measure's turns.
    fn preparation(&self, measure: &str) -> Request {
        Request::Prepare {
            measure: measure.to_owned(),
            milliseconds: self.setup.turn().as_millis() as u64,
        }
    }

    /// Each round begins with another way, so that none is always the one behind another.
    pub(super) fn order(&self, round: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.ways.len()).collect();
        order.rotate_left(round as usize % self.ways.len());
        order
    }
}

/// A participant that was started and has said so.
fn greeted(seat: Result<Seat, BenchError>) -> Result<Seat, String> {
    let mut seat = seat.map_err(|error| error.to_string())?;
    hello(&mut seat.participant)?;
    Ok(seat)
}

/// Waits for a participant's greeting.
pub(super) fn hello(participant: &mut Participant) -> Result<(), String> {
    match participant.receive(LIMIT) {
        Answer::Failed { reason } | Answer::Skipped { reason } => Err(reason),
        _ => Ok(()),
    }
}

/// One turn, noted with every entry that it has samples for.
fn take(way: &Way, seat: &mut Seat, entries: &mut [Measured], limit: Duration) {
    let before = way.used(seat);
    let answer = seat.participant.ask(&Request::Run, limit);
    let (client_cpu, server_cpu) = way.used(seat).since(&before);
    for entry in entries {
        match &answer {
            Answer::Taken(turn) => {
                let samples = turn.samples.get(&entry.id).map(Vec::as_slice).unwrap_or_default();
                if let Some(value) = statistics::median(samples) {
                    let samples = samples.len() as u64;
                    let (operations, seconds) = (turn.operations, turn.seconds);
                    let round =
                        Round { value, samples, operations, seconds, client_cpu, server_cpu };
                    entry.ways.entry(way.name.clone()).or_default().rounds.push(round);
                }
            }
            Answer::Failed { reason } | Answer::Skipped { reason } => {
                missing(entry, &way.name, reason.clone())
            }
            _ => {}
        }
    }
}

/// Notes why a way has no figures, unless a reason stands there already.
fn missing(entry: &mut Measured, way: &str, reason: String) {
    entry.ways.entry(way.to_owned()).or_default().missing.get_or_insert(reason);
}

#[cfg(test)]
mod tests {
    use super::super::super::entry;
    use super::*;
    use crate::measures::Measure;
    use crate::results::{Group, NATIVE, Unit};

    #[test]
    fn the_first_reason_stays() {
        let mut entry = entry(&Measure::new("a", "a", Unit::Time, Group::Calls));
        missing(&mut entry, NATIVE, "first".to_owned());
        missing(&mut entry, NATIVE, "second".to_owned());
        assert_eq!(entry.ways[NATIVE].missing.as_deref(), Some("first"));
    }
}
