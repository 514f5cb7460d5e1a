//! What the worker asks of this process, and who does it.
//!
//! A request arrives as a notice, on whichever thread reads the link. That thread only queues it: it is done by a thread of ours, one for
//! each kind and context, in order. No such thread exists before the first request that something of the program's expects, and none outlives its
//! context. What nothing expects is refused, by one thread for all; a worker that asks for more at once than any work could need ends the session.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result};
use outboard_transport::Patience;
use outboard_wire::Reader;
use outboard_wire::request::{MAX_ANSWER, Request};

use crate::copies::under_way::Copies;
use crate::link::{Answers, thread};

/// Does the requests of some kinds.
pub(crate) trait Answerer: Send + Sync {
    /// Whether anything is under way in the program that could have a request of this kind be made in a context.
    fn expects(&self, kind: u32, ctx: ContextId) -> bool;

    /// Does a request and returns what it is answered with; `None` if its kind is another's. Runs on a thread of ours, which it may block.
    fn answer(&self, kind: u32, ctx: ContextId, body: &mut Reader<'_>) -> Option<Result<Vec<u8>>>;
}

/// The requests of a session.
pub(crate) struct Requests {
    answerers: Vec<Arc<dyn Answerer>>,
    /// How long a thread without a request stays awake.
    patience: Patience,
    answers: OnceLock<Answers>,
    copies: Arc<Copies>,
    queues: Mutex<HashMap<(u32, u32), Arc<Queue>>>,
    /// The contexts of the program.
    contexts: Mutex<HashSet<u32>>,
    /// Requests that wait for their threads, or are being done, and their bytes.
    waiting: AtomicUsize,
    waiting_bytes: AtomicUsize,
}

/// Most requests that wait at once: a worker has one for each function and copy that the program has queued, and its threads wait for most of them.
const MOST: usize = 1 << 16;
/// Most bytes that wait: with each piece of a copy to the program's memory the worker waits for the one before.
const MOST_BYTES: usize = 256 << 20;
/// The queue of what is refused.
const REFUSED: (u32, u32) = (0, 0);

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

/// Requests of one kind and context that wait for their thread.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<Asked>>,
    /// How many there are, for looks without the lock.
    count: AtomicUsize,
    added: Condvar,
    /// The context has ended: the thread ends when it has done what is here.
    closed: AtomicBool,
}

/// A request, copied from where it was read.
struct Asked {
    number: u64,
    kind: u32,
    ctx: ContextId,
    body: Vec<u8>,
    /// How many bytes count for it.
    bytes: usize,
}

impl Requests {
    pub(crate) fn new(patience: Patience, copies: Arc<Copies>, answerers: Vec<Arc<dyn Answerer>>) -> Arc<Requests> {
        Arc::new(Requests {
            answerers,
            patience,
            answers: OnceLock::new(),
            copies,
            queues: Mutex::default(),
            contexts: Mutex::default(),
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
        })
    }

    /// The program has a context, or is about to.
    pub(crate) fn begin(&self, ctx: ContextId) {
        self.contexts().insert(ctx.0);
    }

    fn contexts(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something of the program's may have such a request be made.
    fn is_expected(&self, kind: u32, ctx: u32) -> bool {
        self.contexts().contains(&ctx) && self.answerers.iter().any(|answerer| answerer.expects(kind, ContextId(ctx)))
    }

    /// The way back, once there is one. No request comes before.
    pub(crate) fn connect(&self, answers: Answers) {
        let _ = self.answers.set(answers);
    }

    /// The worker asks. Called by whichever thread reads the link: it must not wait.
    pub(crate) fn asked(self: &Arc<Requests>, request: &Request<'_>) {
        let asked = Asked {
            number: request.number,
            kind: request.kind,
            ctx: ContextId(request.ctx),
            body: request.body.to_vec(),
            bytes: request.body.len(),
        };
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel) + 1;
        let bytes = self.waiting_bytes.fetch_add(asked.body.len(), Ordering::AcqRel) + asked.body.len();
        if waiting > MOST || bytes > MOST_BYTES {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            self.waiting_bytes.fetch_sub(asked.body.len(), Ordering::AcqRel);
            if let Some(answers) = self.answers.get() {
                answers.lose("the server asks for more at once than any work could need");
            }
            return;
        }
        let expected = self.is_expected(request.kind, request.ctx);
        let key = if expected { (request.kind, request.ctx) } else { REFUSED };
        let asked = if expected { asked } else { Asked { kind: 0, body: Vec::new(), ..asked } };
        let known = self.queues.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let queue = known.or_else(|| self.start(key));
        match queue {
            Some(queue) => queue.add(asked),
            // There is no thread to be had: an error is better than a stream that stands still.
            None => {
                self.reply(asked.number, Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
                self.done(&asked);
            }
        }
    }

    /// Starts the thread for a kind and context.
    fn start(self: &Arc<Requests>, key: (u32, u32)) -> Option<Arc<Queue>> {
        let queue = Arc::new(Queue::default());
        let (requests, own) = (Arc::clone(self), Arc::clone(&queue));
        let run = move || {
            while let Some(asked) = own.next(&requests.patience) {
                requests.do_one(&asked);
                requests.done(&asked);
            }
        };
        thread::start(format!("outboard-host{}", key.1), run).ok()?;
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&queue));
        Some(queue)
    }

    fn done(&self, asked: &Asked) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.waiting_bytes.fetch_sub(asked.bytes, Ordering::AcqRel);
    }

    /// A context has ended, and its threads with it.
    pub(crate) fn end(&self, ctx: ContextId) {
        self.contexts().remove(&ctx.0);
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, queue) in queues.extract_if(|(_, of), _| *of == ctx.0) {
            queue.close();
        }
    }

    fn do_one(&self, asked: &Asked) {
        // The device had done these copies when it asked.
        self.copies.settle();
        let mut outcome = Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        for answerer in self.answerers.iter().filter(|_| asked.kind != 0) {
            // A panic of ours must not end the thread: somebody waits for what comes after.
            let done = catch_unwind(AssertUnwindSafe(|| {
                answerer.answer(asked.kind, asked.ctx, &mut Reader::new(&asked.body))
            }));
            if let Some(done) = done.unwrap_or(Some(Err(CUresult::CUDA_ERROR_UNKNOWN))) {
                outcome = done;
                break;
            }
        }
        self.reply(asked.number, outcome);
    }

    fn reply(&self, number: u64, outcome: Result<Vec<u8>>) {
        let Some(answers) = self.answers.get() else { return };
        if number == 0 {
            return;
        }
        match outcome {
            Ok(body) if body.len() <= MAX_ANSWER => answers.answer(number, 0, &body),
            Ok(_) => answers.answer(number, CUresult::CUDA_ERROR_INVALID_VALUE.0, &[]),
            Err(error) => answers.answer(number, error.0, &[]),
        }
    }
}

