//! What the way to a server costs, measured in a session: for `outboard doctor`.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::lab::{Lab, Result, driver};

/// How long each kind of call is measured, at most.
const TIME: Duration = Duration::from_millis(1500);
/// How often, at most.
const ROUNDS: usize = 400;
/// The largest copy.
const LARGEST: usize = 64 << 20;
/// A copy that takes this long says enough.
const ENOUGH: Duration = Duration::from_millis(200);

/// What was measured. Times are seconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figures {
    /// From the first call of the driver until a context is there.
    pub start: f64,
    /// Reading four bytes of the device's memory: a call that waits, with next to no work.
    pub read: Times,
    /// A kernel that does nothing, and the wait for it.
    pub launch: Times,
    /// Copies of pageable memory.
    pub to_device: Rate,
    /// Copies to pageable memory.
    pub from_device: Rate,
}

/// How long a call took.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Times {
    /// How often it was called.
    pub calls: usize,
    /// The shortest.
    pub shortest: f64,
    /// The median.
    pub median: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
}

/// How fast bytes were copied.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Rate {
    /// In one copy.
    pub bytes: usize,
    /// Bytes a second.
    pub rate: f64,
}

/// Measures with the driver library that the loader finds. The error is a sentence.
pub fn measure() -> std::result::Result<Figures, String> {
    figures().map_err(|error| error.to_string())
}

fn figures() -> Result<Figures> {
    let started = Instant::now();
    let lab = Lab::open()?;
    lab.enter()?;
    let start = started.elapsed().as_secs_f64();
    let address = lab.allocate(LARGEST)?;
    let mut small = [0_u8; 4];
    let mut read =
        || driver!(lab.table, cuMemcpyDtoH_v2(small.as_mut_ptr().cast(), address, small.len()));
    let read = times(&mut read)?;
    let launch = times(&mut || lab.launch().and_then(|()| lab.wait()))?;
    let mut memory = vec![0x5a_u8; LARGEST];
    let to_device =
        rate(|bytes| driver!(lab.table, cuMemcpyHtoD_v2(address, memory.as_ptr().cast(), bytes)))?;
    let from_device = rate(|bytes| {
        driver!(lab.table, cuMemcpyDtoH_v2(memory.as_mut_ptr().cast(), address, bytes))
    })?;
    lab.free(address)?;
    Ok(Figures { start, read, launch, to_device, from_device })
}

/// Calls until it is known well enough. The first calls, which set things up, do not count.
fn times(call: &mut dyn FnMut() -> Result<()>) -> Result<Times> {
    (0..3).try_for_each(|_| call())?;
    let (began, mut taken) = (Instant::now(), Vec::with_capacity(ROUNDS));
    while taken.len() < ROUNDS && (taken.len() < 5 || began.elapsed() < TIME) {
        let started = Instant::now();
        call()?;
        taken.push(started.elapsed().as_secs_f64());
    }
    taken.sort_by(f64::total_cmp);
    let at = |share: f64| taken[((taken.len() - 1) as f64 * share).round() as usize];
    Ok(Times { calls: taken.len(), shortest: at(0.0), median: at(0.5), p99: at(0.99) })
}

/// Copies more and more, until a copy takes long enough to say something. The faster of two counts.
fn rate(mut copy: impl FnMut(usize) -> Result<()>) -> Result<Rate> {
    let mut bytes = 1 << 20;
    // Lanes open and staging memory is made at the first one.
    copy(bytes)?;
    loop {
        let mut fastest = f64::INFINITY;
        for _ in 0..2 {
            let started = Instant::now();
            copy(bytes)?;
            fastest = fastest.min(started.elapsed().as_secs_f64());
        }
        if fastest >= ENOUGH.as_secs_f64() || bytes >= LARGEST {
            return Ok(Rate { bytes, rate: bytes as f64 / fastest });
        }
        bytes = (bytes * 4).min(LARGEST);
    }
}
