//! Which broker leads.

use super::address::Cluster;
use super::calls::{Condition, Entry, Step};
use super::clock::now;
use super::kept::EtcdStore;
use super::line::{EtcdError, Line};
use super::records;
use crate::desk::Keys;
use crate::store::StoreError;
use outboard_transport::random;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// A leader that has said nothing for so long is succeeded.
const TERM: Duration = Duration::from_millis(2200);
/// It stops answering so long before.
const MARGIN: Duration = Duration::from_millis(300);
/// How often it says that it is there.
const PULSE: Duration = Duration::from_millis(400);
/// A leader can speak only while etcd answers. So one is succeeded only if etcd has done so for so
/// long: after an election of etcd's own, the leader before goes on.
const STEADY: Duration = Duration::from_millis(900);
/// A leader that etcd does not hear for so long stands by: those who wait ask again.
const GIVES_UP_AFTER: Duration = Duration::from_secs(10);

/// What the leader says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Leader {
    /// Where it is.
    url: String,
}

/// Another broker that leads, as it was last seen.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// At which revision it has begun; 0, if there is none.
    begun: i64,
    /// At which revision it has said last that it is there.
    said: i64,
}

/// A broker that would lead if nobody did.
#[derive(Debug)]
pub struct Candidate {
    cluster: Cluster,
    line: Line,
    /// Where it is reached.
    url: String,
    /// Who leads, and since when nothing new was heard of it.
    seen: Option<(Seen, Duration)>,
    /// Since when etcd has always answered.
    steady: Option<Duration>,
}

/// That this broker leads, as long as it does.
#[derive(Debug)]
pub struct Leadership {
    /// At which revision it has begun.
    begun: i64,
    /// Until then nobody else leads, by the clock of this machine.
    sure_until: Cell<Duration>,
    is_over: Arc<AtomicBool>,
    cluster: Cluster,
}

impl Candidate {
    /// A broker that is reached there.
    #[must_use]
    pub fn new(cluster: Cluster, url: String) -> Candidate {
        let line = Line::new(cluster.clone());
        Candidate { cluster, line, url, seen: None, steady: None }
    }

    /// Where the broker is that leads, if one does.
    ///
    /// # Errors
    ///
    /// If etcd does not answer.
    pub async fn leader(&mut self) -> Result<Option<String>, EtcdError> {
        let prefix = self.line.prefix().to_owned();
        let (who, alive) = (records::leader(&prefix), records::alive(&prefix));
        let from = who.clone().into_bytes();
        let both = self.line.page((&from, &records::behind(&from)), 2).await;
        let (entries, _) = both.inspect_err(|_| self.steady = None)?;
        // What was seen was so before: from now on it is waited for something new.
        let now = now();
        self.steady.get_or_insert(now);
        let find = |key: &str| entries.iter().find(|entry| entry.key == key.as_bytes());
        let revision = |entry: Option<&Entry>| entry.map_or(0, |entry| entry.revision);
        let seen = Seen { begun: revision(find(&who)), said: revision(find(&alive)) };
        if self.seen.as_ref().is_none_or(|(before, _)| *before != seen) {
            self.seen = Some((seen, now));
        }
        let url = |entry: &Entry| serde_json::from_slice(&entry.value).map(|it: Leader| it.url);
        Ok(find(&who).map(|entry| url(entry).unwrap_or_default()))
    }

