//! Threads that wait for the device, so that the dispatcher need not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::bounds::Kind;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that has had nothing to do for so long ends. A client may send its next request before
/// the thread that answered is free, so that a busy machine needs one more now and then.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a caller that must wait for a free thread checks again.
const PAUSE: Duration = Duration::from_millis(1);

/// A pool that grows by a thread whenever all are busy, as each job waits for something, perhaps
/// for another job's end; and shrinks when they are idle.
#[derive(Clone)]
pub(crate) struct Helpers {
    idle: Arc<Mutex<Idle>>,
    busy: Arc<AtomicUsize>,
    patience: Duration,
}

/// Ways to idle threads, by the numbers of these. The last one is used first, so that those that
/// are not needed stay idle.
#[derive(Default)]
struct Idle {
    threads: Vec<(u64, Sender<Job>)>,
    started: u64,
}

impl Helpers {
    pub(crate) fn new() -> Helpers {
        Helpers { idle: Arc::default(), busy: Arc::default(), patience: PATIENCE }
    }

    /// As [`Helpers::run`], for what a client asks for: once a session has as many such threads as
    /// it may, this one waits until a job is done.
    pub(crate) fn run_in_turn(&self, job: impl FnOnce() + Send + 'static) {
        while Kind::Helper.room(self.busy.load(Ordering::Acquire)).is_err() {
            std::thread::sleep(PAUSE);
        }
        self.run(job);
    }

    /// Runs a job on a thread of its own, an idle one if there is one.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        if cfg!(fuzzing) {
            return job();
        }
        let busy = Busy::new(&self.busy);
        let mut job: Job = Box::new(move || {
            job();
            drop(busy);
        });
        let number = loop {
            let mut idle = self.idle.lock();
            let Some((_, thread)) = idle.threads.pop() else {
                idle.started += 1;
                break idle.started;
            };
            drop(idle);
            match thread.send(job) {
                Ok(()) => return,
                Err(returned) => job = returned.0,
            }
        };
        let (sender, jobs) = channel::<Job>();
        let (idle, patience) = (Arc::clone(&self.idle), self.patience);
        let helper = Helper { number, idle, sender, jobs, patience };
        let spawned =
            std::thread::Builder::new().name("waiter".into()).spawn(move || helper.work(job));
        if let Err(error) = spawned {
            // The job's answer is dropped with it, which answers with an error.
            tracing::error!(%error, "no thread to wait for the device");
        }
    }
}

/// A job that is not done.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn new(count: &Arc<AtomicUsize>) -> Busy {
        count.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(count))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One thread.
struct Helper {
    number: u64,
    idle: Arc<Mutex<Idle>>,
    sender: Sender<Job>,
    jobs: Receiver<Job>,
    patience: Duration,
}

impl Helper {
    fn work(self, first: Job) {
        first();
        loop {
            self.idle.lock().threads.push((self.number, self.sender.clone()));
            match self.next() {
                Some(job) => job(),
                None => return,
            }
        }
    }

    /// The next job; `None` if none came for long.
    fn next(&self) -> Option<Job> {
        match self.jobs.recv_timeout(self.patience) {
            Ok(job) => return Some(job),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut idle = self.idle.lock();
        if let Some(place) = idle.threads.iter().position(|(number, _)| *number == self.number) {
            idle.threads.remove(place);
            return None;
        }
        drop(idle);
        // Somebody has just taken this thread, and its job is about to come.
        self.jobs.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Instant;

    use super::*;

    /// Runs so many jobs at once; each says which thread it is, and waits for the others.
    fn at_once(helpers: &Helpers, count: usize) -> Vec<std::thread::ThreadId> {
        let all = Arc::new(std::sync::Barrier::new(count));
        let (said, names): (Sender<_>, _) = channel();
        for _ in 0..count {
            let (all, said) = (Arc::clone(&all), said.clone());
            helpers.run(move || {
                said.send(std::thread::current().id()).unwrap();
                all.wait();
            });
        }
        (0..count).map(|_| names.recv().unwrap()).collect()
    }

    #[test]
    fn there_are_as_many_threads_as_jobs_and_idle_ones_end() {
        let helpers = Helpers { patience: Duration::from_millis(50), ..Helpers::new() };
        let first = at_once(&helpers, 20);
        assert_eq!(first.iter().collect::<std::collections::HashSet<_>>().len(), 20);
        // Each thread has a share of the list.
        let started = Instant::now();
        while Arc::strong_count(&helpers.idle) > 1 {
            assert!(started.elapsed() < Duration::from_secs(60), "threads go on");
            std::thread::yield_now();
        }
        assert!(helpers.idle.lock().threads.is_empty());
        at_once(&helpers, 20);
    }

    #[test]
    fn an_idle_thread_is_used_again() {
        let helpers = Helpers { patience: Duration::from_secs(3600), ..Helpers::new() };
        let first = at_once(&helpers, 1);
        while helpers.idle.lock().threads.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(at_once(&helpers, 1), first);
    }

    #[test]
    fn no_job_is_lost_between_waiting_and_ending() {
        let helpers = Helpers { patience: Duration::from_micros(20), ..Helpers::new() };
        let (said, heard) = channel();
        for round in 0..5000 {
            let said = said.clone();
            helpers.run(move || said.send(round).unwrap());
            assert_eq!(heard.recv_timeout(Duration::from_secs(60)), Ok(round));
            if round % 3 == 0 {
                std::thread::sleep(Duration::from_micros(round % 40));
            }
        }
    }
}
