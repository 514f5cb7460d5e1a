//! Beats: a server of a pool tells the broker about once a second how it is and which leases it
//! has in use, and hears which have ended, which are renewed, and whose signature to believe.
//!
//! A broker that is away changes nothing for sessions until their leases end.

mod describe;
mod failures;
mod line;
mod sign_off;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use outboard_pool::api::{Beat, BeatAnswer, LEASES_OF_A_SERVER};
use outboard_pool::lease::PublicKey;
use outboard_pool::words::{Condition, LeaseNumber};
use tokio::time::timeout;

use self::failures::Failures;
use self::line::Line;
pub(crate) use self::sign_off::SignOff;
use crate::lease_ends::end_sessions_of_those_over;
use crate::pool::{Broker, Pool, PoolError};
use crate::supervisor::Supervisor;

/// How often the server says how it is, whatever the broker would like.
const LEAST_PAUSE: Duration = Duration::from_millis(200);
const MOST_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a beat that failed, which doubles up to the other.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// How old the load of the devices may be: a GPU that is asked has to answer.
const LOAD_FRESH_FOR: Duration = Duration::from_secs(5);
/// Keys that a broker may have.
const MOST_KEYS: usize = 16;

/// The beats of a server.
pub(crate) struct Beats {
    broker: Broker,
    line: Line,
    /// Where clients reach the server.
    address: String,
    /// Leases that the broker has ended, and of which it has not heard that they are gone.
    ended: Vec<LeaseNumber>,
    /// Tells this start of the server from others.
    start: Option<u64>,
    failures: Failures,
    /// What the broker has last failed with.
    failing: Option<String>,
    sign_off: Rc<SignOff>,
}

impl Beats {
    /// For a server that listens there, with its state in that folder.
    pub(crate) fn new(
        broker: &Broker,
        listens: SocketAddr,
        state: Option<&Path>,
    ) -> Result<Beats, PoolError> {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let line = Line::new(broker.access()?, Broker::key(state)?);
        let address =
            broker.address.clone().unwrap_or_else(|| describe::reached_at(listens, &machine));
        let broker = broker.clone();
        Ok(Beats {
            broker,
            line,
            address,
            ended: Vec::new(),
            // Without one it hears again and again of all that are over.
            start: outboard_transport::random().ok().map(u64::from_le_bytes),
            failures: Failures::default(),
            failing: None,
            sign_off: Rc::default(),
        })
    }

    /// What a server that stops waits for.
    pub(crate) fn sign_off(&self) -> Rc<SignOff> {
        Rc::clone(&self.sign_off)
    }

    /// Beats. Never ends.
    pub(crate) async fn run(mut self, supervisor: Rc<Supervisor>, pool: Rc<Pool>) {
        let mut retry = FIRST_RETRY;
        // Another broker leads soon.
        let most = if self.broker.urls.count() > 1 { FIRST_RETRY } else { MOST_PAUSE };
        loop {
            let draining = supervisor.drain.has_begun();
            let beat = self.beat(&supervisor, &pool, draining).await;
            let pause = match self.line.beat(&beat).await {
                Ok(answer) => {
                    self.went_well();
                    self.sign_off.is_heard(draining);
                    retry = FIRST_RETRY;
                    let next = Duration::from_millis(answer.next_ms.into());
                    self.hear(answer, &supervisor, &pool);
                    next.clamp(LEAST_PAUSE, MOST_PAUSE)
                }
                Err(reason) => {
                    self.failed(reason);
                    self.sign_off.is_unheard();
                    retry = (retry * 2).min(most);
                    retry
                }
            };
            rest(pause, &supervisor, draining).await;
        }
    }

    async fn beat(&mut self, supervisor: &Supervisor, pool: &Pool, draining: bool) -> Beat {
        let platform = supervisor.warm.platform().await;
        let condition = if draining { Condition::Draining } else { Condition::Ready };
        let memory = supervisor.config.sharing.memory;
        let labels = &self.broker.labels;
        let gauges = supervisor.gauges.latest(LOAD_FRESH_FOR);
        let gauges = gauges.map_or_else(Vec::new, |read| read.devices);
        self.failures.hear(&gauges);
        let mut in_use = pool.in_use();
        // Clients that wait use a lease, too, and say nothing of it yet.
        let used: HashSet<LeaseNumber> = in_use.iter().map(|one| one.lease).collect();
        in_use.retain(|one| one.sessions > 0);
        in_use.truncate(LEASES_OF_A_SERVER);
        let gone = self.ended.iter().filter(|number| !used.contains(number));
        Beat {
            server: describe::server(pool.name(), labels, &platform, &gauges, memory, condition),
            address: self.address.clone(),
            fingerprint: supervisor.gate.fingerprint().map(|print| print.to_string()),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            gone: gone.copied().collect(),
            start: self.start,
            in_use,
        }
    }

    fn hear(&mut self, answer: BeatAnswer, supervisor: &Supervisor, pool: &Pool) {
        let BeatAnswer { keys, mut ended, expire, more, renewed, .. } = answer;
        let believed: Vec<PublicKey> = keys
            .iter()
            .take(MOST_KEYS)
            .filter_map(|text| {
                PublicKey::from_text(text)
                    .inspect_err(
                        |error| tracing::warn!(%error, "the broker sent something else than a key"),
                    )
                    .ok()
            })
            .collect();
        ended.truncate(LEASES_OF_A_SERVER);
        let now = Timestamp::now();
        let until = |lease: &LeaseNumber| expire.get(lease).copied().unwrap_or(Timestamp::MAX);
        pool.hear_ended(ended.iter().map(|lease| (*lease, until(lease))), now);
        // By keys that it has not believed yet, a server that was started anew would let in who has
        // one of those that it has yet to hear of.
        if !more {
            pool.hear_keys(believed);
        }
        for token in renewed.iter().take(LEASES_OF_A_SERVER) {
            match pool.renew(token, now) {
                Ok(true) => tracing::debug!("a lease is renewed"),
                // Its sessions have ended meanwhile, or knew it.
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the broker sent a lease that is none"),
            }
        }
        self.ended = ended;
        end_sessions_of_those_over(supervisor, pool);
    }

    /// Logs that the broker answers, if it did not.
    fn went_well(&mut self) {
        if self.failing.take().is_some() {
            tracing::info!(broker = %self.broker.urls, "the broker answers again");
        }
    }

    /// Logs why the broker does not answer, once for each reason.
    fn failed(&mut self, reason: String) {
        if self.failing.as_ref() != Some(&reason) {
            tracing::warn!(broker = %self.broker.urls, reason, "the broker does not hear this server; sessions go on until their leases end");
            self.failing = Some(reason);
        }
    }
}

/// Waits for the next beat, which comes at once if the server begins to drain.
async fn rest(pause: Duration, supervisor: &Supervisor, draining: bool) {
    if draining {
        tokio::time::sleep(pause).await;
    } else {
        let _ = timeout(pause, supervisor.drain.begun()).await;
    }
}
