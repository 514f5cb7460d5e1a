//! The requests that the worker makes of this process: functions to call, bytes of the program's
//! memory.
//!
//! A request arrives as a notice, on whichever thread reads the link. That thread only queues it;
//! one of the [`RequestThreads`] serves it, in order for each kind and context. A request that
//! nothing expects is refused, by one thread for all; more requests at once than any work could
//! need end the session.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result};
use outboard_wire::Reader;
use outboard_wire::request::{MAX_ANSWER, Request};
use parking_lot::{Mutex, MutexGuard};

use crate::copies::under_way::Copies;
use crate::link::{Answers, RequestThreads};

/// Does the requests of some kinds.
pub(crate) trait Answerer: Send + Sync {
    /// Whether anything is under way in the program that could have a request of this kind be made
    /// in a context.
    fn expects(&self, kind: u32, ctx: ContextId) -> bool;

    /// Executes a request and returns the answer; `None` if its kind is another's. Runs on a thread
    /// of ours, which it may block.
    fn answer(&self, kind: u32, ctx: ContextId, body: &mut Reader<'_>) -> Option<Result<Vec<u8>>>;
}

/// The requests of a session.
pub(crate) struct Requests {
    answerers: Vec<Arc<dyn Answerer>>,
    answers: OnceLock<Answers>,
    threads: OnceLock<Arc<RequestThreads>>,
    copies: Arc<Copies>,
    queues: Mutex<HashMap<(u32, ContextId), Arc<Queue>>>,
    /// The contexts of the program.
    contexts: Mutex<HashSet<ContextId>>,
    /// Requests that wait for their threads, or are being done, and their bytes.
    waiting: AtomicUsize,
    waiting_bytes: AtomicUsize,
}

/// Most requests that wait at once: a worker has one for each function and copy that the program
/// has queued, and its threads wait for most of them.
const MOST_WAITING: usize = 1 << 16;
/// Most bytes that wait: with each piece of a copy to the program's memory the worker waits for the
/// one before.
const MOST_BYTES: usize = 256 << 20;
/// The queue of what is refused.
const REFUSED: (u32, ContextId) = (0, ContextId::NONE);

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

/// Requests of one kind and context, which are served one after the other.
type Queue = Mutex<Line>;

#[derive(Default)]
struct Line {
    waiting: VecDeque<Asked>,
    /// A thread serves them, or has been asked to.
    busy: bool,
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
    pub(crate) fn new(copies: Arc<Copies>, answerers: Vec<Arc<dyn Answerer>>) -> Arc<Requests> {
        Arc::new(Requests {
            answerers,
            answers: OnceLock::new(),
            threads: OnceLock::new(),
            copies,
            queues: Mutex::default(),
            contexts: Mutex::default(),
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
        })
    }

    /// The program has a context, or is about to.
    pub(crate) fn begin(&self, ctx: ContextId) {
        self.contexts().insert(ctx);
    }

    fn contexts(&self) -> MutexGuard<'_, HashSet<ContextId>> {
        self.contexts.lock()
    }

    /// Whether something of the program's may have such a request be made.
    fn is_expected(&self, kind: u32, ctx: ContextId) -> bool {
        self.contexts().contains(&ctx)
            && self.answerers.iter().any(|answerer| answerer.expects(kind, ctx))
    }

    /// The way back, once there is one. No request comes before.
    pub(crate) fn connect(&self, answers: Answers) {
        let _ = self.threads.set(answers.threads());
        let _ = self.answers.set(answers);
    }

