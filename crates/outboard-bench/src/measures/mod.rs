//! The catalogue of measurements of driver calls, and how each is made. This runs in a participant.

mod buffers;
mod calls;
mod clients;
mod copies;
mod local;
mod memory;
mod queued;
mod startup;
mod waiting;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) use self::clients::Clients;
use crate::lab::{Lab, Result};
use crate::protocol::Turn;
use crate::results::{Group, Unit};

/// A measure, described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    /// Its name; what stands before the first dot says where its code is.
    pub id: String,
    /// What it is, for people.
    pub title: String,
    /// What it counts.
    pub unit: Unit,
    /// Where it stands on the page.
    pub group: Group,
}

impl Measure {
    pub(crate) fn new(
        id: impl Into<String>,
        title: impl Into<String>,
        unit: Unit,
        group: Group,
    ) -> Measure {
        Measure { id: id.into(), title: title.into(), unit, group }
    }
}

/// The measures taken in one process, one after the other. A quick run has smaller ones.
pub fn catalogue(quick: bool) -> Vec<Measure> {
    let mut all = calls::catalogue();
    all.extend(memory::catalogue());
    all.extend(copies::catalogue(quick));
    all.extend(waiting::catalogue());
    all.extend(queued::catalogue(quick));
    // Last: its allocations stay until the process ends.
    all.extend(local::catalogue());
    all
}

/// The measures taken in a process of their own each time.
pub fn startup_catalogue() -> Vec<Measure> {
    startup::catalogue()
}

/// The measures that several processes take at once; of the same number of them, those of both
/// directions in a row.
pub(crate) fn clients_catalogue(quick: bool) -> Vec<Measure> {
    clients::catalogue(quick)
}

/// The measurement that [`startup_catalogue`]'s values come from.
pub const STARTUP: &str = "startup";

/// Something set up that takes turns.
pub(crate) type Prepared = Box<dyn FnMut() -> Result<Turn>>;

/// Sets up a measurement. `None` if there is none of that name.
pub(crate) fn prepare(lab: &Lab, measure: &str, budget: Duration) -> Result<Option<Prepared>> {
    let family = measure.split('.').next().unwrap_or_default();
    match family {
        "launch" | "sync" | "event" | "graph" | "stream" => calls::prepare(lab, measure, budget),
        "memory" => memory::prepare(lab, measure, budget),
        "copy" => copies::prepare(lab, measure, budget),
        "queue" => queued::prepare(lab, measure, budget),
        "local" => local::prepare(lab, measure, budget),
        "wait" => waiting::prepare(lab, measure, budget),
        _ => Ok(None),
    }
}

/// Takes a turn of the start of this process's driver, which can be done once.
pub(crate) fn start_up() -> Result<Turn> {
    startup::measure()
}

/// Fewest and most samples of a turn.
const SAMPLES: std::ops::Range<usize> = 3..20_000;

/// Measures until the time is up: a sample is the mean time of `batch` repetitions of `body`;
/// `between` runs before each sample, not measured.
pub(crate) fn repeat(
    measure: &str,
    budget: Duration,
    batch: u32,
    mut between: impl FnMut() -> Result<()>,
    mut body: impl FnMut() -> Result<()>,
) -> Result<Turn> {
    let mut samples = Vec::new();
    let started = Instant::now();
    while samples.len() < SAMPLES.start
        || (started.elapsed() < budget && samples.len() < SAMPLES.end)
    {
        between()?;
        let begun = Instant::now();
        for _ in 0..batch {
            body()?;
        }
        samples.push(begun.elapsed().as_secs_f64() / f64::from(batch));
    }
    let operations = samples.len() as u64 * u64::from(batch);
    Ok(turn(measure, samples, operations, started))
}

/// A turn that began at `started`, of one measure.
pub(crate) fn turn(measure: &str, samples: Vec<f64>, operations: u64, started: Instant) -> Turn {
    let samples = BTreeMap::from([(measure.to_owned(), samples)]);
    Turn { samples, operations, seconds: started.elapsed().as_secs_f64() }
}

/// For measurements with nothing to do before a sample.
pub(crate) fn nothing() -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_titles_are_unique() {
        let all: Vec<Measure> = catalogue(false)
            .into_iter()
            .chain(startup_catalogue())
            .chain(clients_catalogue(false))
            .collect();
        for part in
            [|measure: &Measure| measure.id.clone(), |measure: &Measure| measure.title.clone()]
        {
            let names: std::collections::BTreeSet<String> = all.iter().map(part).collect();
            assert_eq!(names.len(), all.len());
        }
    }

    #[test]
    fn a_sample_is_the_mean_of_a_batch() {
        let mut done = 0;
        let body = || {
            done += 1;
            std::thread::sleep(Duration::from_millis(2));
            Ok(())
        };
        let turn = repeat("x", Duration::ZERO, 4, nothing, body).unwrap();
        assert_eq!((turn.operations, done), (12, 12));
        assert_eq!(turn.samples["x"].len(), 3);
        assert!(turn.samples["x"].iter().all(|seconds| (0.002..0.1).contains(seconds)), "{turn:?}");
    }
}
