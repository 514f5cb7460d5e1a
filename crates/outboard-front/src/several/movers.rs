//! Threads for what servers do together and no thread of the program waits for.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Most threads at once: each copies between two servers, or waits for bytes of one.
const MOST: usize = 16;
/// A thread that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The threads of a process. They are started when first needed.
pub(super) struct Movers {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Movers {
    pub(super) const fn new() -> Movers {
        let state = State { jobs: VecDeque::new(), threads: 0, idle: 0 };
        Movers { state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Has a thread do this. A job may wait for servers, but not for other jobs.
    pub(super) fn run(&'static self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() || state.threads >= MOST {
            drop(state);
            self.wake.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        if outboard_threads::start("outboard-across", || self.work()).is_err() {
            let mut state = self.state.lock();
            state.threads -= 1;
            // Others do it in their turn. Without any, this thread does.
            let job = if state.threads == 0 { state.jobs.pop_front() } else { None };
            drop(state);
            job.into_iter().for_each(|job| job());
        }
    }

    fn work(&'static self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.wake.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if timed_out && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn jobs_that_wait_hold_up_no_others() {
        let movers: &'static Movers = Box::leak(Box::new(Movers::new()));
        let (done, all) = channel();
        // Each of them but the last waits for the one behind it.
        let mut before: Option<std::sync::mpsc::Sender<()>> = None;
        for number in 0..MOST {
            let (go, wait) = channel::<()>();
            let (next, done) = (before.replace(go), done.clone());
            let is_last = number + 1 == MOST;
            movers.run(move || {
                if !is_last {
                    wait.recv().expect("the next one tells");
                }
                next.into_iter().for_each(|next| next.send(()).expect("it waits"));
                done.send(number).expect("the test waits");
            });
        }
        let mut numbers: Vec<usize> = all.iter().take(MOST).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..MOST).collect::<Vec<_>>());
        for number in 0..3 * MOST {
            let done = done.clone();
            movers.run(move || done.send(number).expect("the test waits"));
        }
        assert_eq!(all.iter().take(3 * MOST).count(), 3 * MOST);
        assert!(movers.state.lock().threads <= MOST);
    }
}
