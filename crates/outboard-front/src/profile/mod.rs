//! The profile: what a process asked of the driver, what each function moved, and how long it
//! waited.
//!
//! It is kept while `OUTBOARD_PROFILE` names a file, and written there as JSON: now and then while
//! the process runs, since many end without an exit handler, and when it exits. `%p` in the name
//! becomes the number of the process (`place.rs`). (`OUTBOARD_STATS_FILE` is an older name of
//! the variable.) Without the variable, a call costs one load.
//!
//! Each thread counts in a block of its own, so counting is a few plain additions. When a thread
//! ends, another one reuses its block with the counts.

mod block;
mod place;
mod statistics;
mod write;

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use outboard_abi::CUresult;

use crate::generated::symbols::SYMBOLS;

use block::{Block, add};
pub use statistics::{Connection, FileBytes, Statistics};
pub(crate) use write::write;

/// Whether anybody wants a profile: found out by the first call.
static WANTED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// Stands for the functions of private tables.
pub(crate) const PRIVATE: usize = SYMBOLS.len();
/// Stands for what happens outside any call: pages that move as the program touches them, copies
/// that go on behind its back.
const BACKGROUND: usize = SYMBOLS.len() + 1;
/// The number of sets of counters: one for each function, and the two above.
const FUNCTIONS: usize = SYMBOLS.len() + 2;

/// Bits for what the present call has done.
const POSTED: u8 = 1;
const WAITED: u8 = 2;

/// A thread's place in the profile.
struct Here {
    block: Cell<Option<&'static Block>>,
    /// The function that the thread is in.
    function: Cell<usize>,
    /// The call's counts so far: `POSTED`, `WAITED`.
    did: Cell<u8>,
    /// Whether the thread waits already: a wait within another one is not counted twice.
    waiting: Cell<bool>,
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            block::hand_on(block);
        }
    }
}

thread_local! {
    static HERE: Here = const {
        Here {
            block: Cell::new(None),
            function: Cell::new(BACKGROUND),
            did: Cell::new(0),
            waiting: Cell::new(false),
        }
    };
}

impl Here {
    fn block(&self) -> &'static Block {
        self.block.get().unwrap_or_else(|| {
            let block = block::take();
            self.block.set(Some(block));
            block
        })
    }
}

/// Whether anybody wants a profile.
#[inline(always)]
pub fn is_on() -> bool {
    WANTED.load(Ordering::Relaxed) == ON
}

/// Whether it is decided that no profile is wanted.
#[inline(always)]
pub(crate) fn is_off() -> bool {
    WANTED.load(Ordering::Relaxed) == OFF
}

/// The call that a thread was in when it entered another one: functions of the program that the
/// driver calls make calls themselves.
pub(crate) struct Outer {
    function: usize,
    did: u8,
    waiting: bool,
}

/// Entry point `symbol` begins. Pass the result to [`left`].
#[cold]
pub(crate) fn entered(symbol: usize) -> Option<Outer> {
    if !is_on() && !decide() {
        return None;
    }
    HERE.try_with(|here| Outer {
        function: here.function.replace(symbol.min(PRIVATE)),
        did: here.did.replace(0),
        waiting: here.waiting.replace(false),
    })
    .ok()
}

/// The entry point that was entered ends with `result`.
#[cold]
pub(crate) fn left(outer: &Outer, result: CUresult) {
    let _ = HERE.try_with(|here| {
        let counts = here.block().of(here.function.replace(outer.function));
        add(&counts.calls, 1);
        match here.did.replace(outer.did) {
            0 => {}
            POSTED => add(&counts.posted, 1),
            _ => add(&counts.waited, 1),
        }
        if result != CUresult::CUDA_SUCCESS {
            add(&counts.errors, 1);
            counts.last_error.store(u64::from(result.0), Ordering::Relaxed);
        }
        here.waiting.set(outer.waiting);
    });
}

/// A command of `bytes` was queued.
#[cold]
pub fn posted(bytes: usize) {
    moved(bytes as u64, 0);
    let _ = HERE.try_with(|here| here.did.set(here.did.get() | POSTED));
}

/// Counts bytes that the present call moves to the device's side and from there.
#[cold]
pub fn moved(to: u64, from: u64) {
    let _ = HERE.try_with(|here| {
        let counts = here.block().of(here.function.get());
        add(&counts.to_device, to);
        add(&counts.from_device, from);
    });
}

/// Runs what waits for the other side to answer.
#[inline]
pub fn waited<T>(wait: impl FnOnce() -> T) -> T {
    if is_on() { timed(WAITED, wait) } else { wait() }
}

/// Runs what may have to wait until there is room, or for bytes to be gone: its time is lost, but
/// there is no round trip.
#[inline]
pub fn stalled<T>(wait: impl FnOnce() -> T) -> T {
    if is_on() { timed(0, wait) } else { wait() }
}

