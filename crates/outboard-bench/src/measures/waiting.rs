//! CPU time of a client that waits for a long kernel, and of one that does nothing: the program
//! that measures reads it around the turn.

use std::time::{Duration, Instant};

use super::measure::Measure;
use super::sampling::{Prepared, turn};
use crate::lab::{Lab, Result};
use crate::results::{Group, Unit};

pub(super) fn catalogue() -> Vec<Measure> {
    let time = |id: &str, title: &str| Measure::new(id, title, Unit::Time, Group::Waiting);
    vec![
        time("wait.kernel", "cuStreamSynchronize on a kernel of 2 s"),
        time("wait.idle", "2 s of doing nothing, with an open session"),
    ]
}

pub(super) fn prepare(lab: &Lab, measure: &str, budget: Duration) -> Result<Option<Prepared>> {
    let lab = *lab;
    let name = measure.to_owned();
    // A budget of 50 ms, the usual one, gives 2 s.
    let long = budget * 40;
    let prepared: Prepared = match measure {
        "wait.kernel" => Box::new(move || {
            let started = Instant::now();
            lab.launch_taking(long.as_nanos() as u64)?;
            lab.wait()?;
            Ok(turn(&name, vec![started.elapsed().as_secs_f64()], 1, started))
        }),
        "wait.idle" => Box::new(move || {
            let started = Instant::now();
            std::thread::sleep(long);
            Ok(turn(&name, vec![started.elapsed().as_secs_f64()], 1, started))
        }),
        _ => return Ok(None),
    };
    Ok(Some(prepared))
}
