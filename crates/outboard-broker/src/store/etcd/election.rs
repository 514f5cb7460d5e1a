//! Which broker leads.

use super::address::Cluster;
use super::calls::{Condition, Step};
use super::clock::now;
use super::kept::EtcdStore;
use super::line::{EtcdError, Line};
use super::records;
use crate::desk::Keys;
use crate::store::StoreError;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// For how many seconds a leader is not succeeded unless it says that it is there; etcd makes more
/// of it if its members take longer to agree.
const TERM_SECONDS: i64 = 2;
/// A leader stops answering so long before another one may lead.
const MARGIN: Duration = Duration::from_millis(200);
/// How often a leader says that it is there, in parts of its term.
const RENEWALS: u32 = 5;
/// A leader that etcd does not hear for so long stands by: those who wait ask again.
const GIVES_UP_AFTER: Duration = Duration::from_secs(10);

/// What the leader says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Leader {
    /// Where it is.
    url: String,
    lease: i64,
}

/// A broker that would lead if nobody did.
#[derive(Debug)]
pub struct Candidate {
    cluster: Cluster,
    line: Line,
    /// Where it is reached.
    url: String,
}

/// That this broker leads, as long as it does.
#[derive(Debug)]
pub struct Leadership {
    lease: i64,
    /// Until then nobody else leads, by the clock of this machine.
    sure_until: Cell<Duration>,
    term: Duration,
    is_over: Arc<AtomicBool>,
    cluster: Cluster,
}

impl Candidate {
    /// A broker that is reached there.
    #[must_use]
    pub fn new(cluster: Cluster, url: String) -> Candidate {
        Candidate { line: Line::new(cluster.clone()), cluster, url }
    }

    /// Where the broker is that leads, if one does.
    ///
    /// # Errors
    ///
    /// If etcd does not answer.
    pub async fn leader(&mut self) -> Result<Option<String>, EtcdError> {
        let found = self.line.get(&records::leader(self.line.prefix())).await?;
        let url = |value: &[u8]| serde_json::from_slice(value).map(|leader: Leader| leader.url);
        Ok(found.map(|entry| url(&entry.value).unwrap_or_default()))
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

    /// Leads, if nobody does.
    ///
    /// # Errors
    ///
    /// If etcd does not answer, or what is there is of another release.
    pub async fn stand(&mut self) -> Result<Option<(Leadership, EtcdStore)>, StandError> {
        let begun = now();
        let (lease, seconds) = self.line.grant(TERM_SECONDS).await?;
        let elected = self.elect(lease).await;
        if !matches!(elected, Ok(Some(_))) {
            // If it does not hear of it, the lease ends by itself.
            let _ = self.line.revoke(lease).await;
        }
        let Some(revision) = elected? else { return Ok(None) };
        let term = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let leadership = Leadership {
            lease,
            sure_until: Cell::new(begun + term.saturating_sub(MARGIN)),
            term,
            is_over: Arc::clone(&is_over),
            cluster: self.cluster.clone(),
        };
        let line = Line::new(self.cluster.clone());
        let store = EtcdStore::open(line, lease, revision, is_over).map_err(StandError::Store)?;
        Ok(Some((leadership, store)))
    }

    async fn elect(&mut self, lease: i64) -> Result<Option<i64>, EtcdError> {
        let prefix = self.line.prefix().to_owned();
        let leader = records::leader(&prefix);
        let said = serde_json::to_vec(&Leader { url: self.url.clone(), lease })
            .map_err(|error| EtcdError::Away(error.to_string()))?;
        let steps = [
            Step::Put(leader.clone().into_bytes(), said, Some(lease)),
            Step::Put(records::written(&prefix).into_bytes(), records::turn(lease, 0), None),
        ];
        let nobody = [Condition::Made(leader.clone(), 0)];
        let outcome = self.line.transact(&nobody, &steps, &leader).await?;
        Ok(outcome.is_done.then_some(outcome.revision))
    }

    /// Says that the broker leads until another one does.
    ///
    /// Returns once it does not any more, and why.
    pub async fn hold(&mut self, leadership: &Leadership) -> String {
        loop {
            sleep(leadership.term / RENEWALS).await;
            let asked = now();
            match self.line.keep_alive(leadership.lease).await {
                Ok(Some(seconds)) => {
                    let good = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
                    leadership.sure_until.set(asked + good.saturating_sub(MARGIN));
                }
                Ok(None) => return leadership.end("etcd has not heard of it for too long".into()),
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
        let revoked = Line::new(self.cluster.clone()).revoke(self.lease).await;
        if let Err(error) = revoked {
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
