//! Leading a pool: alone with a file, or in turns with other brokers.

use crate::desk::{Desk, Memory, Rules};
use crate::front::Front;
use crate::run::{BrokerError, Config, Shared, tell_ready};
use crate::service::{RELEASE, Service};
use crate::signers::Signers;
use crate::store::{
    Candidate, EtcdError, EtcdStore, FileStore, Keeper, Leadership, StandError, Store, StoreError,
    signing_keys,
};
use jiff::Timestamp;
use outboard_transport::tls::Fingerprint;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// How often a broker that stands by looks whether one leads.
const LOOKS: Duration = Duration::from_millis(200);

/// A broker that leads as soon as it may.
pub(crate) struct Lead<'a> {
    config: &'a Config,
    front: Rc<Front>,
    /// As the file of quotas said when it was last read.
    rules: RefCell<Rules>,
    address: SocketAddr,
    fingerprint: Fingerprint,
}

impl<'a> Lead<'a> {
    pub(crate) fn new(
        config: &'a Config,
        front: Rc<Front>,
        address: SocketAddr,
        fingerprint: Fingerprint,
    ) -> Result<Lead<'a>, BrokerError> {
        let rules = RefCell::new(config.rules()?);
        Ok(Lead { config, front, rules, address, fingerprint })
    }

    /// Leads until changes cannot be kept any more.
    pub(crate) async fn alone(&self, file: FileStore) -> Result<(), BrokerError> {
        let memory = file.memory()?;
        Ok(self.preside(Store::File(file), memory, None).await?)
    }

    /// Stands by, leads and stands by again. Ends only if what is kept cannot be used.
    pub(crate) async fn in_turns(&self, shared: &Shared) -> Result<(), BrokerError> {
        let url = shared.url.clone().unwrap_or_else(|| format!("https://{}", self.address));
        let mut candidate = Candidate::new(shared.cluster.clone(), url);
        let (address, fingerprint) = (self.address, self.fingerprint);
        tracing::info!(%address, %fingerprint, version = RELEASE, "standing by");
        tell_ready("standing by", address);
        loop {
            let (leadership, store) = self.stand_by(&mut candidate).await?;
            let leadership = Rc::new(leadership);
            let lost = tokio::select! {
                lost = candidate.hold(&leadership) => lost,
                () = self.front.watch(&leadership) => String::new(),
                ended = self.take_over(store, &leadership) => match ended {
                    Ok(()) => "it was asked to".to_owned(),
                    Err(error @ (StoreError::NoLongerLeads(_) | StoreError::OtherKey { .. })) => {
                        error.to_string()
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            tracing::warn!(reason = lost, "this broker leads no more; it stands by");
            self.front.stand_by(None);
            leadership.resign().await;
            tell_ready("standing by", address);
        }
    }

    /// Waits until this broker leads.
    async fn stand_by(
        &self,
        candidate: &mut Candidate,
    ) -> Result<(Leadership, EtcdStore), StoreError> {
        let mut problem = None;
        loop {
            let now = match self.stand(candidate).await {
                Ok(Some(elected)) => return Ok(elected),
                Ok(None) => None,
                Err(StandError::Etcd(error @ EtcdError::Refused { .. })) => {
                    return Err(StoreError::Strange(error.to_string()));
                }
                Err(error) => Some(error.to_string()),
            };
            if now != problem {
                match &now {
                    Some(problem) => tracing::error!(problem, "this broker cannot lead"),
                    None => tracing::info!("this broker can lead"),
                }
                problem = now;
            }
            sleep(LOOKS).await;
        }
    }

    /// Leads, if nobody else does and this broker has the pool's key.
    async fn stand(
        &self,
        candidate: &mut Candidate,
    ) -> Result<Option<(Leadership, EtcdStore)>, StandError> {
        let leader = candidate.leader().await;
        self.front.stand_by(leader.as_ref().ok().cloned().flatten());
        leader?;
        let kept = candidate.keys().await?;
        // A broker that has no key must not make one where others have.
        let folder = &self.config.state;
        let own = signing_keys(folder, kept.is_none()).map_err(StandError::Store)?;
        Signers::new(own, kept.as_ref(), true, Timestamp::now()).map_err(StandError::Store)?;
        candidate.stand().await
    }

    /// Goes on where the leader before has stopped.
    async fn take_over(
        &self,
        mut store: EtcdStore,
        leadership: &Rc<Leadership>,
    ) -> Result<(), StoreError> {
        let read = tokio::task::spawn_blocking(move || {
            let memory = store.memory()?;
            Ok::<_, StoreError>((store, memory))
        });
        let read = read.await.map_err(|error| StoreError::Strange(error.to_string()))?;
        let (store, memory) = read?;
        self.preside(Store::Etcd(store), memory, Some(leadership)).await
    }

    /// Leads, with what was kept.
    async fn preside(
        &self,
        store: Store,
        memory: Memory,
        leadership: Option<&Rc<Leadership>>,
    ) -> Result<(), StoreError> {
        let now = Timestamp::now();
        let is_shared = leadership.is_some();
        let own = signing_keys(&self.config.state, true)?;
        let signers = Signers::new(own, memory.keys.as_ref(), is_shared, now)?;
        let (leases, servers) = (memory.leases.len(), memory.servers.len());
        let rules = self.rules.borrow().clone();
        let policy = rules.policy;
        let desk = Desk::new(rules, memory, now);
        let failed = |error: io::Error| StoreError::Strange(error.to_string());
        let (keeper, failure) = Keeper::start(store).map_err(failed)?;
        tracing::info!(key = %signers.present().public().to_text(), "leases are signed");
        let tokens = Rc::clone(self.front.tokens());
        let service = Service::new(desk, keeper, signers, tokens);
        let service = Rc::new(service.with_open_view(self.config.open_view));
        self.front.lead(Rc::clone(&service), leadership.cloned());
        let (address, fingerprint) = (self.address, self.fingerprint);
        tell_ready("brokering", address);
        tracing::info!(%address, %fingerprint, %policy, leases, servers, version = RELEASE, "brokering");
        service.keep_going().await;
        // Nothing else ends the thread.
        failure.wait().await.map_or(Ok(()), Err)
    }

    /// Reads quotas and keys again. What cannot be used changes nothing.
    pub(crate) fn reload(&self) {
        match self.config.rules() {
            Ok(rules) => {
                self.front.with_service(|service| service.set_rules(rules.clone()));
                *self.rules.borrow_mut() = rules;
                tracing::info!("the quotas are read again");
            }
            Err(error) => tracing::error!(%error, "the quotas stay as they are"),
        }
        let keys = signing_keys(&self.config.state, false);
        self.front.with_service(|service| match keys.and_then(|keys| service.set_keys(keys)) {
            Ok(()) => tracing::info!("the keys of leases are read again"),
            Err(error) => tracing::error!(%error, "the keys of leases stay as they are"),
        });
    }
}
