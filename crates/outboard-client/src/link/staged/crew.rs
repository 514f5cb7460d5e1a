//! Threads that help to copy between the program's memory and shared memory: one thread copies 12
//! GB/s, the device takes 55.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::copying::{Copying, Step};

/// How long a helper looks for something to do before it sleeps, or leaves a copy that waits for
/// the device.
const LOOKS_FOR_WORK: Duration = Duration::from_micros(100);

/// The helpers of a link. They are started when first needed.
#[derive(Debug)]
pub(super) struct Crew {
    state: Mutex<CrewState>,
    wake: Condvar,
    size: usize,
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct CrewState {
    invitations: VecDeque<Arc<Copying>>,
    started: usize,
}

impl Crew {
    pub(super) fn new(size: usize) -> Arc<Crew> {
        Arc::new(Crew {
            state: Mutex::default(),
            wake: Condvar::new(),
            size,
            ended: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, CrewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link is gone.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        drop(self.state());
        self.wake.notify_all();
    }

    /// Has up to `many` help with a copy. A thread that comes too late finds no chunk.
    pub(super) fn invite(self: &Arc<Crew>, many: usize, copying: &Arc<Copying>) {
        let many = many.min(self.size);
        if many == 0 {
            return;
        }
        let mut state = self.state();
        state.invitations.extend(std::iter::repeat_n(copying, many).cloned());
        while state.started < many {
            let crew = Arc::clone(self);
            let started: io::Result<()> =
                outboard_threads::start(&format!("outboard-copy{}", state.started), move || {
                    crew.work()
                });
            if started.is_err() {
                // The program's thread copies alone.
                break;
            }
            state.started += 1;
        }
        drop(state);
        if many == 1 { self.wake.notify_one() } else { self.wake.notify_all() }
    }

    fn work(&self) {
        while let Some(copying) = self.next() {
            let mut since = None;
            loop {
                match copying.step() {
                    Step::Copied => since = None,
                    Step::NotReady
                        if since.get_or_insert_with(Instant::now).elapsed() < LOOKS_FOR_WORK =>
                    {
                        std::thread::yield_now();
                    }
                    // The program's thread waits, and invites the others again when the device
                    // continues.
                    Step::NotReady | Step::Finished => break,
                }
            }
        }
    }

    /// The next invitation.
    fn next(&self) -> Option<Arc<Copying>> {
        let start = Instant::now();
        loop {
            let mut state = self.state();
            if self.ended.load(Ordering::Acquire) {
                return None;
            }
            if let Some(copying) = state.invitations.pop_front() {
                return Some(copying);
            }
            if start.elapsed() >= LOOKS_FOR_WORK {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                drop(state);
                continue;
            }
            drop(state);
            std::thread::yield_now();
        }
    }
}
