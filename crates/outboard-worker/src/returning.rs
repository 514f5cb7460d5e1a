//! Memory that the client has freed and that the driver gets back later, on other threads.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Such memory of a session. Only the dispatcher adds to it.
#[derive(Clone, Default)]
pub(crate) struct Returning(Arc<(Mutex<usize>, Condvar)>);

/// Memory on its way, until this is dropped.
#[must_use]
pub(crate) struct OnItsWay(Returning);

impl Returning {
    /// Memory has been freed. The driver has it, and it does not count any more, once the result is
    /// dropped.
    pub(crate) fn begin(&self) -> OnItsWay {
        *self.0.0.lock() += 1;
        OnItsWay(self.clone())
    }

    /// Whether any is on its way.
    pub(crate) fn is_any(&self) -> bool {
        *self.0.0.lock() > 0
    }

    /// Waits until none is on its way, within reason.
    pub(crate) fn wait(&self, patience: Duration) {
        let (count, changed) = &*self.0;
        changed.wait_while_for(&mut count.lock(), |count| *count > 0, patience);
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        let (count, changed) = &*self.0.0;
        *count.lock() -= 1;
        changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_awaited_until_it_is_back_or_patience_ends() {
        let returning = Returning::default();
        returning.wait(Duration::from_secs(3600));
        let (first, second) = (returning.begin(), returning.begin());
        drop(first);
        returning.wait(Duration::from_millis(10));
        assert!(returning.is_any());
        let back = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(second);
        });
        returning.wait(Duration::from_secs(3600));
        assert!(!returning.is_any());
        back.join().unwrap();
    }
}