#[cold]
fn timed<T>(did: u8, wait: impl FnOnce() -> T) -> T {
    let outermost = HERE.try_with(|here| {
        here.did.set(here.did.get() | did);
        !here.waiting.replace(true)
    });
    if outermost != Ok(true) {
        return wait();
    }
    let start = Instant::now();
    let result = wait();
    let time = start.elapsed().as_nanos() as u64;
    let _ = HERE.try_with(|here| {
        here.waiting.set(false);
        let counts = here.block().of(here.function.get());
        add(&counts.nanoseconds, time);
        if counts.longest.load(Ordering::Relaxed) < time {
            counts.longest.store(time, Ordering::Relaxed);
        }
        if did == WAITED {
            add(&counts.round_trips, 1);
            // Zero stands for none yet.
            let shortest = counts.shortest.load(Ordering::Relaxed);
            if shortest == 0 || time < shortest {
                counts.shortest.store(time.max(1), Ordering::Relaxed);
            }
        }
    });
    result
}

/// The name of what is counted under a number.
fn name(function: usize) -> &'static str {
    match function {
        PRIVATE => "(private functions)",
        BACKGROUND => "(background)",
        symbol => SYMBOLS.get(symbol).copied().unwrap_or("?"),
    }
}

/// When the process made its first call.
static FIRST: OnceLock<Instant> = OnceLock::new();

/// How long ago the process made its first call.
fn lived() -> Duration {
    FIRST.get().map_or(Duration::ZERO, Instant::elapsed)
}

/// Finds out whether a profile is wanted.
fn decide() -> bool {
    let wanted = place::asked_for().is_some();
    if wanted {
        FIRST.get_or_init(Instant::now);
    }
    WANTED.store(if wanted { ON } else { OFF }, Ordering::Relaxed);
    wanted
}

/// The least time between two profiles.
const SOON: Duration = Duration::from_millis(10);
/// The longest that a profile is behind what has been counted.
const LATEST: Duration = Duration::from_millis(250);
/// Of a process that ends earlier, this part of its time.
const PART: u32 = 16;

/// How long to wait for the next profile of a process that has lived so long.
fn pause(lived: Duration) -> Duration {
    (lived / PART).clamp(SOON, LATEST)
}

/// The process has devices: it leaves its profile behind, if one is wanted. `leave` writes it.
pub(crate) fn start(leave: Option<extern "C" fn()>) {
    static ONCE: Once = Once::new();
    if let Some(leave) = leave
        && is_on()
    {
        ONCE.call_once(|| {
            // SAFETY: the handler touches only statics, which outlive it.
            unsafe { libc::atexit(leave) };
            // At once, by this thread: the process may end before another one has its turn.
            leave();
            // Without a thread, a profile is left at the exit alone.
            let _ = outboard_threads::start("outboard-stats", move || keep_left(leave));
        });
    }
}

/// Writes the profile whenever more has been counted, less and less often.
fn keep_left(leave: extern "C" fn()) {
    let mut written = 0;
    loop {
        std::thread::sleep(pause(lived()));
        if !is_on() {
            return;
        }
        let counted = block::everything();
        if std::mem::replace(&mut written, counted) != counted {
            leave();
        }
    }
}

/// Counts no more: a forked child writes no profile, and must not wait for its parent's locks.
pub(crate) fn stop() {
    WANTED.store(OFF, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `run` adds to the counts of function `symbol`.
    fn counted(symbol: usize, run: impl FnOnce()) -> [u64; 5] {
        let read = || {
            let all = block::sum(symbol);
            [all.calls, all.posted, all.waited, all.to_device, all.round_trips]
        };
        WANTED.store(ON, Ordering::Relaxed);
        let before = read();
        run();
        let after = read();
        std::array::from_fn(|index| after[index] - before[index])
    }

    fn call(symbol: usize, body: impl FnOnce()) {
        let outer = entered(symbol).unwrap();
        body();
        left(&outer, CUresult::CUDA_SUCCESS);
    }

    #[test]
    fn a_profile_lacks_a_small_part_of_a_processs_time() {
        let milliseconds = Duration::from_millis;
        assert_eq!(pause(Duration::ZERO), milliseconds(10));
        assert_eq!(pause(milliseconds(800)), milliseconds(50));
        assert_eq!(pause(Duration::from_secs(3600)), milliseconds(250));
    }

    #[test]
    fn a_call_is_local_posted_or_waited_for() {
        // Entry points that no other test of this crate enters.
        let counts = counted(7, || {
            call(7, || {});
            call(7, || posted(10));
            call(7, || {
                posted(1);
                waited(|| waited(|| ()));
            });
        });
        assert_eq!(counts, [3, 1, 1, 11, 1], "calls, posted, waited, bytes, round trips");
    }

    #[test]
    fn a_call_within_a_wait_counts_for_itself() {
        let inner =
            || call(9, || waited(|| std::thread::sleep(std::time::Duration::from_millis(2))));
        let outer = || call(8, || waited(inner));
        assert_eq!(counted(9, || assert_eq!(counted(8, outer), [1, 0, 1, 0, 1])), [1, 0, 1, 0, 1]);
        assert!(block::sum(9).nanoseconds >= 2_000_000 && block::sum(9).longest >= 2_000_000);
    }

    #[test]
    fn what_ended_threads_counted_stays() {
        let counts = counted(10, || {
            for _ in 0..20 {
                std::thread::spawn(|| call(10, || posted(5))).join().unwrap();
            }
        });
        assert_eq!(counts, [20, 20, 0, 100, 0]);
    }
}
