//! Parts of a copy that a few threads take in turn. A file system may be silent for ever, and its
//! threads with it, so whoever waits for them can give up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::helpers::Helpers;

/// Threads that all copies of a session have at most; each holds a part's memory.
const MOST_THREADS: usize = 16;
/// Beside them, so many that have been given up.
const MOST_GIVEN_UP: usize = 64;

/// The threads that file copies of a session may have.
pub(crate) struct FileThreads {
    counts: Mutex<Counts>,
    freed: Condvar,
}

struct Counts {
    free: usize,
    given_up: usize,
}

impl Default for FileThreads {
    fn default() -> FileThreads {
        let counts = Counts { free: MOST_THREADS, given_up: 0 };
        FileThreads { counts: Mutex::new(counts), freed: Condvar::new() }
    }
}

impl FileThreads {
    /// At most so many, at least one: waits for that. `None` if none is free within the patience,
    /// or if too many have been given up.
    fn take(&self, most: usize, patience: Option<Duration>) -> Option<usize> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut counts = self.counts.lock();
        loop {
            if counts.given_up >= MOST_GIVEN_UP {
                return None;
            }
            if counts.free > 0 {
                let taken = most.clamp(1, counts.free);
                counts.free -= taken;
                return Some(taken);
            }
            match deadline {
                None => self.freed.wait(&mut counts),
                Some(deadline) if self.freed.wait_until(&mut counts, deadline).timed_out() => {
                    return None;
                }
                Some(_) => {}
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock());
        self.freed.notify_all();
    }
}

/// Where a copy ended early: its first part that did not come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    pub(super) part: u64,
    pub(super) bytes: usize,
    pub(super) errno: u32,
}

/// What came of all parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Whole,
    Short(Short),
    /// Nothing has moved for longer than the patience: nobody waits any more.
    GivenUp,
}

/// How far the parts of a copy are.
pub(super) struct Progress {
    threads: Arc<FileThreads>,
    parts: u64,
    /// The next part that no thread has taken.
    next: AtomicU64,
    moved: AtomicU64,
    short: Mutex<Option<Short>>,
    /// Whether it has been given up; locked for reading while a thread changes what the program
    /// sees.
    given_up: RwLock<bool>,
    running: Mutex<usize>,
}

impl Progress {
    /// A part that is this thread's now. `None` if there is none, or none that matters.
    pub(super) fn take(&self) -> Option<u64> {
        let part = self.next.fetch_add(1, Ordering::AcqRel);
        let is_over = || self.short.lock().is_some_and(|short| short.part < part);
        (part < self.parts && !is_over()).then_some(part)
    }

    /// That part and all behind it will not be whole.
    pub(super) fn ends(&self, found: Short) {
        let mut short = self.short.lock();
        if short.is_none_or(|known| found.part < known.part) {
            *short = Some(found);
        }
    }

    /// Does what the program sees, unless the copy has been given up: `None` then.
    pub(super) fn unless_given_up<T>(&self, change: impl FnOnce() -> T) -> Option<T> {
        let given_up = self.given_up.read();
        if *given_up {
            return None;
        }
        let changed = change();
        self.moved.fetch_add(1, Ordering::AcqRel);
        Some(changed)
    }

    /// No part is begun any more.
    fn stop(&self) {
        self.next.fetch_max(self.parts, Ordering::AcqRel);
    }

    /// Gives it up unless something has moved meanwhile; waits for changes under way.
    fn give_up(&self, seen: u64) -> bool {
        let mut given_up = self.given_up.write();
        if self.moved.load(Ordering::Acquire) != seen {
            return false;
        }
        *given_up = true;
        self.stop();
        let running = *self.running.lock();
        self.threads.change(|counts| {
            counts.free += running;
            counts.given_up += running;
        });
        true
    }
}

/// One of a copy's threads, as long as this lives.
struct Running(Arc<Progress>);

impl Drop for Running {
    fn drop(&mut self) {
        let given_up = self.0.given_up.read();
        *self.0.running.lock() -= 1;
        self.0.threads.change(|counts| match *given_up {
            true => counts.given_up -= 1,
            false => counts.free += 1,
        });
    }
}

