//! A thread that keeps changes: a disk takes its time, and what comes meanwhile is written at once.

use super::{Store, StoreError};
use crate::desk::Change;
use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// The most jobs that are written at once.
const AT_ONCE: usize = 1024;

#[derive(Debug)]
struct Job {
    changes: Vec<Change>,
    is_kept: oneshot::Sender<()>,
}

/// Where changes are handed in.
#[derive(Debug)]
pub struct Keeper {
    /// Until it is closed.
    jobs: RefCell<Option<Sender<Job>>>,
}

/// Hears of a keeper's end.
#[derive(Debug)]
pub struct Failed(oneshot::Receiver<Option<StoreError>>);

impl Failed {
    /// Why changes could not be kept any more, if so. Returns once the keeper has ended.
    pub async fn wait(self) -> Option<StoreError> {
        self.0.await.ok().flatten()
    }
}

impl Keeper {
    /// Starts the thread, which ends with the keeper or if changes cannot be kept.
    ///
    /// # Errors
    ///
    /// If there can be no other thread.
    pub fn start(mut store: Store) -> std::io::Result<(Keeper, Failed)> {
        let (jobs, queue) = channel();
        let (fail, failed) = oneshot::channel();
        std::thread::Builder::new().name("keeper".into()).spawn(move || {
            // Nobody may be left to tell.
            let _ = fail.send(work(&mut store, &queue).err());
        })?;
        Ok((Keeper { jobs: RefCell::new(Some(jobs)) }, Failed(failed)))
    }

    /// Returns once these changes, and all that were handed in before, are kept. `false` if
    /// they cannot be kept: then nothing can be from now on.
    pub fn keep(&self, changes: Vec<Change>) -> impl Future<Output = bool> + use<> {
        let (is_kept, kept) = oneshot::channel();
        if let Some(jobs) = &*self.jobs.borrow() {
            // Without a thread the answer is that nothing is kept.
            let _ = jobs.send(Job { changes, is_kept });
        }
        async { kept.await.is_ok() }
    }

    /// The thread ends once it has kept what was handed in. Nothing is kept from now on.
    pub fn close(&self) {
        self.jobs.take();
    }
}

fn work(store: &mut Store, queue: &Receiver<Job>) -> Result<(), StoreError> {
    while let Ok(first) = queue.recv() {
        let more = queue.try_iter().take(AT_ONCE - 1);
        let jobs: Vec<Job> = std::iter::once(first).chain(more).collect();
        let mut changes = jobs.iter().flat_map(|job| &job.changes).peekable();
        if changes.peek().is_some() {
            store.keep(changes)?;
        }
        for job in jobs {
            // Who has stopped waiting need not know.
            let _ = job.is_kept.send(());
        }
    }
    Ok(())
}

/// What was handed in to a keeper without a thread, in a test that says when it is kept.
#[cfg(test)]
pub(crate) struct ByHand(Receiver<Job>);

#[cfg(test)]
impl ByHand {
    pub(crate) fn keeper() -> (Keeper, ByHand) {
        let (jobs, queue) = channel();
        (Keeper { jobs: RefCell::new(Some(jobs)) }, ByHand(queue))
    }

    /// Says of what was handed in first that it is kept.
    pub(crate) fn keep_one(&self) {
        let job = self.0.try_recv().expect("something was handed in");
        // Nobody may wait for it.
        let _ = job.is_kept.send(());
    }
}
