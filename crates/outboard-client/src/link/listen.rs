//! Hearing requests: while the worker may ask something, somebody must read even when no thread of the program waits for an answer.
//!
//! The listener is a thread that exists from the first [`Expectation`] on and sleeps while there is none. It only waits for bytes; whoever
//! holds the right to read takes them, so a thread that waits for its answer still reads it itself.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use outboard_transport::{Interest, PEER_CHECK, Readiness};

use super::bulk;
use super::shared::{Shared, lock, try_lock};
use super::{LinkError, thread};

/// How many things are under way that may make the worker ask.
#[derive(Debug, Default)]
pub(super) struct Listening {
    expected: AtomicUsize,
    started: AtomicBool,
    /// Guards the start of the thread and its sleep.
    state: Mutex<()>,
    changed: Condvar,
}

/// The worker may ask something as long as this lives.
#[derive(Debug)]
pub struct Expectation {
    shared: Arc<Shared>,
}

/// Answers requests, from any thread.
#[derive(Debug, Clone)]
pub struct Answers {
    shared: Arc<Shared>,
}

impl Listening {
    /// Whether anything is expected.
    pub(super) fn is_on(&self) -> bool {
        self.expected.load(Ordering::Acquire) > 0
    }

    /// The link is gone: the thread ends.
    pub(super) fn lose(&self) {
        let _state = lock(&self.state);
        self.changed.notify_all();
    }
}

/// Makes sure that requests are heard and can be answered.
pub(super) fn expect(shared: &Arc<Shared>) -> Result<Expectation, LinkError> {
    let listening = &shared.listening;
    if !listening.started.load(Ordering::Acquire) {
        // Answers travel on lanes.
        bulk::open_lanes(shared)?;
        if let Err(error) = start(shared) {
            shared.lose(&format!("a thread cannot be started: {error}"));
            return Err(shared.lost());
        }
    }
    if listening.expected.fetch_add(1, Ordering::AcqRel) == 0 {
        let _state = lock(&listening.state);
        listening.changed.notify_all();
    }
    Ok(Expectation { shared: Arc::clone(shared) })
}

/// Starts the thread, once.
fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let _state = lock(&shared.listening.state);
    if !shared.listening.started.load(Ordering::Acquire) {
        let listener = Arc::clone(shared);
        thread::start("outboard-listen".to_owned(), move || run(&listener))?;
        shared.listening.started.store(true, Ordering::Release);
    }
    Ok(())
}

impl Drop for Expectation {
    fn drop(&mut self) {
        // The thread notices when it next looks.
        self.shared.listening.expected.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Answers {
    pub(super) fn new(shared: &Arc<Shared>) -> Answers {
        Answers { shared: Arc::clone(shared) }
    }

    /// Answers request `number` with a CUresult and at most [`MAX_ANSWER`](outboard_wire::request::MAX_ANSWER) bytes. The connection may be
    /// gone, in which case nobody waits for it.
    pub fn answer(&self, number: u64, status: u32, body: &[u8]) {
        if let Err(error) = bulk::answer(&self.shared, number, status, body) {
            self.shared.lose_to(&error);
        }
    }
}

fn run(shared: &Shared) {
    while !shared.is_lost() {
        if !shared.listening.is_on() {
            let mut state = lock(&shared.listening.state);
            while !shared.listening.is_on() && !shared.is_lost() {
                state = shared.listening.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            continue;
        }
        if let Err(error) = shared.listen() {
            shared.lose_to(&error);
        }
    }
}

impl Shared {
    /// Waits for bytes and reads them, unless another thread reads: then, until it has stopped.
    fn listen(&self) -> io::Result<()> {
        let ready = self.stream.wait(Interest::READ, None, Some(PEER_CHECK))?;
        if ready == Readiness::default() {
            return self.stream.check_peer();
        }
        match try_lock(&self.read) {
            Some(mut incoming) => {
                let result = self.read_some(&mut incoming);
                drop(incoming);
                self.pass_leadership();
                result.map(drop)
            }
            None => {
                drop(lock(&self.read));
                self.pass_leadership();
                Ok(())
            }
        }
    }
}
