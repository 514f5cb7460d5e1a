//! From the start of the driver library to a module that is loaded, in a process that has done
//! nothing before.

use std::collections::BTreeMap;
use std::time::Instant;

use super::measure::Measure;
use crate::lab;
use crate::lab::{Result, driver};
use crate::protocol::Turn;
use crate::results::{Group, Unit};

pub(super) fn catalogue() -> Vec<Measure> {
    let time = |id: &str, title: &str| Measure::new(id, title, Unit::Time, Group::Startup);
    vec![
        time("startup.init", "driver library loaded and cuInit"),
        time("startup.context", "primary context"),
        time("startup.module", "first module, of PTX"),
        time("startup.total", "the three together"),
    ]
}

pub(super) fn measure() -> Result<Turn> {
    let started = Instant::now();
    let table = lab::load()?;
    driver!(table, cuInit(0))?;
    let ready = started.elapsed().as_secs_f64();
    lab::context(table)?;
    let current = started.elapsed().as_secs_f64();
    lab::kernels(table)?;
    let total = started.elapsed().as_secs_f64();
    let samples = BTreeMap::from([
        ("startup.init".to_owned(), vec![ready]),
        ("startup.context".to_owned(), vec![current - ready]),
        ("startup.module".to_owned(), vec![total - current]),
        ("startup.total".to_owned(), vec![total]),
    ]);
    Ok(Turn { samples, operations: 1, seconds: total })
}
