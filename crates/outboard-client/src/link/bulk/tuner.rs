//! Finds out at run time which chunk size suits the link.
//!
//! What suits it depends on what a lane carries, on what it costs both sides to start a chunk, and
//! on how long the copy is: no rule that knows only the length can be right for loopback, a data
//! centre and a radio link. The tuner therefore records the rate of each transfer with its chunk
//! size, and now and then tries sizes next to the best one so far. A size counts by the best of its
//! last trials, because waits of a transfer (for a busy stream, for another transfer) say nothing
//! about the link.

use std::time::Duration;

use super::sizes::suggested_chunk;

/// Chunk sizes that are tried, as powers of two.
const SMALLEST: u32 = 17;
const LARGEST: u32 = 22;
const SIZES: usize = (LARGEST - SMALLEST + 1) as usize;

/// Trials of a size that count.
const TRIALS: usize = 4;
/// Every so many transfers a neighbour of the best size is tried again: links change.
const TRIED_AGAIN_EVERY: u32 = 32;
/// A size is better only if it is so by this factor, lest noise moves the choice about.
const BETTER: f64 = 1.04;

/// Lengths that are alike: below half a mebibyte, 2, 8, 32 MiB, and the others.
const CLASSES: usize = 5;

/// The measurements of one direction.
#[derive(Debug, Default)]
pub(super) struct Tuner {
    classes: [Class; CLASSES],
}

#[derive(Debug, Default)]
struct Class {
    rates: [Rates; SIZES],
    transfers: u32,
    /// The size held best.
    best: Option<usize>,
}

/// Bytes per second of the last trials of one size.
#[derive(Debug, Default)]
struct Rates {
    last: [f64; TRIALS],
    count: usize,
}

impl Rates {
    fn add(&mut self, rate: f64) {
        self.last[self.count % TRIALS] = rate;
        self.count += 1;
    }

    fn best(&self) -> f64 {
        self.last.iter().copied().fold(0.0, f64::max)
    }
}

impl Tuner {
    /// The chunk size for a transfer of `len` bytes.
    pub(super) fn chunk(&mut self, len: u64) -> u32 {
        let sizes = sizes(len);
        let class = &mut self.classes[class(len)];
        class.transfers += 1;
        let best = class.best.unwrap_or_else(|| start(len)).clamp(sizes.0, sizes.1);
        let untried = |size: &usize| class.rates[*size].count < TRIALS;
        let neighbours = [best, best.saturating_sub(1).max(sizes.0), (best + 1).min(sizes.1)];
        let size = match neighbours.iter().copied().find(untried) {
            Some(size) => size,
            None if class.transfers.is_multiple_of(TRIED_AGAIN_EVERY) => {
                neighbours[1 + (class.transfers / TRIED_AGAIN_EVERY % 2) as usize]
            }
            None => best,
        };
        1 << (SMALLEST + size as u32)
    }

    /// A transfer of `len` bytes in chunks of `chunk` took this long.
    pub(super) fn took(&mut self, len: u64, chunk: u32, time: Duration) {
        let Some(size) = chunk.checked_ilog2().and_then(|log| log.checked_sub(SMALLEST)) else {
            return;
        };
        // Boxes come in chunks of whole rows, and queued transfers in larger ones: they say nothing
        // about any of the sizes.
        let (first, last) = sizes(len);
        let is_tried = chunk.is_power_of_two() && (first..=last).contains(&(size as usize));
        if !is_tried || time.is_zero() {
            return;
        }
        let class = &mut self.classes[class(len)];
        class.rates[size as usize].add(len as f64 / time.as_secs_f64());
        let held = class.best.unwrap_or(size as usize);
        let mut best = (held, class.rates[held].best());
        for near in [held.saturating_sub(1), (held + 1).min(SIZES - 1)] {
            let rate = class.rates[near].best();
            if rate > best.1 * BETTER {
                best = (near, rate);
            }
        }
        class.best = Some(best.0);
    }
}

fn class(len: u64) -> usize {
    match len >> 19 {
        0 => 0,
        1..4 => 1,
        4..16 => 2,
        16..64 => 3,
        _ => 4,
    }
}

/// The smallest and largest size worth trying: a transfer has at least four chunks, unless it is so
/// short that it goes in the smallest ones.
fn sizes(len: u64) -> (usize, usize) {
    let largest = (len / 4).max(1).ilog2().clamp(SMALLEST, LARGEST) - SMALLEST;
    (0, largest as usize)
}

/// Where to start: what does well over loopback.
fn start(len: u64) -> usize {
    (suggested_chunk(len).ilog2() - SMALLEST) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A link where each chunk costs `each` seconds beside its bytes, and the first must be there
    /// whole before anything else can be done.
    fn time(len: u64, chunk: u32, rate: f64, each: f64, lanes: f64) -> f64 {
        let chunks = len.div_ceil(u64::from(chunk)) as f64;
        f64::from(chunk) / (rate / lanes) + len as f64 / rate + chunks * each / lanes
    }

    proptest! {
        /// Whatever the link, the size that is settled on is nearly the best one, and every size is
        /// valid.
        #[test]
        fn the_size_comes_near_the_best(
            len in (1u64 << 20)..(128 << 20),
            rate in 1e7f64..5e10,
            each in 1e-7f64..1e-4,
            lanes in 1u8..9,
            noise in proptest::collection::vec(1.0f64..1.02, 100),
        ) {
            let lanes = f64::from(lanes);
            let mut tuner = Tuner::default();
            let of = |chunk: u32| time(len, chunk, rate, each, lanes);
            for noise in noise {
                let chunk = tuner.chunk(len);
                prop_assert!(outboard_session::chunks::Cut::new(len, chunk).is_ok());
                tuner.took(len, chunk, Duration::from_secs_f64(of(chunk) * noise));
            }
            let (first, last) = sizes(len);
            let best = (first..=last).map(|size| of(1 << (SMALLEST + size as u32))).fold(f64::MAX, f64::min);
            // A look at a neighbour may be due.
            let (mut settled, mut left) = (tuner.chunk(len), 3);
            while of(settled) > best * 1.2 && left > 0 {
                tuner.took(len, settled, Duration::from_secs_f64(of(settled)));
                settled = tuner.chunk(len);
                left -= 1;
            }
            prop_assert!(of(settled) <= best * 1.2, "{} instead of {}", of(settled), best);
        }

        /// Chunks of queued transfers, which are no size that is tried, do not move the choice.
        #[test]
        fn other_sizes_are_ignored(len in 1u64..(4 << 20)) {
            let mut tuner = Tuner::default();
            let before = tuner.chunk(len);
            let other = 1 << (SMALLEST as usize + sizes(len).1 + 1);
            for _ in 0..2 * TRIALS {
                tuner.took(len, other, Duration::from_nanos(1));
            }
            prop_assert_eq!(tuner.chunk(len), before);
        }

        #[test]
        fn nonsense_is_ignored(len: u64, chunk: u32, nanoseconds: u64) {
            let mut tuner = Tuner::default();
            tuner.took(len, chunk, Duration::from_nanos(nanoseconds));
            prop_assert!(tuner.chunk(len).is_power_of_two());
        }
    }
}
