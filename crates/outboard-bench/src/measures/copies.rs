//! Copies between host and device, one at a time.

use std::time::Duration;

use super::buffers::{Device, Direction, Host, Kind};
use super::measure::Measure;
use super::sampling::{Prepared, repeat};
use crate::lab::{Lab, Result};
use crate::numbers::{size, size_words};
use crate::protocol::Turn;
use crate::results::{Group, Unit};

/// The smallest copy is a matter of latency.
const TINY: usize = 64;
/// Sizes of copies of which latency is a good part, which are measured as times.
const SMALL: [&str; 3] = ["64K", "256K", "1M"];
/// Sizes of copies that are measured as rates, by kind of memory.
const RATES: [(Kind, &[&str]); 4] = [
    (Kind::Pinned, &["64K", "1M", "16M", "64M", "256M"]),
    (Kind::Pageable, &["64K", "1M", "16M", "64M", "256M"]),
    (Kind::Registered, &["64K", "1M", "64M"]),
    (Kind::RegisteredFile, &["64K", "1M", "64M"]),
];
/// The largest copy of a quick run.
const QUICK: usize = 16 << 20;

/// A measure of copies of one kind and size in one direction.
#[derive(Debug, PartialEq)]
struct Single {
    id: String,
    kind: Kind,
    direction: Direction,
    bytes: usize,
    unit: Unit,
}

/// All of them.
fn singles() -> Vec<Single> {
    let mut all = Vec::new();
    for direction in Direction::BOTH {
        let id = format!("copy.tiny.{}", direction.name());
        all.push(Single { id, kind: Kind::Pageable, direction, bytes: TINY, unit: Unit::Time });
    }
    let mut add = |start: String, kind: Kind, sizes: &[&str], unit: Unit| {
        for direction in Direction::BOTH {
            for name in sizes {
                let id = format!("{start}.{}.{name}", direction.name());
                all.extend(size(name).map(|bytes| Single { id, kind, direction, bytes, unit }));
            }
        }
    };
    for (name, kind) in [("sync", Kind::Pageable), ("async", Kind::Pinned)] {
        add(format!("copy.small.{name}"), kind, &SMALL, Unit::Time);
    }
    for (kind, sizes) in RATES {
        add(format!("copy.{}", kind.name()), kind, sizes, Unit::Rate);
    }
    all
}

pub(super) fn catalogue(quick: bool) -> Vec<Measure> {
    let wanted = singles().into_iter().filter(|single| !quick || single.bytes <= QUICK);
    wanted
        .map(|single| Measure::new(single.id.clone(), single.title(), single.unit, Group::Copies))
        .collect()
}

impl Single {
    fn title(&self) -> String {
        let kind = match self.kind {
            Kind::Pageable => "pageable, synchronous",
            Kind::Pinned => "pinned, asynchronous, and a wait",
            Kind::Registered => "registered, asynchronous, and a wait",
            Kind::RegisteredFile => "a file's memory, registered, and a wait",
        };
        let size = if self.bytes == TINY { format!("{TINY} B") } else { size_words(self.bytes) };
        // The same copies are measured as rates.
        let time = if self.unit == Unit::Time && self.bytes != TINY { " (time)" } else { "" };
        format!("{size} {}, {kind}{time}", self.direction.words())
    }
}

/// A buffer of the host and one of the device.
struct Pair {
    lab: Lab,
    kind: Kind,
    host: Host,
    device: Device,
}

impl Pair {
    fn new(lab: Lab, kind: Kind, bytes: usize) -> Result<Pair> {
        Ok(Pair { lab, kind, device: Device::new(lab, bytes)?, host: Host::new(lab, kind, bytes)? })
    }

    /// A copy as programs make it of this kind of memory, and its end.
    #[inline]
    fn copy(&self, direction: Direction) -> Result<()> {
        if self.kind == Kind::Pageable {
            return self.device.copy(direction, &self.host);
        }
        self.device.queue(direction, &self.host, self.lab.stream)?;
        self.lab.wait()
    }

    /// Whether the bytes really go both ways.
    fn check(&mut self) -> Result<()> {
        self.host.fill(1);
        self.copy(Direction::ToDevice)?;
        self.host.fill(2);
        self.copy(Direction::FromDevice)?;
        self.host.check(1)
    }
}

pub(super) fn prepare(lab: &Lab, measure: &str, budget: Duration) -> Result<Option<Prepared>> {
    let Some(single) = singles().into_iter().find(|single| single.id == measure) else {
        return Ok(None);
    };
    let Single { id, kind, direction, bytes, unit } = single;
    let lab = *lab;
    let mut pair = Pair::new(lab, kind, bytes)?;
    pair.check()?;
    // Small copies to the device return once the bytes are taken: they are not to queue up. They
    // are in the default stream, which the lab's does not wait for.
    let settled = unit == Unit::Time && direction == Direction::ToDevice;
    Ok(Some(Box::new(move || {
        let settle = || if settled { lab.settle() } else { Ok(()) };
        let turn = repeat(&id, budget, 1, settle, || pair.copy(direction))?;
        Ok(if unit == Unit::Rate { as_rate(turn, bytes) } else { turn })
    })))
}

/// A turn whose samples are times, of which each brought so many bytes.
pub(super) fn as_rate(mut turn: Turn, bytes: usize) -> Turn {
    turn.samples.values_mut().flatten().for_each(|seconds| *seconds = bytes as f64 / *seconds);
    turn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_no_large_copies() {
        let ids =
            |quick| catalogue(quick).into_iter().map(|measure| measure.id).collect::<Vec<_>>();
        for id in [
            "copy.tiny.d2h",
            "copy.pinned.h2d.16M",
            "copy.small.sync.h2d.256K",
            "copy.registered_file.d2h.1M",
        ] {
            assert!(
                ids(false).iter().chain(&ids(true)).filter(|known| *known == id).count() == 2,
                "{id}"
            );
        }
        assert!(ids(false).contains(&"copy.registered.h2d.64M".to_owned()));
        assert!(ids(true).iter().all(|id| !id.ends_with(".64M") && !id.ends_with(".256M")));
    }

    #[test]
    fn samples_become_rates() {
        let samples = std::collections::BTreeMap::from([("x".to_owned(), vec![0.5, 2.0])]);
        let turn = as_rate(Turn { samples, ..Turn::default() }, 100);
        assert_eq!(turn.samples["x"], [200.0, 50.0]);
    }
}
