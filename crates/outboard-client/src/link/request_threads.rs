//! The threads that listen for the worker's requests and serve them.
//!
//! One thread listens. When it reads a request, another thread takes over listening, and the first
//! serves the request itself: no thread has to be woken on the way to the program's function, and
//! the connection is read however long the function takes. A request that a thread of the program
//! reads, while it waits for its own answer, is queued, and one of these threads is woken for it.
//!
//! There are as many threads as jobs at once, and at most [`SPARE`] that wait. The first starts
//! with the first [`Expectation`](super::Expectation).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Instant;

use outboard_transport::Patience;

use super::locks::lock;

/// The serving of requests of one queue.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The most threads that wait for a job.
const SPARE: usize = 2;

/// What a thread listens to.
pub(super) trait Source: Send + Sync {
    /// Whether requests are expected, so that a thread must listen.
    fn is_expecting(&self) -> bool;

    /// Listens until no request is expected, or until this thread has a job.
    fn listen(&self, has_job: &dyn Fn() -> bool);
}

/// The threads of a link.
pub(crate) struct RequestThreads {
    source: OnceLock<Weak<dyn Source>>,
    state: Mutex<RequestThreadsState>,
    changed: Condvar,
    /// What [`count_unclaimed`](Self::count_unclaimed) counted last, to be read without the lock.
    unclaimed: AtomicUsize,
    over: AtomicBool,
    /// How long a thread that listens, or that has served a queued job, polls before it sleeps.
    patience: Patience,
}

#[derive(Default)]
struct RequestThreadsState {
    jobs: VecDeque<Job>,
    /// Whether a thread listens.
    has_listener: bool,
    /// Threads without a job, also those that are about to start.
    free: usize,
    /// Those among the free ones that sleep.
    asleep: usize,
}

thread_local! {
    /// Whether this thread listens.
    static LISTENS: Cell<bool> = const { Cell::new(false) };
    /// The job that this thread read while it listened, and which it will do itself.
    static OWN: RefCell<Option<Job>> = const { RefCell::new(None) };
}

impl std::fmt::Debug for RequestThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestThreads").finish_non_exhaustive()
    }
}

impl RequestThreads {
    pub(crate) fn new(patience: Patience) -> Arc<RequestThreads> {
        Arc::new(RequestThreads {
            source: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            unclaimed: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            patience,
        })
    }

    /// How long a thread that listens polls before it sleeps.
    pub(super) fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Has a thread listen to `source` whenever that expects requests.
    pub(super) fn listen_to(
        self: &Arc<RequestThreads>,
        source: Weak<dyn Source>,
    ) -> io::Result<()> {
        let _ = self.source.set(source);
        self.provide(&mut lock(&self.state))
    }

    /// Has a thread do `job`, without waiting for it. An error if there is no free thread and none
    /// can be started.
    pub(crate) fn run(self: &Arc<RequestThreads>, job: Job) -> io::Result<()> {
        let job = if LISTENS.get() { keep(job) } else { Some(job) };
        let Some(job) = job else { return Ok(()) };
        let mut state = lock(&self.state);
        state.jobs.push_back(job);
        self.provide(&mut state).inspect_err(|_| {
            state.jobs.pop_back();
        })
    }

    /// Ends the listening. Jobs that are queued are still done.
    pub(super) fn end(&self) {
        let _state = lock(&self.state);
        self.over.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// The source, if it needs a listener and has none.
    fn unheard_source(&self, state: &RequestThreadsState) -> Option<Arc<dyn Source>> {
        if state.has_listener || self.over.load(Ordering::Acquire) {
            return None;
        }
        self.source.get()?.upgrade().filter(|source| source.is_expecting())
    }

    /// Counts the jobs that no thread does yet; listening is one where it is needed.
    fn count_unclaimed(&self, state: &RequestThreadsState) -> usize {
        let unclaimed = state.jobs.len() + usize::from(self.unheard_source(state).is_some());
        self.unclaimed.store(unclaimed, Ordering::Release);
        unclaimed
    }

    /// Wakes or starts a thread if there are jobs that no thread does.
    fn provide(self: &Arc<RequestThreads>, state: &mut RequestThreadsState) -> io::Result<()> {
        if self.count_unclaimed(state) <= state.free {
            if state.asleep > 0 {
                self.changed.notify_one();
            }
            return Ok(());
        }
        let threads = Arc::clone(self);
        outboard_threads::start("outboard-host", move || threads.work())?;
        state.free += 1;
        Ok(())
    }

    /// The life of a thread, which [`provide`](Self::provide) has counted as free.
    fn work(self: &Arc<RequestThreads>) {
        let mut state = lock(&self.state);
        // Since when this thread has waited for a queued job.
        let mut idle: Option<Instant> = None;
        let mut polls = false;
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state = self.busy(state, job);
                (idle, polls) = (Some(Instant::now()), true);
            } else if let Some(source) = self.unheard_source(&state) {
                state.has_listener = true;
                state = self.busy(state, || self.listen(&*source));
                // The next request is read by the thread that listens now: polling for a queued one
                // would not help.
                (idle, polls) = (None, false);
            } else if self.over.load(Ordering::Acquire) || state.free > SPARE {
                state.free -= 1;
                return;
            } else if let Some(since) = idle.filter(|_| polls) {
                drop(state);
                let window = self.patience.window();
                while self.unclaimed.load(Ordering::Acquire) == 0 && since.elapsed() < window {
                    std::thread::yield_now();
                }
                polls = false;
                state = lock(&self.state);
            } else {
                state.asleep += 1;
                state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                state.asleep -= 1;
                if let Some(since) = idle.take() {
                    self.patience.waited(since.elapsed());
                }
            }
        }
    }

    /// Runs `work` without the lock, while this thread does not count as free.
    fn busy<'a>(
        &'a self,
        mut state: MutexGuard<'a, RequestThreadsState>,
        work: impl FnOnce(),
    ) -> MutexGuard<'a, RequestThreadsState> {
        state.free -= 1;
        self.count_unclaimed(&state);
        drop(state);
        work();
        let mut state = lock(&self.state);
        state.free += 1;
        state
    }

    /// Listens, and then does the job that it has read, once another thread listens.
    fn listen(self: &Arc<RequestThreads>, source: &dyn Source) {
        LISTENS.set(true);
        source.listen(&has_job);
        LISTENS.set(false);
        let own = OWN.take();
        let mut state = lock(&self.state);
        state.has_listener = false;
        if let Some(job) = own {
            // If no thread can be started, this one listens again after its job.
            let _ = self.provide(&mut state);
            drop(state);
            job();
        }
    }
}

