//! The participant for driver calls: a process of this program whose `libcuda.so.1` is one of those
//! compared.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::time::Duration;

use crate::lab::{self, Lab, LabError};
use crate::measures::{self, Clients, Prepared};
use crate::protocol::{Answer, Request};

/// Answers requests until there are no more.
pub fn take_part(requests: impl BufRead, mut answers: impl Write) -> std::io::Result<()> {
    let mut say = |answer: &Answer| {
        let mut line = serde_json::to_string(answer)?;
        line.push('\n');
        answers.write_all(line.as_bytes())?;
        answers.flush()
    };
    // The driver is not touched before the first request: start-up is measured too.
    say(&Answer::Hello { facts: BTreeMap::new() })?;
    let mut bench = Bench::default();
    for line in requests.lines() {
        let answer = match serde_json::from_str::<Request>(&line?) {
            Ok(request) => bench.answer(&request),
            Err(error) => Answer::Failed { reason: format!("a request cannot be read: {error}") },
        };
        say(&answer)?;
    }
    Ok(())
}

/// Asked for to open a session and say what device there is.
pub(crate) const PROBE: &str = "probe";

#[derive(Default)]
struct Bench {
    lab: Option<Lab>,
    prepared: Option<Prepared>,
    clients: Clients,
}

impl Bench {
    fn answer(&mut self, request: &Request) -> Answer {
        let done = match request {
            Request::Prepare { measure, .. } if measure == PROBE => self.lab().map(|lab| {
                let facts = lab::describe(lab.table, lab.device);
                Answer::Hello {
                    facts: facts
                        .into_iter()
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect(),
                }
            }),
            Request::Prepare { measure, milliseconds } => {
                self.prepare(measure, Duration::from_millis(*milliseconds))
            }
            Request::Run => self.take_turn(),
            Request::Release => {
                self.prepared = None;
                Ok(Answer::Ready)
            }
        };
        done.unwrap_or_else(|error| {
            let reason = error.to_string();
            if error.is_lack() { Answer::Skipped { reason } } else { Answer::Failed { reason } }
        })
    }

    fn prepare(&mut self, measure: &str, budget: Duration) -> lab::Result<Answer> {
        // What the last measurement holds is given back first.
        self.prepared = None;
        if measure == measures::STARTUP {
            self.prepared = Some(Box::new(measures::start_up));
            return Ok(Answer::Ready);
        }
        // This process is none of the clients.
        if let Some(prepared) = self.clients.prepare(measure, budget)? {
            self.prepared = Some(prepared);
            return Ok(Answer::Ready);
        }
        let lab = self.lab()?;
        match measures::prepare(&lab, measure, budget)? {
            Some(mut prepared) => {
                // The first turn warms up. Waiting for long is the same the first time.
                if !measure.starts_with("wait.") {
                    prepared()?;
                }
                self.prepared = Some(prepared);
                Ok(Answer::Ready)
            }
            None => Ok(Answer::Skipped { reason: format!("there is no measurement {measure}") }),
        }
    }

    fn take_turn(&mut self) -> lab::Result<Answer> {
        let Some(run) = &mut self.prepared else {
            return Err(LabError::Wrong("nothing was prepared".to_owned()));
        };
        let turn = run()?;
        // What is still queued would share the device with the next participant's turn.
        if let Some(lab) = &self.lab {
            lab.settle()?;
        }
        Ok(Answer::Taken(turn))
    }

    fn lab(&mut self) -> lab::Result<Lab> {
        if let Some(lab) = self.lab {
            return Ok(lab);
        }
        let lab = Lab::open()?;
        self.lab = Some(lab);
        Ok(lab)
    }
}
