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
    /// To be called after what is waited for has changed under the mutex: wakes one of those that
    /// sleep, and all that spin look again.
    pub fn ring_one(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        // Who sleeps said so under the mutex, before the change.
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

    /// Waits until `ready` finds what it looks for under the mutex. Spins for up to `spin` each
    /// time that it is in vain.
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
                // In vain, the next look is the last before sleep.
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
            const THINGS: u32 = 3000;
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
}
