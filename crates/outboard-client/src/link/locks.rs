//! Locks that a panic of another thread does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Locks whether or not another thread panicked meanwhile: nothing here is left half-done by a
/// panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks for the lock for some microseconds before it sleeps for it. Releasing a lock for which a
/// thread sleeps is a system call, and the releasing thread may be one that posts.
pub(super) fn lock_awake<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    const LOOKS: u32 = 200;
    for _ in 0..LOOKS {
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
        std::hint::spin_loop();
    }
    lock(mutex)
}

/// Locks unless another thread holds the lock.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Locks if that can be had in time.
pub(super) fn lock_until<T>(mutex: &Mutex<T>, deadline: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        match try_lock(mutex) {
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            outcome => return outcome,
        }
    }
}
