//! Takes the samples of a turn.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::lab::Result;
use crate::protocol::Turn;

/// Something set up that takes turns.
pub(crate) type Prepared = Box<dyn FnMut() -> Result<Turn>>;

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
