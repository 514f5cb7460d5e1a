//! A server of a pool: whom it admits by which lease, and until when.
//!
//! A lease is a statement that the pool's broker has signed, and that the client shows with a proof
//! of its key. The server needs nobody to judge it.

mod beats;
mod broker;
mod config;
mod leases;
mod parts;
mod proofs;
mod watch;

use std::cell::RefCell;
use std::rc::Rc;

use jiff::Timestamp;
use outboard_pool::lease::{Denied, Lease, PublicKey, PublicKeys, verify};
use outboard_pool::words::{LeaseNumber, MayShare, ServerName};
use outboard_transport::client_key::{has_signed, thumbprint};
use outboard_transport::tls::Fingerprint;
use outboard_wire::Code;
use outboard_wire::handshake::lease::ShownLease;
use outboard_wire::handshake::{Refusal, RefusalCode};
use serde::{Deserialize, Serialize};

use self::leases::Leases;
use self::proofs::Proofs;
use crate::records::Records;
pub(crate) use beats::Beats;
pub use broker::{Broker, NotABroker, Url};
pub use config::{Config, PoolError};
pub(crate) use leases::{Holding, Over, Seated};
pub(crate) use parts::{chosen, parts};
use watch::end_sessions_of_those_over;
pub(crate) use watch::end_those_that_are_over;

/// Processes that may use a lease on one server at once.
pub(crate) const MOST_SESSIONS: u32 = 64;

/// What a server knows of its pool.
pub(crate) struct Pool {
    name: ServerName,
    /// Keys that the operator has named, ...
    own_keys: Vec<PublicKey>,
    /// ... and all that the server believes, which are those of the broker, too.
    keys: RefCell<PublicKeys>,
    proofs: RefCell<Proofs>,
    leases: Rc<Leases>,
    heard: RefCell<Heard>,
    records: RefCell<Option<Rc<Records>>>,
}

/// What a broker has last said, for the next server to know while the broker is away. Fields are
/// only ever added, with a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Heard {
    keys: Vec<String>,
    ended: Vec<LeaseNumber>,
}

/// What a client needs where it shows none.
pub(crate) fn lease_needed() -> Refusal {
    let sentence = "this server gives its devices to who has a lease of its pool: get one from the pool's broker, and set OUTBOARD_LEASE and \
                    OUTBOARD_LEASE_KEY";
    Refusal::new(RefusalCode::NotAuthenticated, Code::LeaseNeeded, sentence)
}

fn not_accepted(sentence: &str) -> Refusal {
    Refusal::new(RefusalCode::NotAuthenticated, Code::LeaseNotAccepted, sentence)
}

/// The sentence for who uses a lease that is over.
pub(crate) fn over(over: &Over) -> Refusal {
    Refusal::new(RefusalCode::NotAuthenticated, Code::LeaseOver, &over.to_string())
}

impl Pool {
    /// As configured, if the server is to be one of a pool.
    pub(crate) fn open(config: &Config) -> Result<Option<Pool>, PoolError> {
        if !config.is_set() {
            return Ok(None);
        }
        Ok(Some(Pool::new(config.name()?, config.keys()?, Timestamp::now())))
    }

    fn new(name: ServerName, own_keys: Vec<PublicKey>, started: Timestamp) -> Pool {
        Pool {
            name,
            keys: RefCell::new(own_keys.iter().cloned().collect()),
            own_keys,
            proofs: RefCell::new(Proofs::new(started)),
            leases: Rc::default(),
            heard: RefCell::default(),
            records: RefCell::default(),
        }
    }

    /// The server's name in it.
    pub(crate) fn name(&self) -> &ServerName {
        &self.name
    }

    /// Believes these keys of the broker, and no others of it.
    fn believe(&self, keys: Vec<PublicKey>) {
        *self.keys.borrow_mut() = self.own_keys.iter().cloned().chain(keys).collect();
    }