impl Queue {
    fn add(&self, asked: Asked) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(asked);
        self.count.store(waiting.len(), Ordering::Release);
        drop(waiting);
        self.added.notify_one();
    }

    fn close(&self) {
        let _waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::Release);
        self.added.notify_one();
    }

    /// The next one; waits for it, at first awake. None once the queue is closed and empty.
    fn next(&self, patience: &Patience) -> Option<Asked> {
        let (start, window) = (Instant::now(), patience.window());
        while self.count.load(Ordering::Acquire) == 0 && start.elapsed() < window {
            std::thread::yield_now();
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(asked) = waiting.pop_front() {
                self.count.store(waiting.len(), Ordering::Release);
                return Some(asked);
            }
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            waiting = self.added.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            patience.waited(start.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Only keeps a defect from hanging the tests.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Says what it was asked, and panics if that is 13.
    struct Says(Mutex<Sender<(u32, u8)>>);

    impl Answerer for Says {
        fn expects(&self, kind: u32, _ctx: ContextId) -> bool {
            kind == 1
        }

        fn answer(&self, kind: u32, ctx: ContextId, body: &mut Reader<'_>) -> Option<Result<Vec<u8>>> {
            if kind != 1 {
                return None;
            }
            let number = body.get().unwrap_or(u8::MAX);
            assert_ne!(number, 13, "on purpose");
            let _ = self.0.lock().unwrap().send((ctx.0, number));
            Some(Ok(Vec::new()))
        }
    }

    fn threads(ctx: u32) -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == format!("outboard-host{ctx}")).count()
    }

    #[test]
    fn requests_of_a_context_are_done_in_order_by_a_thread_that_ends_with_it() {
        let (say, said) = channel();
        let answerers: Vec<Arc<dyn Answerer>> = vec![Arc::new(Says(Mutex::new(say)))];
        let requests = Requests::new(
            Patience::new(Duration::from_micros(50), Duration::from_millis(1)),
            Arc::default(),
            answerers,
        );
        assert_eq!(threads(71), 0);
        [71, 72].into_iter().for_each(|ctx| requests.begin(ContextId(ctx)));
        for number in 0..20u8 {
            for ctx in [71, 72] {
                requests.asked(&Request { number: 0, kind: 1, ctx, body: &[number] });
            }
            // Of nobody's kind: no harm done.
            requests.asked(&Request { number: 0, kind: 9, ctx: 71, body: &[] });
        }
        let mut next = HashMap::from([(71, 0), (72, 0)]);
        for _ in 0..2 * 19 {
            let (ctx, number) = said.recv_timeout(PATIENCE).unwrap();
            let next = next.get_mut(&ctx).unwrap();
            if *next == 13 {
                *next += 1;
            }
            assert_eq!(number, *next);
            *next += 1;
        }
        assert_eq!((threads(71), threads(72)), (1, 1), "one for each kind that is expected, and context");
        requests.end(ContextId(71));
        let start = Instant::now();
        while threads(71) > 0 {
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        assert_eq!(threads(72), 1);
        // Of a context that the program has not, nothing is done; it could have it again.
        requests.asked(&Request { number: 0, kind: 1, ctx: 71, body: &[76] });
        requests.begin(ContextId(71));
        requests.asked(&Request { number: 0, kind: 1, ctx: 71, body: &[77] });
        assert_eq!(said.recv_timeout(PATIENCE).unwrap(), (71, 77));
        requests.end(ContextId(71));
        requests.end(ContextId(72));
    }

    #[test]
    fn what_nothing_expects_takes_one_thread_however_often_it_comes() {
        let (say, _said) = channel();
        let answerers: Vec<Arc<dyn Answerer>> = vec![Arc::new(Says(Mutex::new(say)))];
        let patience = Patience::new(Duration::from_micros(50), Duration::from_millis(1));
        let requests = Requests::new(patience, Arc::default(), answerers);
        let before = std::fs::read_dir("/proc/self/task").unwrap().count();
        for ctx in 5_000..7_000 {
            requests.asked(&Request { number: 0, kind: 1, ctx, body: &[1] });
            requests.asked(&Request { number: 0, kind: ctx, ctx, body: &[1] });
        }
        let after = std::fs::read_dir("/proc/self/task").unwrap().count();
        // Other tests of this process may start some at the same time.
        assert!(after < before + 100, "{before} threads became {after}");
        assert_eq!(requests.queues.lock().unwrap().len(), 1);
    }
}
