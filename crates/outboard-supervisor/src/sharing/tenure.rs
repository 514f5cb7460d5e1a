//! How long a holder has had a device. Sessions of one holder come and go; the device is the
//! holder's from the first until none is left.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// Since when admitted clients have their devices, by their numbers.
#[derive(Default)]
pub(super) struct Tenures(BTreeMap<u64, Vec<Tenure>>);

/// How long the holder has had these devices without a gap; none named are all.
struct Tenure {
    devices: Vec<u32>,
    since: Timestamp,
}

impl Tenures {
    /// Somebody comes in.
    pub(super) fn begin(&mut self, number: u64, devices: &[u32], now: Timestamp) {
        self.0.insert(number, vec![Tenure { devices: devices.to_vec(), since: now }]);
    }

    /// Somebody leaves; these of the same holder stay, each with its devices.
    pub(super) fn end<'a>(&mut self, number: u64, staying: impl Iterator<Item = (u64, &'a [u32])>) {
        let Some(ended) = self.0.remove(&number) else { return };
        for (heir, devices) in staying {
            let Some(own) = self.0.get_mut(&heir) else { continue };
            for Tenure { devices: had, since } in &ended {
                let Some(both) = overlap(had, devices) else { continue };
                match own.iter_mut().find(|tenure| tenure.devices == both) {
                    Some(tenure) => tenure.since = tenure.since.min(*since),
                    None => own.push(Tenure { devices: both, since: *since }),
                }
            }
        }
    }

    /// Since when the holder of this number has had a device.
    pub(super) fn since(&self, number: u64, device: u32) -> Option<Timestamp> {
        let covers =
            |tenure: &&Tenure| tenure.devices.is_empty() || tenure.devices.contains(&device);
        self.0.get(&number)?.iter().filter(covers).map(|tenure| tenure.since).min()
    }
}

/// The devices in both lists; empty lists are of all devices.
fn overlap(one: &[u32], other: &[u32]) -> Option<Vec<u32>> {
    if one.is_empty() || other.is_empty() {
        return Some([one, other].concat());
    }
    let both: Vec<u32> = one.iter().copied().filter(|device| other.contains(device)).collect();
    (!both.is_empty()).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_passes_from_session_to_session_of_its_holder() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut tenures = Tenures::default();
        tenures.begin(1, &[0], at(10));
        tenures.begin(2, &[0, 1], at(20));
        assert_eq!([0, 1].map(|device| tenures.since(2, device)), [Some(at(20)); 2]);
        tenures.end(1, [(2, &[0, 1][..])].into_iter());
        assert_eq!(
            [0, 1, 2].map(|device| tenures.since(2, device)),
            [Some(at(10)), Some(at(20)), None]
        );
        tenures.begin(3, &[], at(30));
        tenures.end(2, [(3, &[][..])].into_iter());
        assert_eq!(
            [0, 1, 2].map(|device| tenures.since(3, device)),
            [Some(at(10)), Some(at(20)), Some(at(30))]
        );
        tenures.end(3, std::iter::empty());
        assert_eq!(tenures.since(3, 0), None);
    }
}
