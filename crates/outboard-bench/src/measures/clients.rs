//! Copies of several clients at once. Each is a process like the one that this runs in, and queues
//! copies as [`super::queued`] does, all in the same time.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{cell::RefCell, rc::Rc};

use super::buffers::Direction;
use super::measure::Measure;
use super::sampling::Prepared;
use crate::lab::{LabError, Result};
use crate::participant::{Participant, STATISTICS, SUBCOMMAND};
use crate::protocol::{Answer, Request, Turn};
use crate::results::{Group, Unit};
use crate::statistics;

/// How many clients there are at once.
const COUNTS: [usize; 3] = [1, 8, 64];
const QUICK: [usize; 2] = [1, 4];
/// What the name of a client's own measure says behind the direction, and the bytes of one copy.
const COPIES: &str = "4.16M";
const BYTES: f64 = (16 << 20) as f64;
/// Behind the name of a measure: how many times as fast as the slowest client the fastest one was.
const SPREAD: &str = ".spread";
/// A client's turn is so many times as long as others: then it matters little that not all begin
/// and end in the same instant.
const LONGER: u32 = 10;
/// So many clients share out what one has; of more, each turn is as much longer.
const FEW: usize = 8;
/// How long the clients may take to start, to set up, and to take a turn: less than whoever asks
/// waits for.
const START: Duration = Duration::from_secs(60);
const SET_UP: Duration = Duration::from_secs(110);
const TURN: Duration = Duration::from_secs(50);
const END: Duration = Duration::from_secs(10);

pub(super) fn catalogue(quick: bool) -> Vec<Measure> {
    let counts: &[usize] = if quick { &QUICK } else { &COUNTS };
    let measures = |count: usize, direction: Direction| {
        let clients = if count == 1 { "client" } else { "clients" };
        let (name, words) = (direction.name(), direction.words());
        let (id, title) = (
            format!("clients.{name}.{count}"),
            format!("{count} {clients}, 4 × 16 MiB {words} each, pinned"),
        );
        let spread = (count > 1).then(|| {
            let title = format!("{title}, the fastest to the slowest");
            Measure::new(format!("{id}{SPREAD}"), title, Unit::Factor, Group::Clients)
        });
        let sum = Measure::new(id, format!("{title}, sum of rates"), Unit::Rate, Group::Clients);
        std::iter::once(sum).chain(spread)
    };
    counts
        .iter()
        .flat_map(|count| Direction::BOTH.map(|direction| (*count, direction)))
        .flat_map(|(count, direction)| measures(count, direction))
        .collect()
}

/// The measure whose turns also say this one.
pub(crate) fn asked(measure: &str) -> &str {
    measure.strip_suffix(SPREAD).unwrap_or(measure)
}

/// The direction and the number that a name says.
fn named(measure: &str) -> Option<(Direction, usize)> {
    let (direction, count) = measure.strip_prefix("clients.")?.split_once('.')?;
    Some((Direction::named(direction)?, count.parse().ok().filter(|count| *count > 0)?))
}

/// How many clients a measure has.
pub(crate) fn count(measure: &str) -> Option<usize> {
    named(asked(measure)).map(|(_, count)| count)
}

/// The clients, which live from one measurement to the next: it takes long until many have started.
pub(crate) struct Clients {
    running: Rc<RefCell<Running>>,
    program: fn() -> std::io::Result<Command>,
}

#[derive(Default)]
struct Running(Vec<Participant>);

impl Default for Clients {
    fn default() -> Self {
        Clients { running: Rc::default(), program: another }
    }
}

/// A process like this one. Its statistics would take the place of this one's.
fn another() -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SUBCOMMAND).env_remove(STATISTICS);
    Ok(command)
}

impl Clients {
    /// Sets up a measurement in as many clients as its name says. `None` if there is none of that
    /// name.
    pub(crate) fn prepare(&self, measure: &str, budget: Duration) -> Result<Option<Prepared>> {
        let Some((direction, count)) = named(measure) else { return Ok(None) };
        let request = Request::Prepare {
            measure: format!("queue.{}.{COPIES}", direction.name()),
            milliseconds: (budget * LONGER * count.div_ceil(FEW) as u32).as_millis() as u64,
        };
        let mut running = self.running.borrow_mut();
        if running.0.len() != count {
            *running = Running::default();
            *running = Running::start(count, self.program)?;
        }
        running.ask(&request, SET_UP)?;
        let (all, measure) = (Rc::clone(&self.running), measure.to_owned());
        Ok(Some(Box::new(move || {
            let started = Instant::now();
            let answers = all.borrow_mut().ask(&Request::Run, TURN)?;
            Ok(sum(&measure, &answers, started.elapsed()))
        })))
    }
}

impl Running {
    fn start(count: usize, program: fn() -> std::io::Result<Command>) -> Result<Running> {
        let mut running = Running::default();
        for _ in 0..count {
            let command = program()
                .map_err(|error| LabError::Wrong(format!("a client cannot be started: {error}")))?;
            let client = Participant::start(command, None)
                .map_err(|error| LabError::Wrong(error.to_string()))?;
            running.0.push(client);
        }
        running.receive(START)?;
        Ok(running)
    }

