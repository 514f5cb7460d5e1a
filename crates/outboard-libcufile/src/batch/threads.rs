//! Threads that make the transfers of batches. They begin with the first batch and never end.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;

use super::Batch;

/// How many there are.
const THREADS: usize = 4;

/// The way to the threads, and the process that has them.
static THREADS_OF: Mutex<Option<(u32, Sender<Arc<Batch>>)>> = Mutex::new(None);

/// The way to the threads: one makes the next transfer of a batch that it is given. `None` if there
/// are no threads to be had.
pub(super) fn way() -> Option<Sender<Arc<Batch>>> {
    let mut threads = THREADS_OF.lock();
    let own = std::process::id();
    // A child that was forked has none of its parent's threads.
    if threads.as_ref().is_none_or(|(of, _)| *of != own) {
        *threads = Some((own, start()?));
    }
    threads.as_ref().map(|(_, way)| way.clone())
}

fn start() -> Option<Sender<Arc<Batch>>> {
    let (way, batches) = channel();
    let batches = Arc::new(Mutex::new(batches));
    let started = (0..THREADS).filter(|_| {
        let batches = Arc::clone(&batches);
        outboard_threads::start("outboard-batch", move || serve(&batches)).is_ok()
    });
    (started.count() > 0).then_some(way)
}

fn serve(batches: &Mutex<Receiver<Arc<Batch>>>) {
    loop {
        let next = batches.lock().recv();
        match next {
            Ok(batch) => batch.make_next(),
            Err(_) => return,
        }
    }
}