/// Keeps the first job for this thread; gives back any other.
fn keep(job: Job) -> Option<Job> {
    OWN.with_borrow_mut(|own| match own {
        None => {
            *own = Some(job);
            None
        }
        Some(_) => Some(job),
    })
}

fn has_job() -> bool {
    OWN.with_borrow(Option::is_some)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::ThreadId;
    use std::time::Duration;

    use super::*;

    /// Only keeps a defect from hanging the tests.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A source whose requests are jobs.
    struct Heard {
        threads: Arc<RequestThreads>,
        jobs: Mutex<mpsc::Receiver<Job>>,
        listeners: Mutex<Vec<ThreadId>>,
    }

    impl Source for Heard {
        fn is_expecting(&self) -> bool {
            true
        }

        fn listen(&self, has_job: &dyn Fn() -> bool) {
            let jobs = self.jobs.try_lock().expect("one thread listens at a time");
            self.listeners.lock().unwrap().push(std::thread::current().id());
            while !has_job() {
                let Ok(job) = jobs.recv() else { return self.threads.end() };
                self.threads.run(job).unwrap();
                // Jobs that arrive together with it are for other threads.
                jobs.try_iter().for_each(|job| self.threads.run(job).unwrap());
            }
        }
    }

    fn heard() -> (Arc<RequestThreads>, Arc<Heard>, mpsc::Sender<Job>) {
        let threads =
            RequestThreads::new(Patience::new(Duration::from_micros(50), Duration::from_millis(1)));
        let (say, jobs) = mpsc::channel();
        let heard = Arc::new(Heard {
            threads: Arc::clone(&threads),
            jobs: Mutex::new(jobs),
            listeners: Mutex::default(),
        });
        let source: Arc<dyn Source> = heard.clone();
        threads.listen_to(Arc::downgrade(&source)).unwrap();
        (threads, heard, say)
    }

    #[test]
    fn the_thread_that_reads_a_request_serves_it_and_another_listens() {
        let (_threads, heard, say) = heard();
        let (done, seen) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let first = done.clone();
        say.send(Box::new(move || {
            let _ = first.send(std::thread::current().id());
            let _ = wait.recv();
            let _ = first.send(std::thread::current().id());
        }))
        .unwrap();
        let long = seen.recv_timeout(PATIENCE).unwrap();
        assert_eq!(heard.listeners.lock().unwrap()[0], long, "the thread that read the request");
        // Meanwhile other requests are read and served.
        for _ in 0..10 {
            let done = done.clone();
            say.send(Box::new(move || {
                let _ = done.send(std::thread::current().id());
            }))
            .unwrap();
            assert_ne!(seen.recv_timeout(PATIENCE).unwrap(), long);
        }
        go.send(()).unwrap();
        assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), long);
        drop(say);
    }

    #[test]
    fn there_are_as_many_threads_as_jobs_at_once() {
        let (threads, heard, say) = heard();
        let (done, seen) = mpsc::channel();
        for _ in 0..1000 {
            let done = done.clone();
            say.send(Box::new(move || {
                let _ = done.send(());
            }))
            .unwrap();
            if heard.listeners.lock().unwrap().len() % 3 == 0 {
                seen.recv_timeout(PATIENCE).unwrap();
            }
        }
        drop(done);
        let rest = std::iter::from_fn(|| seen.recv_timeout(Duration::from_secs(1)).ok());
        rest.for_each(drop);
        let start = Instant::now();
        while lock(&threads.state).free > SPARE {
            assert!(start.elapsed() < PATIENCE, "{} threads wait", lock(&threads.state).free);
            std::thread::yield_now();
        }
        drop(say);
        while Arc::strong_count(&threads) > 2 {
            assert!(start.elapsed() < PATIENCE, "threads outlive the end");
            std::thread::yield_now();
        }
    }
}
