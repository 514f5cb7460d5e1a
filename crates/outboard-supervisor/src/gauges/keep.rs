//! Asks a worker for gauges as long as somebody reads them.

use std::rc::Rc;

use outboard_control::messages::{ToSupervisor, ToWorker, Watch};
use tokio::time::{sleep, timeout};

use super::{
    ANSWER_TIMEOUT, ENDS_UNREAD_AFTER, FRESH_FOR, Gauges, Over, PAUSE_AFTER_FAILURE, START_TIMEOUT,
};
use crate::changes::until;
use crate::supervisor::Supervisor;
use crate::workers::Worker;

impl Gauges {
    /// Requests gauges for each reader. Never ends.
    pub(crate) async fn keep(supervisor: Rc<Supervisor>) {
        let this = &supervisor.gauges;
        loop {
            this.asked.notified().await;
            if this.is_stopping.get() {
                until(&this.changed, || !this.is_stopping.get()).await;
            }
            this.has_worker.set(true);
            let over = this.ask(&supervisor).await;
            this.has_worker.set(false);
            this.changed.notify_waiters();
            if let Over::Failed(reason) = over {
                let seconds = PAUSE_AFTER_FAILURE.as_secs();
                tracing::warn!(
                    reason,
                    seconds,
                    "nobody can be told how the devices do; the next attempt waits"
                );
                sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }

    /// Starts a worker and asks it whenever a reader asks.
    async fn ask(&self, supervisor: &Supervisor) -> Over {
        let mut worker = match Worker::spawn(&supervisor.worker_order()) {
            Ok(worker) => worker,
            Err(error) => return Over::Failed(error.to_string()),
        };
        let over = tokio::select! {
            over = self.ask_worker(supervisor, &worker) => over,
            () = until(&self.changed, || self.is_stopping.get()) => Over::Unwanted,
        };
        worker.kill();
        // One that hangs in the system cannot be killed; there is to be no second one beside it.
        let _ = worker.wait().await;
        over
    }

    async fn ask_worker(&self, supervisor: &Supervisor, worker: &Worker) -> Over {
        let watch =
            Watch { supervisor: std::process::id(), platform: supervisor.warm.last_snapshot() };
        if let Err(error) =
            worker.send(&ToWorker::Watch(watch), Some(supervisor.sessions.shared_board()))
        {
            return Over::Failed(error.to_string());
        }
        let mut patience = START_TIMEOUT;
        loop {
            if let Err(error) = worker.send(&ToWorker::Look, None) {
                return Over::Failed(error.to_string());
            }
            let said = loop {
                match timeout(patience, worker.receive()).await {
                    Ok(Ok(Some((ToSupervisor::Calls, Some(listener))))) => {
                        let listener = listener.into_inner();
                        supervisor.sessions.calls().answer_for(worker.id(), listener);
                    }
                    said => break said,
                }
            };
            match said {
                Ok(Ok(Some((ToSupervisor::Gauges(devices), _)))) => self.take(devices),
                Ok(Ok(Some((ToSupervisor::Failed { sentence, .. }, _)))) => {
                    return Over::Failed(sentence);
                }
                Ok(Ok(Some(_))) => {
                    return Over::Failed(
                        "its worker said what only one with a client says".to_owned(),
                    );
                }
                Ok(Ok(None)) => return Over::Failed("its worker has ended".to_owned()),
                Ok(Err(error)) => return Over::Failed(error.to_string()),
                Err(_) => {
                    let seconds = patience.as_secs();
                    return Over::Failed(format!(
                        "the library that knows has not answered for {seconds} seconds"
                    ));
                }
            }
            patience = ANSWER_TIMEOUT;
            // Readers that have asked meanwhile use this answer, unless it is old.
            loop {
                if timeout(ENDS_UNREAD_AFTER, self.asked.notified()).await.is_err() {
                    return Over::Unwanted;
                }
                if self.age().is_none_or(|age| age >= FRESH_FOR) {
                    break;
                }
            }
        }
    }
}
