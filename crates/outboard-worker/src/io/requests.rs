//! Requests to the client, and the threads that wait for their answers.
//!
//! A request is a notice; its answer comes on a lane, since the dispatcher may be in a driver call
//! that ends only when the answer is there: a launch into a stream that is full, behind a function
//! of the client's program.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use parking_lot::{Condvar, Mutex};

/// How long a thread that waits for an answer stays awake.
const SPIN: Duration = Duration::from_micros(50);

/// The requests of a session that have not been answered.
#[derive(Debug, Clone, Default)]
pub struct Requests(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    open: HashMap<u64, OpenRequest>,
}

#[derive(Debug)]
pub(super) struct OpenRequest {
    /// Most bytes of the answer.
    max_bytes: usize,
    slot: Arc<AnswerSlot>,
}

/// The memory for an answer.
#[derive(Debug, Default)]
struct AnswerSlot {
    answer: Mutex<Option<(u32, Vec<u8>)>>,
    is_filled: AtomicBool,
    changed: Condvar,
}

/// A request that has been made: its holder may wait for the answer.
#[derive(Debug)]
pub struct PendingAnswer {
    number: u64,
    slot: Arc<AnswerSlot>,
}

impl Requests {
    /// A new request, whose answer has at most `most` bytes.
    pub(super) fn open(&self, max_bytes: usize) -> PendingAnswer {
        let mut table = self.0.lock();
        table.last += 1;
        let (number, slot) = (table.last, Arc::new(AnswerSlot::default()));
        table.open.insert(number, OpenRequest { max_bytes, slot: Arc::clone(&slot) });
        PendingAnswer { number, slot }
    }

    /// Whether an answer of `len` bytes may come.
    pub(super) fn expects(&self, number: u64, len: usize) -> bool {
        self.0.lock().open.get(&number).is_some_and(|open| len <= open.max_bytes)
    }

    /// An answer of `len` bytes has come: whose it is. `None` if the client broke the rules.
    pub(super) fn answered(&self, number: u64, len: usize) -> Option<OpenRequest> {
        self.0.lock().open.remove(&number).filter(|open| len <= open.max_bytes)
    }
}

impl OpenRequest {
    pub(super) fn deliver(self, status: u32, body: Vec<u8>) {
        *self.slot.answer.lock() = Some((status, body));
        self.slot.is_filled.store(true, Ordering::Release);
        self.slot.changed.notify_all();
    }
}

impl PendingAnswer {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Waits for the answer, without a limit: if the client goes, so does this process.
    pub fn wait(self) -> Result<Vec<u8>, CUresult> {
        let start = Instant::now();
        while !self.slot.is_filled.load(Ordering::Acquire) && start.elapsed() < SPIN {
            std::thread::yield_now();
        }
        // The client of a fuzz target is nowhere, and the target's thread is the only one.
        if cfg!(fuzzing) && !self.slot.is_filled.load(Ordering::Acquire) {
            return Err(CUresult::CUDA_ERROR_UNKNOWN);
        }
        let mut answer = self.slot.answer.lock();
        loop {
            match answer.take() {
                Some((0, body)) => return Ok(body),
                Some((status, _)) => return Err(CUresult(status)),
                None => self.slot.changed.wait(&mut answer),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_finds_its_request_once() {
        let requests = Requests::default();
        let (first, second) = (requests.open(4), requests.open(4));
        assert!(requests.answered(second.number(), 5).is_none(), "longer than may be");
        let second = requests.open(4);
        requests.answered(second.number(), 2).unwrap().deliver(0, vec![1, 2]);
        let number = first.number();
        let waiting = std::thread::spawn(move || first.wait());
        requests.answered(number, 0).unwrap().deliver(201, Vec::new());
        assert_eq!(waiting.join().unwrap(), Err(CUresult(201)));
        assert_eq!(second.wait(), Ok(vec![1, 2]));
        assert!(requests.answered(number, 0).is_none() && requests.answered(99, 0).is_none());
    }
}
