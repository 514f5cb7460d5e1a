//! Copies between page-locked memory and the device that are queued many at once, with one wait
//! behind all of them.

use std::time::Duration;

use outboard_abi::CUstream;

use super::buffers::{Device, Direction, Host, Kind};
use super::copies::as_rate;
use super::measure::Measure;
use super::sampling::{Prepared, nothing, repeat};
use crate::lab;
use crate::lab::{Lab, Result, driver};
use crate::numbers::{size, size_name, size_words};
use crate::results::{Group, Unit};

/// Buffers of the host that copies go through in rotation, of both directions together.
const BUFFERS: usize = 8;
/// Bytes of a copy, unless the name says otherwise.
const BYTES: usize = 64 << 20;
/// The largest copy of a quick run.
const QUICK: usize = 16 << 20;

/// The measures. What is behind the depth is written as [`Case::named`] reads it.
const CASES: [&str; 20] = [
    "queue.h2d.1",
    "queue.h2d.4",
    "queue.h2d.16",
    "queue.h2d.16.s2",
    "queue.h2d.16.s4",
    "queue.h2d.64.1M",
    "queue.h2d.16.registered",
    "queue.d2h.1",
    "queue.d2h.4",
    "queue.d2h.16",
    "queue.d2h.16.s2",
    "queue.d2h.16.s4",
    "queue.d2h.16.one",
    "queue.d2h.64.1M",
    "queue.d2h.16.registered",
    "queue.d2h.16.one.registered",
    "queue.both.1",
    "queue.both.4",
    "queue.both.16",
    "queue.both.4.registered",
];

/// What a name says: `queue.DIRECTION.DEPTH`, with `.sN` for the number of streams of each
/// direction, `.one` for a single buffer of the host, `.registered` for memory that the program has
/// registered, and the size of a copy.
#[derive(Debug, Clone, PartialEq)]
struct Case {
    /// One, or both at once.
    directions: Vec<Direction>,
    /// Copies in each direction.
    depth: usize,
    /// Streams of each direction.
    streams: usize,
    /// Whether all copies of a direction go to the same buffer of the host.
    one: bool,
    /// Of the host.
    kind: Kind,
    bytes: usize,
}

impl Case {
    fn named(name: &str) -> Option<Case> {
        let mut parts = name.strip_prefix("queue.")?.split('.');
        let directions = match parts.next()? {
            "both" => Direction::BOTH.to_vec(),
            one => vec![Direction::named(one)?],
        };
        let depth = parts.next()?.parse().ok().filter(|depth| *depth > 0)?;
        let (kind, bytes) = (Kind::Pinned, BYTES);
        let mut case = Case { directions, depth, streams: 1, one: false, kind, bytes };
        for part in parts {
            if part == "one" {
                case.one = true;
            } else if part == Kind::Registered.name() {
                case.kind = Kind::Registered;
            } else if let Some(streams) = part.strip_prefix('s') {
                case.streams = streams.parse().ok().filter(|streams| *streams > 0)?;
            } else {
                case.bytes = size(part).filter(|bytes| *bytes > 0)?;
            }
        }
        // Copies that write the same buffer are to be on the same stream.
        let apart = case.streams == 1 || (!case.one && case.buffers().is_multiple_of(case.streams));
        apart.then_some(case)
    }

    /// Buffers of each direction.
    fn buffers(&self) -> usize {
        self.depth.min(BUFFERS / self.directions.len())
    }

    fn title(&self) -> String {
        let copies = format!("{} × {}", self.depth, size_words(self.bytes));
        let kind = self.kind.name();
        let mut title = match self.directions[..] {
            [direction] => format!("{copies} {}, {kind}, queued at once", direction.words()),
            _ => format!("{copies} each way at once, {kind}, rate each way"),
        };
        if self.streams > 1 {
            title += &format!(", {} streams", self.streams);
        }
        if self.one {
            title += ", into one buffer";
        }
        title
    }
}

pub(super) fn catalogue(quick: bool) -> Vec<Measure> {
    let measure = |name: &str| {
        let case = Case::named(name)?;
        let (case, name) = match case.bytes {
            // Another size is another measure, which no target is for.
            bytes if quick && bytes > QUICK => {
                (Case { bytes: QUICK, ..case }, format!("{name}.{}", size_name(QUICK)))
            }
            _ => (case, name.to_owned()),
        };
        Some(Measure::new(name, case.title(), Unit::Rate, Group::Queued))
    };
    CASES.into_iter().filter_map(measure).collect()
}

/// The copies of one direction.
struct Queue {
    lab: Lab,
    direction: Direction,
    depth: usize,
    hosts: Vec<Host>,
    devices: Vec<Device>,
    streams: Vec<CUstream>,
}

impl Queue {
    fn new(lab: Lab, direction: Direction, case: &Case) -> Result<Queue> {
        let hosts = if case.one { 1 } else { case.buffers() };
        Ok(Queue {
            lab,
            direction,
            depth: case.depth,
            hosts: (0..hosts)
                .map(|_| Host::new(lab, case.kind, case.bytes))
                .collect::<Result<_>>()?,
            devices: (0..case.buffers())
                .map(|_| Device::new(lab, case.bytes))
                .collect::<Result<_>>()?,
            streams: (0..case.streams).map(|_| lab::stream(lab.table)).collect::<Result<_>>()?,
        })
    }

