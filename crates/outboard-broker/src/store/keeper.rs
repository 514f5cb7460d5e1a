//! A thread that keeps changes: a disk takes its time, and what comes meanwhile is written at once.

use super::{Store, StoreError};
use crate::desk::Change;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// The most jobs that are written at once.
const AT_ONCE: usize = 1024;

struct Job {
    changes: Vec<Change>,
    is_kept: oneshot::Sender<()>,
}

/// Where changes are handed in.
#[derive(Debug)]
pub struct Keeper {
    jobs: Sender<Job>,
    failed: oneshot::Receiver<StoreError>,
}

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If there can be no other thread.
    pub fn start(store: Store) -> std::io::Result<Keeper> {
        let (jobs, queue) = channel();
        let (fail, failed) = oneshot::channel();
        std::thread::Builder::new().name("keeper".into()).spawn(move || {
            if let Err(error) = work(&store, &queue) {
                // Nobody may be left to tell.
                let _ = fail.send(error);
            }
        })?;
        Ok(Keeper { jobs, failed })
    }

    /// Returns once these changes, and all that were handed in before, are on the disk. `false` if
    /// they cannot be kept: then nothing can be from now on.
    pub fn keep(&self, changes: Vec<Change>) -> impl Future<Output = bool> + use<> {
        let (is_kept, kept) = oneshot::channel();
        // Without a thread the answer is that nothing is kept.
        let _ = self.jobs.send(Job { changes, is_kept });
        async { kept.await.is_ok() }
    }

    /// Returns if changes cannot be kept any more, and why.
    pub async fn failed(&mut self) -> Option<StoreError> {
        (&mut self.failed).await.ok()
    }
}

fn work(store: &Store, queue: &Receiver<Job>) -> Result<(), StoreError> {
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