    /// Asks all of them at once. None stays if one fails.
    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Vec<Answer>> {
        self.0.iter_mut().for_each(|client| client.send(request));
        let answers = self.receive(limit);
        if answers.is_err() {
            *self = Running::default();
        }
        answers
    }

    /// The next answer of each.
    fn receive(&mut self, limit: Duration) -> Result<Vec<Answer>> {
        let deadline = Instant::now() + limit;
        let count = self.0.len();
        let answer = |(number, client): (usize, &mut Participant)| match client
            .receive(deadline.saturating_duration_since(Instant::now()))
        {
            Answer::Failed { reason } | Answer::Skipped { reason } => {
                Err(LabError::Wrong(format!("client {} of {count}: {reason}", number + 1)))
            }
            answer => Ok(answer),
        };
        self.0.iter_mut().enumerate().map(answer).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // All of them end at once, as programs do.
        self.0.iter_mut().for_each(Participant::dismiss);
        let deadline = Instant::now() + END;
        for client in self.0.drain(..) {
            client.finish(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

/// The clients' turns as one: its rate is the sum of theirs, each over the client's own time.
fn sum(measure: &str, answers: &[Answer], taken: Duration) -> Turn {
    let turns = answers.iter().filter_map(|answer| match answer {
        Answer::Taken(turn) => Some(turn),
        _ => None,
    });
    let operations = turns.clone().map(|turn| turn.operations).sum();
    let rates: Vec<f64> = turns.map(|turn| turn.operations as f64 * BYTES / turn.seconds).collect();
    let mut samples = BTreeMap::from([(measure.to_owned(), vec![rates.iter().sum()])]);
    if let Some(all) = statistics::summary(&rates) {
        samples.insert(format!("{measure}{SPREAD}"), vec![all.high / all.low]);
    }
    Turn { samples, operations, seconds: taken.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> std::io::Result<Command> {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        Ok(command)
    }

    fn good() -> std::io::Result<Command> {
        script(
            r#"echo '{"is": "hello"}'; while read line; do case "$line" in
            *prepare*4.16M*) echo '{"is": "ready"}';;
            *) echo '{"is": "taken", "samples": {}, "operations": 8, "seconds": 0.5}';; esac; done"#,
        )
    }

    #[test]
    fn names_say_how_many_there_are() {
        assert_eq!(named("clients.h2d.8"), Some((Direction::ToDevice, 8)));
        for wrong in
            ["clients.h2d", "clients.both.8", "clients.h2d.0", "clients.h2d.x", "queue.h2d.8"]
        {
            assert_eq!(named(wrong), None, "{wrong}");
        }
        for measure in catalogue(false).into_iter().chain(catalogue(true)) {
            assert!(named(asked(&measure.id)).is_some(), "{}", measure.id);
        }
        assert!(catalogue(true).iter().all(|measure| count(&measure.id) < Some(64)));
    }

    #[test]
    fn the_fastest_is_held_against_the_slowest() {
        let turn =
            |seconds| Answer::Taken(Turn { samples: BTreeMap::new(), operations: 4, seconds });
        let told = sum("clients.d2h.2", &[turn(2.0), turn(0.5)], Duration::from_secs(2));
        assert_eq!(told.samples["clients.d2h.2"], [10.0 * BYTES]);
        assert_eq!(told.samples["clients.d2h.2.spread"], [4.0]);
    }

    #[test]
    fn the_size_is_the_one_that_clients_are_told() {
        assert_eq!(crate::numbers::size(COPIES.rsplit('.').next().unwrap()).unwrap() as f64, BYTES);
    }

    #[test]
    fn rates_are_summed_and_processes_stay() {
        let clients = Clients { program: good, ..Clients::default() };
        let processes =
            || clients.running.borrow().0.iter().map(Participant::id).collect::<Vec<_>>();
        let mut prepared = clients.prepare("clients.h2d.3", Duration::ZERO).unwrap().unwrap();
        let first = processes();
        let turn = prepared().unwrap();
        assert_eq!((turn.samples["clients.h2d.3"][0], turn.operations), (3.0 * 16.0 * BYTES, 24));
        assert!(clients.prepare("clients.d2h.3", Duration::ZERO).unwrap().is_some());
        assert_eq!(processes(), first);
        assert!(clients.prepare("clients.d2h.1", Duration::ZERO).unwrap().is_some());
        assert_eq!(processes().len(), 1);
    }

    #[test]
    fn a_client_that_fails_is_told() {
        let program = || {
            script(
                r#"echo '{"is": "hello"}'; read line; echo '{"is": "failed", "reason": "no room"}'; read line"#,
            )
        };
        let clients = Clients { program, ..Clients::default() };
        let failed = clients.prepare("clients.d2h.2", Duration::ZERO).err().unwrap();
        assert_eq!(failed.to_string(), "client 1 of 2: no room");
        assert!(clients.running.borrow().0.is_empty());
    }
}