/// Has at most so many threads do work that takes all parts, and waits for them. With a patience,
/// only as long as something moves.
pub(super) fn share_out(
    helpers: &Helpers,
    threads: &Arc<FileThreads>,
    (most, parts): (usize, u64),
    patience: Option<Duration>,
    work: impl Fn(&Progress) -> Result<(), CUresult> + Send + Sync + 'static,
) -> Result<Outcome, CUresult> {
    let Some(taken) = threads.take(most, patience) else { return Ok(Outcome::GivenUp) };
    let progress = Arc::new(Progress {
        threads: Arc::clone(threads),
        parts,
        next: AtomicU64::new(0),
        moved: AtomicU64::new(0),
        short: Mutex::new(None),
        given_up: RwLock::new(false),
        running: Mutex::new(taken),
    });
    let (work, (done, outcomes)) = (Arc::new(work), channel());
    for _ in 0..taken {
        let (running, work, done) =
            (Running(Arc::clone(&progress)), Arc::clone(&work), done.clone());
        helpers.run(move || {
            let outcome = work(&running.0);
            if outcome.is_err() {
                running.0.stop();
            }
            drop(running);
            let _ = done.send(outcome);
        });
    }
    drop(done);
    // Without a thread, nothing was done.
    let (mut all, mut seen) = (Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY), 0);
    let mut any = false;
    loop {
        let outcome = match patience {
            Some(patience) => outcomes.recv_timeout(patience),
            None => outcomes.recv().map_err(RecvTimeoutError::from),
        };
        match outcome {
            Ok(outcome) => {
                all = if any { all.and(outcome) } else { outcome };
                any = true;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if progress.give_up(seen) => {
                return Ok(Outcome::GivenUp);
            }
            Err(RecvTimeoutError::Timeout) => seen = progress.moved.load(Ordering::Acquire),
        }
    }
    all.map(|()| progress.short.lock().map_or(Outcome::Whole, Outcome::Short))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(50);

    fn run(
        threads: &Arc<FileThreads>,
        parts: u64,
        work: impl Fn(&Progress) -> Result<(), CUresult> + Send + Sync + 'static,
    ) -> Result<Outcome, CUresult> {
        share_out(&Helpers::new(), threads, (4, parts), Some(PATIENCE), work)
    }

    fn free(threads: &FileThreads) -> (usize, usize) {
        let counts = threads.counts.lock();
        (counts.free, counts.given_up)
    }

    #[test]
    fn each_part_is_done_once() {
        let threads = Arc::default();
        let done: Arc<Vec<AtomicU64>> = Arc::new((0..100).map(|_| AtomicU64::new(0)).collect());
        let counted = Arc::clone(&done);
        let outcome = run(&threads, 100, move |progress| {
            while let Some(part) = progress.take() {
                counted[part as usize].fetch_add(1, Ordering::AcqRel);
            }
            Ok(())
        });
        assert_eq!(outcome, Ok(Outcome::Whole));
        assert!(done.iter().all(|count| count.load(Ordering::Acquire) == 1));
        assert_eq!(free(&threads), (MOST_THREADS, 0));
    }

    #[test]
    fn the_first_part_that_is_short_ends_it_and_an_error_stops_all() {
        let threads = Arc::default();
        let short = Short { part: 3, bytes: 7, errno: 5 };
        let outcome = run(&threads, 1000, move |progress| {
            while let Some(part) = progress.take() {
                if part == 3 || part == 9 {
                    progress.ends(Short { part, ..short });
                }
            }
            Ok(())
        });
        assert_eq!(outcome, Ok(Outcome::Short(short)));
        let failure = Err(CUresult::CUDA_ERROR_LAUNCH_FAILED);
        let outcome = run(&threads, u64::MAX / 2, move |progress| {
            while let Some(part) = progress.take() {
                if part == 5 {
                    return failure;
                }
            }
            Ok(())
        });
        assert_eq!(outcome, failure.map(|()| Outcome::Whole));
        assert_eq!(free(&threads), (MOST_THREADS, 0));
    }

    #[test]
    fn slow_parts_are_waited_for() {
        let outcome = run(&Arc::default(), 12, |progress| {
            while progress.take().is_some() {
                std::thread::sleep(PATIENCE / 2);
                progress.unless_given_up(|| ());
            }
            Ok(())
        });
        assert_eq!(outcome, Ok(Outcome::Whole));
    }

    #[test]
    fn silent_parts_are_given_up_and_change_nothing_later() {
        let threads = Arc::default();
        let (answer, silent) = channel::<()>();
        let (told, changes) = channel();
        let silent = Mutex::new(silent);
        let outcome = run(&threads, 4, move |progress| {
            while let Some(part) = progress.take() {
                if part == 2 {
                    let _ = silent.lock().recv();
                }
                let _ = told.send((part, progress.unless_given_up(|| ()).is_some()));
            }
            Ok(())
        });
        assert_eq!(outcome, Ok(Outcome::GivenUp));
        // Others have their threads, ...
        assert_eq!(free(&threads), (MOST_THREADS, 1));
        drop(answer);
        // ... and the silent one comes too late.
        let mut changes: Vec<(u64, bool)> = changes.iter().collect();
        changes.sort_unstable();
        assert_eq!(changes, [(0, true), (1, true), (2, false), (3, true)]);
        let begun = Instant::now();
        while free(&threads) != (MOST_THREADS, 0) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", free(&threads));
            std::thread::yield_now();
        }
    }

    #[test]
    fn too_many_silent_ones_are_the_last() {
        let threads: Arc<FileThreads> = Arc::default();
        let (answer, silent) = channel::<()>();
        let silent = Arc::new(Mutex::new(silent));
        for _ in 0..MOST_GIVEN_UP {
            let silent = Arc::clone(&silent);
            let outcome = share_out(
                &Helpers::new(),
                &threads,
                (1, 1),
                Some(Duration::from_millis(1)),
                move |progress| {
                    progress.take();
                    let _ = silent.lock().recv();
                    Ok(())
                },
            );
            assert_eq!(outcome, Ok(Outcome::GivenUp));
        }
        assert_eq!(threads.take(1, None), None);
        drop(answer);
        let begun = Instant::now();
        while free(&threads) != (MOST_THREADS, 0) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", free(&threads));
            std::thread::yield_now();
        }
    }
}
