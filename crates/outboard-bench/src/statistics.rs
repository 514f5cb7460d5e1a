//! Medians and spread.

use serde::{Deserialize, Serialize};

/// A middle value and how far the others lie from it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Half of the values are below.
    pub median: f64,
    /// The lowest value.
    pub low: f64,
    /// The highest value.
    pub high: f64,
}

/// The value below which the given part of the values lies, between neighbours in proportion.
/// `None` without values.
pub fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = part.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let (low, high) = (sorted.get(below)?, sorted.get(above)?);
    Some(low + (high - low) * (place - place.floor()))
}

/// The middle value.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Median, lowest and highest.
pub fn summary(values: &[f64]) -> Option<Summary> {
    Some(Summary {
        median: median(values)?,
        low: quantile(values, 0.0)?,
        high: quantile(values, 1.0)?,
    })
}

/// The ratios of values that belong together in pairs: turns of one round.
pub fn ratios(values: &[f64], to: &[f64]) -> Vec<f64> {
    values.iter().zip(to).filter(|(_, to)| **to > 0.0).map(|(value, to)| value / to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values: Vec<f64> = (0..5).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.25), Some(1.0));
        assert_eq!(quantile(&values, 0.1), Some(0.4));
        assert_eq!(quantile(&values, 7.0), Some(4.0));
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let seen = summary(&[f64::NAN, 2.0, 1.0, f64::INFINITY]).unwrap();
        assert_eq!(seen, Summary { median: 1.5, low: 1.0, high: 2.0 });
    }

    #[test]
    fn ratios_are_of_pairs() {
        assert_eq!(ratios(&[2.0, 9.0, 1.0], &[1.0, 3.0, 0.0]), [2.0, 3.0]);
    }
}