    /// The worker asks. Called by whichever thread reads the link: it must not wait.
    pub(crate) fn asked(self: &Arc<Requests>, request: &Request<'_>) {
        let asked = Asked {
            number: request.number,
            kind: request.kind,
            ctx: request.ctx,
            body: request.body.to_vec(),
            bytes: request.body.len(),
        };
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel) + 1;
        let bytes =
            self.waiting_bytes.fetch_add(asked.body.len(), Ordering::AcqRel) + asked.body.len();
        if waiting > MOST_WAITING || bytes > MOST_BYTES {
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
        let queue = Arc::clone(self.queues.lock().entry(key).or_default());
        if !add(&queue, asked) {
            return;
        }
        let (requests, own) = (Arc::clone(self), Arc::clone(&queue));
        let job = Box::new(move || requests.each(&own, |asked| requests.do_one(asked)));
        if self.threads.get().is_none_or(|threads| threads.run(job).is_err()) {
            // There is no thread to be had: an error is better than a stream that never continues.
            self.each(&queue, |asked| {
                self.reply(asked.number, Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY))
            });
        }
    }

    /// Does something with each request of a queue until none is left.
    fn each(&self, queue: &Queue, act: impl Fn(&Asked)) {
        while let Some(asked) = next(queue) {
            act(&asked);
            self.done(&asked);
        }
    }

    fn done(&self, asked: &Asked) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.waiting_bytes.fetch_sub(asked.bytes, Ordering::AcqRel);
    }

    /// A context has ended. Its requests that wait are still served.
    pub(crate) fn end(&self, ctx: ContextId) {
        self.contexts().remove(&ctx);
        self.queues.lock().retain(|(_, of), _| *of != ctx);
    }

    fn do_one(&self, asked: &Asked) {
        // The device had done these copies when it asked.
        self.copies.settle();
        let mut outcome = Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        for answerer in self.answerers.iter().filter(|_| asked.kind != 0) {
            // A panic of ours must not end the thread: a thread waits for the work after it.
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

/// Adds a request. Returns whether a thread has to be found for the queue.
fn add(queue: &Queue, asked: Asked) -> bool {
    let mut line = queue.lock();
    line.waiting.push_back(asked);
    !std::mem::replace(&mut line.busy, true)
}

/// The next request. After `None`, the calling thread is done with the queue.
fn next(queue: &Queue) -> Option<Asked> {
    let mut line = queue.lock();
    let next = line.waiting.pop_front();
    line.busy = next.is_some();
    next
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::{Duration, Instant};

    use outboard_transport::Patience;

    use super::*;

    /// Only keeps a defect from hanging the tests.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Says what it was asked, and panics if that is 13.
    struct Says(Mutex<Sender<(u32, u8)>>);

    impl Answerer for Says {
        fn expects(&self, kind: u32, _ctx: ContextId) -> bool {
            kind == 1
        }

        fn answer(
            &self,
            kind: u32,
            ctx: ContextId,
            body: &mut Reader<'_>,
        ) -> Option<Result<Vec<u8>>> {
            if kind != 1 {
                return None;
            }
            let number = body.get().unwrap_or(u8::MAX);
            assert_ne!(number, 13, "on purpose");
            let _ = self.0.lock().send((ctx.0, number));
            Some(Ok(Vec::new()))
        }
    }

    fn requests(answerer: Says) -> Arc<Requests> {
        let requests = Requests::new(Arc::default(), vec![Arc::new(answerer)]);
        let patience = Patience::new(Duration::from_micros(50), Duration::from_millis(1));
        requests.threads.set(RequestThreads::new(patience)).unwrap();
        requests
    }

    #[test]
    fn requests_of_a_context_are_done_in_order() {
        let (say, said) = channel();
        let requests = requests(Says(Mutex::new(say)));
        [71, 72].into_iter().for_each(|ctx| requests.begin(ContextId(ctx)));
        for number in 0..20u8 {
            for ctx in [71, 72] {
                requests.asked(&Request {
                    number: 0,
                    kind: 1,
                    ctx: ContextId(ctx),
                    body: &[number],
                });
            }
            // Of nobody's kind: no harm done.
            requests.asked(&Request { number: 0, kind: 9, ctx: ContextId(71), body: &[] });
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
        requests.end(ContextId(71));
        assert_eq!(
            requests.queues.lock().len(),
            2,
            "those of the other context, and what is refused"
        );
        // Of a context that the program has not, nothing is done; it could have it again.
        requests.asked(&Request { number: 0, kind: 1, ctx: ContextId(71), body: &[76] });
        requests.begin(ContextId(71));
        requests.asked(&Request { number: 0, kind: 1, ctx: ContextId(71), body: &[77] });
        assert_eq!(said.recv_timeout(PATIENCE).unwrap(), (71, 77));
        let start = Instant::now();
        while requests.waiting.load(Ordering::Acquire) > 0 {
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        requests.end(ContextId(71));
        requests.end(ContextId(72));
    }

    #[test]
    fn what_nothing_expects_takes_one_thread_however_often_it_comes() {
        let (say, _said) = channel();
        let requests = requests(Says(Mutex::new(say)));
        let before = std::fs::read_dir("/proc/self/task").unwrap().count();
        for ctx in 5_000..7_000 {
            requests.asked(&Request { number: 0, kind: 1, ctx: ContextId(ctx), body: &[1] });
            requests.asked(&Request { number: 0, kind: ctx, ctx: ContextId(ctx), body: &[1] });
        }
        let after = std::fs::read_dir("/proc/self/task").unwrap().count();
        // Other tests of this process may start some at the same time.
        assert!(after < before + 100, "{before} threads became {after}");
        assert_eq!(requests.queues.lock().len(), 1);
    }
}