    /// Notes leases, and what the broker says, there for the next server; and goes on with what an
    /// earlier one has heard.
    pub(crate) fn note_in(&self, records: Option<Rc<Records>>) {
        if let Some(heard) = records.as_ref().and_then(|records| records.pool()) {
            let keys = heard.keys.iter().filter_map(|text| PublicKey::from_text(text).ok());
            self.believe(keys.collect());
            self.leases.end(&heard.ended);
            *self.heard.borrow_mut() = heard;
        }
        self.leases.note_in(records.clone());
        *self.records.borrow_mut() = records;
    }

    /// The broker has said which keys to believe, and which leases have ended.
    fn hear(&self, keys: Vec<PublicKey>, ended: &[LeaseNumber]) {
        let texts = keys.iter().map(PublicKey::to_text).collect();
        self.believe(keys);
        self.leases.end(ended);
        let now = Heard { keys: texts, ended: ended.to_vec() };
        if *self.heard.borrow() == now {
            return;
        }
        if let Some(records) = &*self.records.borrow()
            && let Err(error) = records.note_pool(&now)
        {
            tracing::warn!(%error, "what the broker says cannot be noted for the next server");
        }
        *self.heard.borrow_mut() = now;
    }

    /// The server ends, and leaves nothing to another.
    pub(crate) fn forget(&self) {
        if let Some(records) = &*self.records.borrow() {
            records.forget_pool();
        }
    }

    /// A lease of a session of an earlier server.
    pub(crate) fn take_over(&self, number: LeaseNumber) -> Option<Rc<Holding>> {
        self.leases.take_over(number)
    }

    /// Judges what a client shows; `certificate` is what the server has shown, if the connection
    /// is encrypted.
    pub(crate) fn admit(
        &self,
        shown: &ShownLease,
        certificate: Option<Fingerprint>,
        now: Timestamp,
    ) -> Result<Rc<Holding>, Refusal> {
        let lease = verify(&shown.token, &self.keys.borrow(), &self.name, now)
            .map_err(|denied| refused(&denied))?;
        let number = lease.number;
        let key = thumbprint(&shown.key).parse().ok();
        if !key.is_some_and(|key| lease.admits(&key)) {
            return Err(not_accepted(&format!(
                "lease {number} is bound to another key than the client has: OUTBOARD_LEASE_KEY is to name the one that it was asked for with"
            )));
        }
        if shown.server != self.name.as_str() {
            let (taken, name) = (outboard_wire::plain(&shown.server), &self.name);
            return Err(not_accepted(&format!(
                "the client takes this server for {taken}, and it is {name} in its pool: set `pool-name` to what it is"
            )));
        }
        let statement = shown.statement(certificate.map(|print| print.0).as_ref());
        if !has_signed(&shown.key, &statement, &shown.signature) {
            return Err(not_accepted(&format!(
                "the proof of the key of lease {number} was not made for this server and this connection"
            )));
        }
        let made =
            i64::try_from(shown.time).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let made = made.unwrap_or(Timestamp::MAX);
        let taken =
            self.proofs.borrow_mut().take(number, shown.nonce, made, now, certificate.is_some());
        taken.map_err(|stale| {
            not_accepted(&format!("the proof of the key of lease {number} is refused: {stale}"))
        })?;
        self.leases.take(lease).map_err(|error| over(&error))
    }
}

fn refused(denied: &Denied) -> Refusal {
    let code = match denied {
        Denied::Expired { .. } => Code::LeaseOver,
        _ => Code::LeaseNotAccepted,
    };
    Refusal::new(RefusalCode::NotAuthenticated, code, &denied.to_string())
}

/// How many processes may use a lease on one server at once.
pub(crate) fn most_sessions(lease: &Lease) -> u32 {
    match lease.may_share {
        MayShare::Nobody => 1,
        MayShare::SameKey | MayShare::Keys(_) => MOST_SESSIONS,
    }
}

#[cfg(test)]
mod tests;
