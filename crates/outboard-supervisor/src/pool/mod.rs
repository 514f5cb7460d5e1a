//! A server of a pool: whom it admits by which lease, and until when.
//!
//! A lease is a statement that the pool's broker has signed, and that the client shows with a proof
//! of its key. The server needs nobody to judge it.

mod broker;
mod config;
mod ended;
mod error;
mod leases;
mod notes;
mod own_key;
mod parts;
mod proofs;

use std::cell::RefCell;
use std::rc::Rc;

use jiff::Timestamp;
use outboard_pool::api::LeaseUse;
use outboard_pool::lease::{Denied, Lease, PublicKey, PublicKeys, authentic, verify};
use outboard_pool::words::{LeaseNumber, MayShare, ServerName};
use outboard_transport::client_key::{has_signed, thumbprint};
use outboard_transport::tls::Fingerprint;
use outboard_wire::Code;
use outboard_wire::handshake::lease::ShownLease;
use outboard_wire::handshake::{Refusal, RefusalCode};

use self::leases::Leases;
use self::notes::Heard;
use self::proofs::{Proofs, Shown};
pub use broker::Broker;
pub use config::Config;
pub use error::PoolError;
pub(crate) use leases::{Holding, Over, Seated};
pub(crate) use notes::Notes;
pub(crate) use parts::{chosen, parts};

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
    /// What the broker's keys were called last.
    told_keys: RefCell<Vec<String>>,
    notes: RefCell<Option<Notes>>,
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
            told_keys: RefCell::default(),
            notes: RefCell::default(),
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
    pub(crate) fn note_in(&self, notes: Option<Notes>) {
        if let Some(heard) = notes.as_ref().and_then(Notes::heard) {
            let keys = heard.keys.iter().filter_map(|text| PublicKey::from_text(text).ok());
            self.believe(keys.collect());
            self.leases.remember(heard.over);
            let ended = heard.ended.iter().map(|lease| (*lease, Timestamp::MAX));
            self.leases.end(ended, Timestamp::now());
            *self.told_keys.borrow_mut() = heard.keys;
        }
        self.leases.note_in(notes.clone());
        *self.notes.borrow_mut() = notes;
    }

    /// The broker has said which leases have ended, and when they would expire, ...
    pub(crate) fn hear_ended(
        &self,
        ended: impl Iterator<Item = (LeaseNumber, Timestamp)>,
        now: Timestamp,
    ) {
        if self.leases.end(ended, now) {
            self.note_heard();
        }
    }

    /// ... and which keys to believe.
    pub(crate) fn hear_keys(&self, keys: Vec<PublicKey>) {
        let texts: Vec<String> = keys.iter().map(PublicKey::to_text).collect();
        self.believe(keys);
        if self.told_keys.replace(texts.clone()) != texts {
            self.note_heard();
        }
    }

    fn note_heard(&self) {
        let keys = self.told_keys.borrow().clone();
        let heard = Heard { keys, ended: Vec::new(), over: self.leases.ended() };
        if let Some(notes) = &*self.notes.borrow()
            && let Err(error) = notes.note_heard(&heard)
        {
            tracing::warn!(%error, "what the broker says cannot be noted for the next server");
        }
    }

    /// A lease that the broker sends is good for longer; whether it is used here.
    pub(crate) fn renew(&self, token: &str, now: Timestamp) -> Result<bool, Denied> {
        let lease = verify(token, &self.keys.borrow(), &self.name, now)?;
        Ok(self.leases.hear(&lease, now))
    }

    /// The leases in use, as the broker is told.
    pub(crate) fn in_use(&self) -> Vec<LeaseUse> {
        self.leases.in_use()
    }

    /// Those that are used and no longer good.
    pub(crate) fn over(&self, now: Timestamp) -> Vec<(LeaseNumber, Over)> {
        self.leases.over(now)
    }

    /// The server ends, and leaves nothing to another.
    pub(crate) fn forget(&self) {
        if let Some(notes) = &*self.notes.borrow() {
            notes.forget_heard();
        }
    }

    /// A lease of a session of an earlier server.
    pub(crate) fn take_over(&self, number: LeaseNumber) -> Option<Rc<Holding>> {
        self.leases.take_over(number)
    }

    /// What a token says, if it is good here and now. Or if it has expired, and the broker has said
    /// a later end meanwhile: programs start processes long after they got it.
    fn good(&self, token: &str, now: Timestamp) -> Result<Lease, Denied> {
        let keys = self.keys.borrow();
        match verify(token, &keys, &self.name, now) {
            Err(expired @ Denied::Expired { .. }) => {
                let lease = authentic(token, &keys)?;
                if self.leases.is_renewed(&lease, now) { Ok(lease) } else { Err(expired) }
            }
            judged => judged,
        }
    }

    /// Judges what a client shows; `certificate` is what the server has shown, if the connection
    /// is encrypted.
    pub(crate) fn admit(
        &self,
        shown: &ShownLease,
        certificate: Option<Fingerprint>,
        now: Timestamp,
    ) -> Result<Rc<Holding>, Refusal> {
        let lease = self.good(&shown.token, now).map_err(|denied| refused(&denied))?;
        let number = lease.number;
        let key = thumbprint(&shown.key).parse().ok();
        if !key.is_some_and(|key| lease.admits(&key)) {
            return Err(not_accepted(&format!(
                "lease {number} is bound to another key than the client has: OUTBOARD_LEASE_KEY is to name the one that it was asked for with"
            )));
        }
        if shown.server != self.name.as_str() {
            let taken = shown.server.parse::<ServerName>();
            let taken = taken.map_or_else(|_| "something else".to_owned(), String::from);
            let name = &self.name;
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
        let proof = Shown {
            lease: number,
            owner: &lease.owner,
            nonce: shown.nonce,
            made,
            encrypted: certificate.is_some(),
        };
        self.proofs.borrow_mut().take(&proof, now).map_err(|stale| {
            not_accepted(&format!("the proof of the key of lease {number} is refused: {stale}"))
        })?;
        self.leases.take(&lease).map_err(|error| over(&error))
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
