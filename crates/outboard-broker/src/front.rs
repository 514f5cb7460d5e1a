//! The broker as its callers meet it: it leads, or another one does.

use crate::service::Service;
use crate::store::Leadership;
use outboard_auth::tokens::Known;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// How long a broker that ends may take to keep what it has yet to keep.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How often is looked whether this broker is sure to lead.
const LOOKS: Duration = Duration::from_millis(50);

/// What is there as long as the broker runs.
pub(crate) struct Front {
    tokens: Rc<Known>,
    part: RefCell<Part>,
    /// Tells those who wait that the part has changed.
    changed: Notify,
}

/// What the broker does.
enum Part {
    /// It leads; one that is alone does so without having to be elected.
    Leads(Rc<Service>, Option<Rc<Leadership>>),
    StandsBy(StandsBy),
}

/// This broker does not lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StandsBy {
    /// Where the one is that does, as far as that is known.
    pub(crate) leader: Option<String>,
}

impl fmt::Display for StandsBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.leader {
            Some(leader) => write!(
                f,
                "this broker stands by, and the one at {leader} leads: name all brokers of the \
                 pool, with commas between them"
            ),
            None => f.write_str(
                "this broker stands by, and none of the pool is known to lead: ask again in a few \
                 seconds",
            ),
        }
    }
}

impl Front {
    pub(crate) fn new(tokens: Known) -> Front {
        let part = RefCell::new(Part::StandsBy(StandsBy::default()));
        Front { tokens: Rc::new(tokens), part, changed: Notify::new() }
    }

    pub(crate) fn tokens(&self) -> &Rc<Known> {
        &self.tokens
    }

    /// The service, if this broker is sure to lead.
    pub(crate) fn service(&self) -> Result<Rc<Service>, StandsBy> {
        match &*self.part.borrow() {
            Part::Leads(service, leadership) => {
                let is_sure = leadership.as_ref().is_none_or(|leadership| leadership.is_sure());
                is_sure.then(|| Rc::clone(service)).ok_or_else(StandsBy::default)
            }
            Part::StandsBy(other) => Err(other.clone()),
        }
    }

    /// Has those who wait turn to another broker whenever this one is not sure to lead any more.
    /// Never ends.
    pub(crate) async fn watch(&self, leadership: &Leadership) {
        let mut was_sure = true;
        loop {
            sleep(LOOKS).await;
            let is_sure = leadership.is_sure();
            if was_sure && !is_sure {
                self.changed.notify_waiters();
            }
            was_sure = is_sure;
        }
    }

    /// Returns once this broker is not sure to lead any more, or leads anew.
    pub(crate) fn change(&self) -> impl Future<Output = ()> {
        self.changed.notified()
    }

    fn play(&self, part: Part) {
        *self.part.borrow_mut() = part;
        self.changed.notify_waiters();
    }

    pub(crate) fn lead(&self, service: Rc<Service>, leadership: Option<Rc<Leadership>>) {
        self.play(Part::Leads(service, leadership));
    }

    pub(crate) fn stand_by(&self, leader: Option<String>) {
        let now = StandsBy { leader };
        if !matches!(&*self.part.borrow(), Part::StandsBy(before) if *before == now) {
            self.play(Part::StandsBy(now));
        }
    }

    /// Has the service do something, if there is one, whether or not it is sure to lead.
    pub(crate) fn with_service(&self, what: impl FnOnce(&Service)) {
        if let Part::Leads(service, _) = &*self.part.borrow() {
            what(service);
        }
    }

    /// Keeps what there is to keep, and lets another broker lead at once.
    pub(crate) async fn finish(&self) {
        let before = self.part.replace(Part::StandsBy(StandsBy::default()));
        let Part::Leads(service, leadership) = before else { return };
        if timeout(LAST_WORDS, service.finish()).await.is_err() {
            tracing::warn!("what owners have had lately cannot be kept");
        }
        if let Some(leadership) = leadership {
            leadership.resign().await;
        }
    }
}
