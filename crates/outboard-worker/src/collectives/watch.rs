//! Sees when a communicator fails by itself, and tells the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outboard_wire::collectives::CommFailure;
use outboard_wire::notice::COMM_FAILED;

use super::{Comm, Comms, Library};
use crate::io::Replier;

/// How often communicators are asked.
const EVERY: Duration = Duration::from_millis(500);

/// The thread that does, while there are communicators.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<AtomicBool>);

impl Watch {
    /// There is a communicator: a thread watches from now on.
    pub(crate) fn begin(&self, library: &Arc<Library>, comms: &Comms, replier: &Replier) {
        if self.0.swap(true, Ordering::AcqRel) {
            return;
        }
        let (library, comms, replier) = (Arc::clone(library), Arc::clone(comms), replier.clone());
        let spawned = std::thread::Builder::new()
            .name("communicators".into())
            .spawn(move || watch(&library, &comms, &replier));
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread to watch communicators");
        }
    }
}

fn watch(library: &Library, comms: &Comms, replier: &Replier) {
    loop {
        std::thread::sleep(EVERY);
        let Ok(nccl) = library.get() else { continue };
        let all: Vec<Arc<Comm>> = comms.lock().values().cloned().collect();
        for comm in all {
            if let Some(news) = comm.news(nccl) {
                tell(replier, &comm, news, nccl.sentence(news));
            }
        }
    }
}

/// Tells the client what has become of a communicator.
pub(crate) fn tell(replier: &Replier, comm: &Comm, result: u32, sentence: String) {
    let failure = CommFailure { comm: comm.name, result, sentence };
    // A client that is gone need not know.
    let _ = replier.notice(COMM_FAILED, |writer| writer.put(&failure));
}
