//! Waiting for a change under a mutex, by threads that look for a while before they sleep.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A condition variable whose waiters spin first: a thread that sleeps is woken late, and to wake
/// it is a system call.
#[derive(Debug, Default)]
pub struct Bell {
    rung: AtomicU64,
    /// Waiters asleep. Changed under the waiters' mutex.
    asleep: AtomicU32,
    condvar: Condvar,
}

impl Bell {
    /// Call it after the condition has changed under the mutex: it wakes one sleeping thread, and
    /// all spinning threads check the condition again.
    pub fn ring_one(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        // A thread that sleeps has counted itself under the mutex, before the change.
        if self.asleep.load(Ordering::Relaxed) != 0 {
            self.condvar.notify_one();
        }
    }

    /// As [`ring_one`](Self::ring_one), and wakes all.
    pub fn ring_all(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        if self.asleep.load(Ordering::Relaxed) != 0 {
            self.condvar.notify_all();
        }
    }

    /// Waits until `ready`, called under the mutex, returns a value. Before each sleep it spins for
    /// up to `spin`.
    pub fn wait<'a, T, R>(
        &self,
        mutex: &'a Mutex<T>,
        spin: Duration,
        mut ready: impl FnMut(&mut T) -> Option<R>,
    ) -> (MutexGuard<'a, T>, R) {
        let lock = || mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guard = lock();
        let mut may_spin = !spin.is_zero();
        loop {
            if let Some(result) = ready(&mut guard) {
                return (guard, result);
            }
            if may_spin {
                let before = self.rung.load(Ordering::Acquire);
                drop(guard);
                let start = Instant::now();
                // The time is up: the next check is the last one before sleep.
                may_spin = loop {
                    if self.rung.load(Ordering::Acquire) != before {
                        break true;
                    }
                    if start.elapsed() >= spin {
                        break false;
                    }
                    std::thread::yield_now();
                };
                guard = lock();
            } else {
                self.asleep.fetch_add(1, Ordering::Relaxed);
                guard = self.condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
                self.asleep.fetch_sub(1, Ordering::Relaxed);
                may_spin = !spin.is_zero();
            }
        }
    }
}

/// A condition variable that counts its waiters: the standard library's makes a system call even if
/// no thread waits.
#[derive(Debug, Default)]
pub struct Signal {
    /// Changed under the waiters' mutex.
    waiters: AtomicU32,
    condvar: Condvar,
}

impl Signal {
    /// Call it after the condition has changed under the mutex: it wakes one waiting thread.
    pub fn tell_one(&self) {
        // A thread that waits has counted itself under the mutex, before the change.
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.condvar.notify_one();
        }
    }

    /// As [`tell_one`](Self::tell_one), and wakes all.
    pub fn tell_all(&self) {
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.condvar.notify_all();
        }
    }

    /// Waits for a wake-up; may also return without one.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let guard = self.condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// The same, for at most that time; returns whether the time was up.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let (guard, waited) =
            self.condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        (guard, waited.timed_out())
    }

    /// The same, while `still` is true; returns whether it still was when the time was up.
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        time: Duration,
        mut still: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let start = Instant::now();
        while still(&mut guard) {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return (guard, true);
            }
            guard = self.wait_timeout(guard, left).0;
        }
        (guard, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However long they spin, no ring is lost: each of many things is taken by one of several
    /// threads, and none is left over.
    #[test]
    fn nothing_is_left_lying() {
        for spin in [
            Duration::ZERO,
            Duration::from_micros(1),
            Duration::from_micros(200),
            Duration::from_secs(1),
        ] {
            const THINGS: u32 = if cfg!(miri) { 60 } else { 3000 };
            let (bell, things) = (Bell::default(), Mutex::new((0_u32, 0_u32)));
            let put = |count, last| {
                let mut guard = things.lock().unwrap();
                guard.0 += count;
                guard.1 = last;
            };
            let taken: u32 = std::thread::scope(|scope| {
                let take = || {
                    let mut taken = 0;
                    loop {
                        let (guard, more) = bell.wait(&things, spin, |(things, last)| {
                            let more = *things > 0;
                            *things -= u32::from(more);
                            (more || *last > 0).then_some(more)
                        });
                        drop(guard);
                        if !more {
                            return taken;
                        }
                        taken += 1;
                    }
                };
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(take)).collect();
                for number in 0..THINGS {
                    put(1, 0);
                    bell.ring_one();
                    if number % 500 == 0 {
                        std::thread::sleep(Duration::from_micros(300));
                    }
                }
                put(0, 1);
                bell.ring_all();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(taken, THINGS, "spinning for {spin:?}");
        }
    }

    /// Two threads that wait for each other's turn: a word that is lost would stop both.
    #[test]
    fn no_word_is_lost() {
        const TURNS: u32 = if cfg!(miri) { 100 } else { 20_000 };
        let (signal, turn) = (Signal::default(), Mutex::new(0_u32));
        std::thread::scope(|scope| {
            for own in 0..2 {
                let (signal, turn) = (&signal, &turn);
                scope.spawn(move || {
                    let mut guard = turn.lock().unwrap();
                    while *guard < TURNS {
                        if *guard % 2 == own {
                            *guard += 1;
                            drop(guard);
                            if own == 0 {
                                signal.tell_one()
                            } else {
                                signal.tell_all()
                            }
                            guard = turn.lock().unwrap();
                        } else {
                            guard = signal.wait(guard);
                        }
                    }
                    drop(guard);
                    signal.tell_all();
                });
            }
        });
        assert_eq!(*turn.lock().unwrap(), TURNS);
        assert_eq!(signal.waiters.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_wait_ends_with_its_time_or_with_what_it_is_for() {
        let (signal, done) = (Signal::default(), Mutex::new(false));
        let time = Duration::from_millis(20);
        let start = Instant::now();
        let (guard, timed_out) =
            signal.wait_timeout_while(done.lock().unwrap(), time, |done| !*done);
        drop(guard);
        assert!(timed_out && start.elapsed() >= time);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *done.lock().unwrap() = true;
                signal.tell_one();
            });
            let long = Duration::from_secs(60);
            let (guard, timed_out) =
                signal.wait_timeout_while(done.lock().unwrap(), long, |done| !*done);
            assert!(*guard && !timed_out);
        });
    }
}
