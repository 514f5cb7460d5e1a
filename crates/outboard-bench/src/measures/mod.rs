//! The catalogue of measurements of driver calls, and how each is made. This runs in a participant.

mod buffers;
mod calls;
mod clients;
mod copies;
mod local;
mod measure;
mod memory;
mod queued;
mod sampling;
mod startup;
mod waiting;

use std::time::Duration;

pub(crate) use self::clients::{Clients, asked, count as clients_of};
pub use self::measure::Measure;
pub(crate) use self::sampling::Prepared;
use crate::lab::{Lab, Result};
use crate::protocol::Turn;

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

/// Sets up a measurement. `None` if there is none of that name.
pub(crate) fn prepare(lab: &Lab, measure: &str, budget: Duration) -> Result<Option<Prepared>> {
    let family = measure.split('.').next().unwrap_or_default();
    match family {
        "launch" | "sync" | "event" | "graph" | "stream" | "context" => {
            calls::prepare(lab, measure, budget)
        }
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
}
