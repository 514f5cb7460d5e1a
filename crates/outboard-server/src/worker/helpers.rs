//! Threads that wait for the device, so that the dispatcher need not.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// A pool that grows by a thread whenever all are busy: each job waits for something, perhaps for another job's end.
#[derive(Clone)]
pub(crate) struct Helpers {
    idle: Arc<Mutex<Vec<Sender<Job>>>>,
}

impl Helpers {
    pub(crate) fn new() -> Helpers {
        Helpers { idle: Arc::default() }
    }

    /// Runs a job on a thread of its own, an idle one if there is one.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut job: Job = Box::new(job);
        loop {
            let thread = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(thread) = thread else { break };
            match thread.send(job) {
                Ok(()) => return,
                Err(returned) => job = returned.0,
            }
        }
        let (sender, receiver) = channel::<Job>();
        let idle = Arc::clone(&self.idle);
        let spawned =
            std::thread::Builder::new().name("waiter".into()).spawn(move || wait(&idle, &sender, &receiver, job));
        if let Err(error) = spawned {
            // The job's answer is dropped with it, which answers with an error.
            tracing::error!(%error, "no thread to wait for the device");
        }
    }
}

fn wait(idle: &Mutex<Vec<Sender<Job>>>, own: &Sender<Job>, jobs: &Receiver<Job>, first: Job) {
    first();
    loop {
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(own.clone());
        match jobs.recv() {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}
