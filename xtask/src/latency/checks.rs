//! What must be true of steps at different distances.

use super::Row;
use anyhow::{Result, bail};

/// Two runs may differ by so many waits a step: one or two of the first steps find something out,
/// or do not.
const SLACK: f64 = 0.25;

/// Milliseconds of round trip that show in the time that steps take.
const EXACT: f64 = 9.0;

/// A distance makes waits longer, never more.
pub(super) fn same_waits(rows: &[Row]) -> Result<()> {
    for row in rows {
        let waits = || row.found.iter().map(|found| found.waits);
        let (least, most) = (waits().fold(f64::MAX, f64::min), waits().fold(0.0, f64::max));
        if most - least > SLACK {
            bail!(
                "`{}` waits {least:.1} to {most:.1} times a step, depending on the distance",
                row.name
            );
        }
    }
    Ok(())
}

/// What a step takes longer on a longer way is its waits and no more, or something waits that is
/// not counted.
pub(super) fn no_other_waits(rows: &[Row], round_trips: &[f64]) -> Result<()> {
    for row in rows {
        let measured = || round_trips.iter().zip(&row.found);
        for (near, at_near) in measured() {
            // Differences of fewer milliseconds are lost in what else the machine does.
            for (far, at_far) in measured().filter(|(far, _)| **far - near >= EXACT) {
                let paid = (at_far.milliseconds - at_near.milliseconds) / (far - near);
                if paid > at_far.waits + 0.5 {
                    let (name, waits) = (&row.name, at_far.waits);
                    bail!(
                        "`{name}` waits {waits:.1} times a step, but pays {paid:.1} times for {near} to {far} ms"
                    );
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Row, no_other_waits, same_waits};
    use crate::latency::Found;

    fn rows(found: [(f64, f64); 2]) -> [Row; 1] {
        let found = found.map(|(waits, milliseconds)| Found { waits, milliseconds });
        [Row { name: "train".to_owned(), copies: false, found: found.into() }]
    }

    #[test]
    fn a_step_that_waits_more_at_a_distance_is_an_error() {
        assert!(same_waits(&rows([(1.0, 1.0), (1.1, 1.0)])).is_ok());
        let error = same_waits(&rows([(1.0, 1.0), (2.0, 1.0)])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`train` waits 1.0 to 2.0 times a step, depending on the distance"
        );
    }

    #[test]
    fn a_step_that_pays_for_more_than_it_waits_is_an_error() {
        assert!(no_other_waits(&rows([(1.0, 20.0), (1.0, 52.0)]), &[0.0, 30.0]).is_ok());
        let slow = rows([(1.0, 20.0), (1.0, 80.0)]);
        // What is too near to be told from noise is not.
        assert!(no_other_waits(&slow, &[0.0, 1.0]).is_ok());
        let error = no_other_waits(&slow, &[0.0, 30.0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`train` waits 1.0 times a step, but pays 2.0 times for 0 to 30 ms"
        );
    }
}
