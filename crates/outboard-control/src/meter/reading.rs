//! What a meter says at one moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{CLASSES, DEVICES, ERRORS, Page, STATES, TRANSPORTS, WAIT_BOUNDS, WAYS};

/// What a session's worker has counted. Everything in it is the worker's word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Commands by class.
    pub commands: [u64; CLASSES.len()],
    /// When the client was last heard.
    heard: u64,
    /// Bytes to the device and from it, by way.
    pub bytes: [[u64; WAYS.len()]; 2],
    /// How many waits lasted up to each bound and longer.
    pub waits: [u64; WAIT_BOUNDS.len() + 1],
    /// How long all of them lasted.
    pub wait_ns: u64,
    /// Errors that the client was told, by kind.
    pub errors: [u64; ERRORS.len()],
    state: u32,
    transport: u32,
    /// One bit for each device with a context.
    pub contexts: u64,
    /// Bytes of memory held on each device.
    pub held: [u64; DEVICES],
    /// The most at any time.
    pub peak: [u64; DEVICES],
    /// Launches made with others.
    pub chained: u64,
}

fn all<const N: usize>(counters: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|index| counters[index].load(Ordering::Relaxed))
}

impl Reading {
    pub(super) fn of(page: &Page) -> Reading {
        let mut bytes = [0, 1].map(|direction| {
            let counters = page.bytes[direction].iter().chain(&page.more_bytes[direction]);
            let mut ways = [0; WAYS.len()];
            for (way, counter) in ways.iter_mut().zip(counters) {
                *way = counter.load(Ordering::Relaxed);
            }
            ways
        });
        bytes[0][0] = bytes[0][0].saturating_add(page.received.load(Ordering::Relaxed));
        Reading {
            commands: all(&page.commands),
            heard: page.heard.load(Ordering::Relaxed),
            bytes,
            waits: all(&page.waits),
            wait_ns: page.wait_ns.load(Ordering::Relaxed),
            errors: all(&page.errors),
            state: page.state.load(Ordering::Relaxed),
            transport: page.transport.load(Ordering::Relaxed),
            contexts: page.contexts.load(Ordering::Relaxed),
            held: all(&page.held),
            peak: all(&page.peak),
            chained: page.chained.load(Ordering::Relaxed),
        }
    }

    /// How long nothing has been heard of the client.
    pub fn idle(&self) -> Duration {
        Duration::from_nanos(super::now().saturating_sub(self.heard))
    }

    /// What the session is about.
    pub fn state(&self) -> &'static str {
        STATES.get(self.state as usize).copied().unwrap_or("unknown")
    }

    /// How commands travel; empty while that is not settled.
    pub fn transport(&self) -> &'static str {
        TRANSPORTS.get(self.transport as usize).copied().unwrap_or("other")
    }

    /// Raises what only counts upwards to what `later` says: a worker that counts backwards is not
    /// followed.
    pub fn raise_to(&mut self, later: &Reading) {
        each(&mut self.counters(), later, |own, other| *own = (*own).max(other));
        let (held, contexts) = (later.held, later.contexts);
        (self.held, self.contexts, self.state, self.transport) =
            (held, contexts, later.state, later.transport);
        (self.heard, self.peak) = (later.heard, later.peak);
    }

    /// Adds what another session has counted, its memory included; of the most that each has held,
    /// the most.
    pub fn add(&mut self, other: &Reading) {
        each(&mut self.counters(), other, |own, other| *own = own.saturating_add(other));
        for (own, other) in self.held.iter_mut().zip(other.held) {
            *own = own.saturating_add(other);
        }
        for (own, other) in self.peak.iter_mut().zip(other.peak) {
            *own = (*own).max(other);
        }
    }

    /// As [`Reading::add`], of a session that has ended: it holds no memory.
    pub fn add_ended(&mut self, other: &Reading) {
        self.add(&Reading { held: [0; DEVICES], ..*other });
    }

    fn counters(&mut self) -> [&mut [u64]; 7] {
        let [into, from] = &mut self.bytes;
        let (wait_ns, chained) =
            (std::slice::from_mut(&mut self.wait_ns), std::slice::from_mut(&mut self.chained));
        [&mut self.commands, into, from, &mut self.waits, wait_ns, &mut self.errors, chained]
    }
}

fn each(own: &mut [&mut [u64]; 7], other: &Reading, mut with: impl FnMut(&mut u64, u64)) {
    let mut other = *other;
    for (own, other) in own.iter_mut().zip(other.counters()) {
        for (own, other) in own.iter_mut().zip(other) {
            with(own, *other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_go_backwards_whatever_a_worker_writes() {
        let mut seen = Reading { commands: [5; CLASSES.len()], wait_ns: 9, ..Reading::default() };
        let back = Reading {
            commands: [3; CLASSES.len()],
            wait_ns: u64::MAX,
            held: [7; DEVICES],
            peak: [7; DEVICES],
            ..Reading::default()
        };
        seen.raise_to(&back);
        assert_eq!((seen.commands[0], seen.wait_ns, seen.held[0]), (5, u64::MAX, 7));
        let mut total = Reading::default();
        total.add(&seen);
        total.add(&seen);
        assert_eq!((total.commands[1], total.wait_ns, total.held[2]), (10, u64::MAX, 14));
        total.add_ended(&seen);
        assert_eq!((total.commands[1], total.held[2], total.peak[2]), (15, 14, 7));
    }
}
