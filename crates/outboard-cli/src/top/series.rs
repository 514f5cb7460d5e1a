//! Recent values, as lines of small bars.

use std::collections::{HashMap, VecDeque};

/// How many looks are kept.
const KEPT_LOOKS: usize = 16;
/// From the least to the most.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Numbers of each look, the newest last; an unknown value is `None`.
type Numbers = VecDeque<Option<f64>>;

/// Numbers by the name of what they are of.
#[derive(Default)]
pub(super) struct Series(HashMap<String, Numbers>);

impl Series {
    /// Keeps what a look says; what it does not contain is dropped.
    pub(super) fn take<'a>(&mut self, seen: impl Iterator<Item = (&'a str, Option<f64>)>) {
        let mut now = HashMap::new();
        for (name, number) in seen {
            let mut numbers = self.0.remove(name).unwrap_or_default();
            numbers.push_back(number);
            while numbers.len() > KEPT_LOOKS {
                numbers.pop_front();
            }
            now.insert(name.to_owned(), numbers);
        }
        self.0 = now;
    }

    /// Beside all that there could be.
    pub(super) fn beside(&self, most: f64, name: &str, cells: usize) -> String {
        self.0.get(name).map_or_else(String::new, |numbers| bars(numbers, most, cells))
    }

    /// Beside the most of them.
    pub(super) fn beside_most(&self, name: &str, cells: usize) -> String {
        let most = self.0.get(name).into_iter().flatten().flatten().copied().fold(0.0, f64::max);
        self.beside(most, name, cells)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A cell for each of the newest numbers, the newest on the right.
fn bars(numbers: &Numbers, most: f64, cells: usize) -> String {
    let left = cells.saturating_sub(numbers.len());
    let bar = |number: &Option<f64>| match number {
        Some(number) if most > 0.0 => BARS[((number / most * 7.0).round() as usize).min(7)],
        Some(_) => BARS[0],
        None => ' ',
    };
    let newest = numbers.iter().skip(numbers.len().saturating_sub(cells)).map(bar);
    std::iter::repeat_n(' ', left).chain(newest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_numbers_stand_on_the_right() {
        let numbers: Numbers = [Some(0.0), None, Some(50.0), Some(100.0), Some(1e9)].into();
        assert_eq!(bars(&numbers, 100.0, 7), "  ▁ ▅██");
        assert_eq!(bars(&numbers, 100.0, 2), "██");
        assert_eq!(bars(&[Some(0.0)].into(), 0.0, 1), "▁", "who does nothing has done nothing");
    }
}
