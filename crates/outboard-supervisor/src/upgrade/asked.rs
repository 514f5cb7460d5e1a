//! Administrators who have asked for an upgrade and wait for its outcome.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use outboard_wire::Code;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::admin::{Answer, Becoming};

/// How long an upgrade waits for its asker to have been told.
const TELL: Duration = Duration::from_secs(2);

/// A message for the administrator who asked.
pub(crate) struct Step {
    pub(crate) answer: Answer,
    /// For when that was passed on.
    pub(crate) passed_on: oneshot::Sender<()>,
}

/// The origin of a request for an upgrade; no administrator waits for one that a signal requested.
pub(crate) struct Asker(Option<mpsc::UnboundedSender<Step>>);

impl Asker {
    /// A signal.
    pub(crate) fn signal() -> Asker {
        Asker(None)
    }

    /// The process is about to become the other program.
    pub(crate) async fn becomes(&self, becoming: impl FnOnce() -> Becoming) {
        self.tell(|| Answer::Becomes(becoming())).await;
    }

    /// Nothing has changed.
    pub(crate) async fn stays(&self, reason: &str) {
        self.tell(|| Answer::Error(not_upgraded(reason))).await;
    }

    /// Returns when that was passed on, or after a while: the administrator may have disconnected.
    async fn tell(&self, answer: impl FnOnce() -> Answer) {
        let Some(asker) = &self.0 else { return };
        let (passed_on, told) = oneshot::channel();
        if asker.send(Step { answer: answer(), passed_on }).is_ok() {
            let _ = timeout(TELL, told).await;
        }
    }
}

fn not_upgraded(reason: &str) -> String {
    Code::NotUpgraded.end(&format!("the server is not upgraded and goes on as it is: {reason}"))
}

/// The queue of requests for upgrades.
pub(crate) struct Counter {
    askers: RefCell<Option<mpsc::UnboundedSender<Asker>>>,
    is_under_way: Cell<bool>,
}

impl Counter {
    /// The counter, and what is asked for at it.
    pub(crate) fn open() -> (Counter, mpsc::UnboundedReceiver<Asker>) {
        let (askers, asked) = mpsc::unbounded_channel();
        (Counter { askers: RefCell::new(Some(askers)), is_under_way: Cell::new(false) }, asked)
    }

    /// An upgrade begins; it is under way for as long as the result lives.
    pub(crate) fn begin(&self) -> impl Drop + '_ {
        struct UnderWay<'a>(&'a Cell<bool>);
        impl Drop for UnderWay<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        self.is_under_way.set(true);
        UnderWay(&self.is_under_way)
    }

    /// The server is stopping.
    pub(crate) fn close(&self) {
        self.askers.borrow_mut().take();
    }

    /// Asks for an upgrade: what becomes of it, or why it is not even tried.
    pub(crate) fn ask(&self) -> Result<mpsc::UnboundedReceiver<Step>, String> {
        if self.is_under_way.get() {
            return Err(not_upgraded(
                "it is about to become another release already; ask again when that has come to an end",
            ));
        }
        let (asker, steps) = mpsc::unbounded_channel();
        let asked = self
            .askers
            .borrow()
            .as_ref()
            .is_some_and(|askers| askers.send(Asker(Some(asker))).is_ok());
        if asked { Ok(steps) } else { Err(not_upgraded("it is stopping")) }
    }
}