    /// The keys of leases that servers know.
    ///
    /// # Errors
    ///
    /// If etcd does not answer.
    pub async fn keys(&mut self) -> Result<Option<Keys>, EtcdError> {
        let found = self.line.get(&records::keys(self.line.prefix())).await?;
        Ok(found.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
    }

    /// Leads, if nobody does, or nothing is heard of who did.
    ///
    /// # Errors
    ///
    /// If etcd does not answer, or the system does not play along.
    pub async fn stand(&mut self) -> Result<Option<(Leadership, EtcdStore)>, StandError> {
        let is_led = self.leader().await?.is_some();
        let Some((seen, since)) = &self.seen else { return Ok(None) };
        let is_long = |since: Duration, time: Duration| now().saturating_sub(since) >= time;
        let is_steady = self.steady.is_some_and(|since| is_long(since, STEADY));
        if is_led && !(is_long(*since, TERM) && is_steady) {
            return Ok(None);
        }
        let term = random().map(u64::from_le_bytes);
        let term =
            term.map_err(|error| StandError::Store(StoreError::Strange(error.to_string())))?;
        let prefix = self.line.prefix();
        let (who, alive) = (records::leader(prefix), records::alive(prefix));
        let written = records::written(prefix);
        let said = serde_json::to_vec(&Leader { url: self.url.clone() });
        let said =
            said.map_err(|error| StandError::Store(StoreError::Strange(error.to_string())))?;
        let conditions = [
            Condition::Unchanged(who.clone(), seen.begun),
            Condition::Unchanged(alive.clone(), seen.said),
        ];
        let steps = [
            Step::Put(who.clone().into_bytes(), said),
            Step::Put(alive.into_bytes(), Vec::new()),
            Step::Put(written.into_bytes(), records::turn(term, 0)),
        ];
        let begun = now();
        let outcome = self.line.transact(&conditions, &steps, &who).await?;
        if !outcome.is_done {
            return Ok(None);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let leadership = Leadership {
            begun: outcome.revision,
            sure_until: Cell::new(begun + TERM.saturating_sub(MARGIN)),
            is_over: Arc::clone(&is_over),
            cluster: self.cluster.clone(),
        };
        let line = Line::new(self.cluster.clone());
        let store = EtcdStore::open(line, term, outcome.revision, is_over);
        Ok(Some((leadership, store.map_err(StandError::Store)?)))
    }

    /// Says that the broker leads until another one does.
    ///
    /// Returns once it does not any more, and why.
    pub async fn hold(&mut self, leadership: &Leadership) -> String {
        let prefix = self.line.prefix().to_owned();
        let (who, alive) = (records::leader(&prefix), records::alive(&prefix));
        let conditions = [Condition::Unchanged(who.clone(), leadership.begun)];
        let steps = [Step::Put(alive.into_bytes(), Vec::new())];
        loop {
            sleep(PULSE).await;
            let asked = now();
            match self.line.transact(&conditions, &steps, &who).await {
                Ok(outcome) if outcome.is_done => {
                    leadership.sure_until.set(asked + TERM.saturating_sub(MARGIN));
                }
                Ok(_) => return leadership.end("etcd has not heard of it for too long".into()),
                Err(error) => {
                    let silent = now().saturating_sub(leadership.sure_until.get());
                    if silent > GIVES_UP_AFTER {
                        return leadership.end(error.to_string());
                    }
                    tracing::warn!(%error, is_sure = leadership.is_sure(), "etcd has not heard that this broker leads");
                }
            }
        }
    }
}

impl Leadership {
    /// Whether nobody else leads, so that what this broker knows is true.
    pub fn is_sure(&self) -> bool {
        now() < self.sure_until.get() && !self.is_over.load(Ordering::Relaxed)
    }

    /// Lets another broker lead at once.
    pub async fn resign(&self) {
        self.end(String::new());
        let mut line = Line::new(self.cluster.clone());
        let prefix = line.prefix();
        let (who, alive) = (records::leader(prefix), records::alive(prefix));
        let conditions = [Condition::Unchanged(who.clone(), self.begun)];
        let steps = [Step::Remove(who.clone().into_bytes()), Step::Remove(alive.into_bytes())];
        if let Err(error) = line.transact(&conditions, &steps, &who).await {
            tracing::debug!(%error, "etcd has not heard that this broker does not lead any more");
        }
    }

    fn end(&self, reason: String) -> String {
        self.is_over.store(true, Ordering::Relaxed);
        reason
    }
}

/// Why nobody knows whether this broker leads.
#[derive(Debug, thiserror::Error)]
pub enum StandError {
    /// etcd does not answer.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The system does not play along.
    #[error(transparent)]
    Store(StoreError),
}
