//! Recent values, as lines of small bars.

use std::collections::HashMap;
use std::collections::VecDeque;

use super::Look;

/// How many looks are kept.
const KEPT_LOOKS: usize = 16;
/// From the least to the most.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Numbers of each look, the newest last; an unknown value is `None`.
type Numbers = VecDeque<Option<f64>>;

/// Numbers by the session or device that they are of.
#[derive(Default)]
pub(super) struct Recent {
    sessions: HashMap<String, Numbers>,
    busy: HashMap<String, Numbers>,
    memory: HashMap<String, Numbers>,
}

impl Recent {
    /// Keeps what this look says; sessions that it does not contain are dropped.
    pub(super) fn take(&mut self, look: &Look) {
        let sessions = look.server.sessions.iter();
        push(
            &mut self.sessions,
            sessions.map(|rated| (&rated.session.id, Some(rated.calls_per_second))),
        );
        let devices = look.devices.iter();
        push(
            &mut self.busy,
            devices.clone().map(|gauge| (&gauge.uuid, gauge.utilisation.map(f64::from))),
        );
        push(&mut self.memory, devices.map(|gauge| (&gauge.uuid, gauge.used_part())));
    }

    /// Calls a second, beside the most of them.
    pub(super) fn of_session(&self, id: &str, cells: usize) -> String {
        let Some(numbers) = self.sessions.get(id) else { return String::new() };
        bars(numbers, numbers.iter().flatten().copied().fold(0.0, f64::max), cells)
    }

    /// Utilisation, beside all that there could be.
    pub(super) fn utilisation(&self, uuid: &str, cells: usize) -> String {
        self.busy.get(uuid).map_or_else(String::new, |numbers| bars(numbers, 100.0, cells))
    }

    /// Memory in use, beside all that there is.
    pub(super) fn memory(&self, uuid: &str, cells: usize) -> String {
        self.memory.get(uuid).map_or_else(String::new, |numbers| bars(numbers, 1.0, cells))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.busy.is_empty() && self.memory.is_empty()
    }
}

fn push<'a>(
    kept: &mut HashMap<String, Numbers>,
    seen: impl Iterator<Item = (&'a String, Option<f64>)>,
) {
    let mut now = HashMap::new();
    for (name, number) in seen {
        let mut numbers = kept.remove(name).unwrap_or_default();
        numbers.push_back(number);
        while numbers.len() > KEPT_LOOKS {
            numbers.pop_front();
        }
        now.insert(name.clone(), numbers);
    }
    *kept = now;
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