    /// Queues the copy of this number.
    #[inline]
    fn put(&self, number: usize) -> Result<()> {
        let host = &self.hosts[number % self.hosts.len()];
        let device = &self.devices[number % self.devices.len()];
        device.queue(self.direction, host, self.streams[number % self.streams.len()])
    }

    /// Gives every source contents of its own, and every target others.
    fn fill(&mut self) -> Result<()> {
        let mut plain = Host::new(self.lab, Kind::Pageable, self.hosts[0].bytes())?;
        let (host_seed, device_seed) = match self.direction {
            Direction::ToDevice => (SOURCE, TARGET),
            Direction::FromDevice => (TARGET, SOURCE),
        };
        for (number, host) in self.hosts.iter_mut().enumerate() {
            host.fill(host_seed + number as u64);
        }
        for (number, device) in self.devices.iter().enumerate() {
            plain.fill(device_seed + number as u64);
            device.copy(Direction::ToDevice, &plain)?;
        }
        self.lab.settle()
    }

    /// Whether every target has what the last copy to it was to bring.
    fn check(&self) -> Result<()> {
        let plain = Host::new(self.lab, Kind::Pageable, self.hosts[0].bytes())?;
        let (sources, targets) = match self.direction {
            Direction::ToDevice => (self.hosts.len(), self.devices.len()),
            Direction::FromDevice => (self.devices.len(), self.hosts.len()),
        };
        for target in 0..targets {
            let last =
                (0..self.depth).rfind(|number| number % targets == target).unwrap_or_default();
            let seed = SOURCE + (last % sources) as u64;
            match self.direction {
                Direction::ToDevice => {
                    self.devices[target].copy(Direction::FromDevice, &plain)?;
                    plain.check(seed)?;
                }
                Direction::FromDevice => self.hosts[target].check(seed)?,
            }
        }
        Ok(())
    }
}

/// Seeds of contents: of the first source, and of the first target before anything is copied.
const SOURCE: u64 = 1;
const TARGET: u64 = 1_001;

impl Drop for Queue {
    fn drop(&mut self) {
        for stream in &self.streams {
            // After an error of the device this fails; the process is about to end then.
            let _ = driver!(self.lab.table, cuStreamDestroy_v2(*stream));
        }
    }
}

/// Queues all copies, those of two directions in turns, and waits once.
fn run(queues: &[Queue], lab: &Lab) -> Result<()> {
    let depth = queues.iter().map(|queue| queue.depth).max().unwrap_or_default();
    for number in 0..depth {
        queues.iter().try_for_each(|queue| queue.put(number))?;
    }
    match queues {
        [Queue { streams, .. }] if streams.len() == 1 => {
            driver!(lab.table, cuStreamSynchronize(streams[0]))
        }
        _ => lab.settle(),
    }
}

pub(super) fn prepare(lab: &Lab, measure: &str, budget: Duration) -> Result<Option<Prepared>> {
    let Some(case) = Case::named(measure) else { return Ok(None) };
    let (lab, name) = (*lab, measure.to_owned());
    let queues = case.directions.iter().map(|direction| Queue::new(lab, *direction, &case));
    let mut queues = queues.collect::<Result<Vec<_>>>()?;
    queues.iter_mut().try_for_each(Queue::fill)?;
    run(&queues, &lab)?;
    queues.iter().try_for_each(Queue::check)?;
    Ok(Some(Box::new(move || {
        let mut turn = repeat(&name, budget, 1, nothing, || run(&queues, &lab))?;
        turn.operations *= (case.depth * queues.len()) as u64;
        Ok(as_rate(turn, case.depth * case.bytes))
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_queued() {
        let case = Case::named("queue.d2h.16.one").unwrap();
        let other = Case {
            directions: vec![Direction::FromDevice],
            depth: 16,
            streams: 1,
            one: true,
            kind: Kind::Pinned,
            bytes: 64 << 20,
        };
        assert_eq!(case, other);
        let case = Case::named("queue.both.4.s2.registered.16M").unwrap();
        let other = Case {
            directions: Direction::BOTH.to_vec(),
            depth: 4,
            streams: 2,
            one: false,
            kind: Kind::Registered,
            bytes: 16 << 20,
        };
        assert_eq!((case.buffers(), case), (4, other));
        assert_eq!(Case::named("queue.both.16").unwrap().buffers(), 4);
        for wrong in [
            "queue.up.1",
            "queue.h2d",
            "queue.h2d.0",
            "queue.h2d.4.s0",
            "queue.h2d.4.0M",
            "queue.h2d.4.x",
        ] {
            assert_eq!(Case::named(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn copies_to_the_same_buffer_are_on_the_same_stream() {
        assert_eq!(Case::named("queue.d2h.16.one.s2"), None);
        assert_eq!(Case::named("queue.d2h.16.s3"), None);
        assert!(Case::named("queue.d2h.16.s8").is_some());
    }

    #[test]
    fn every_case_is_a_measure_and_small_in_a_quick_run() {
        for quick in [false, true] {
            let all = catalogue(quick);
            assert_eq!(all.len(), CASES.len());
            for measure in all {
                let case = Case::named(&measure.id).unwrap();
                assert_eq!(case.title(), measure.title);
                assert!(!quick || case.bytes <= QUICK, "{}", measure.id);
            }
        }
    }
}
