//! The desk with its store and its keys: nobody hears of a lease before it is kept.

mod requests;

use crate::desk::{BEAT_MS, Change, Desk, Kind, Lent, MORE_MS, No, Rules, Speaker};
use crate::open::OpenView;
use crate::roles::Caller;
use crate::signers::Signers;
use crate::store::{Keeper, StoreError};
use hyper::body::Bytes;
use jiff::Timestamp;
use outboard_auth::tokens::Known;
use outboard_pool::api::{
    Beat, BeatAnswer, Grant, HistoryView, Me, PoolView, Prolong, Role, Told, UsageTold, UsageView,
    Why,
};
use outboard_pool::lease::{Lease, PublicKey, SigningKey, sign};
use outboard_pool::words::{LeaseNumber, ServerName};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// The release, as it is told.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// How often the desk does what is due.
const TICK: Duration = Duration::from_millis(100);
/// How often what owners have had is kept: a kill loses no more of it.
const KEEP_USAGE: Duration = Duration::from_secs(10);
/// How often the tokens are looked at for what was revoked.
const LOOK_AT_TOKENS: Duration = Duration::from_millis(500);
/// So many at the front of the queue hear of each new place at once.
const FRONT: usize = 32;

/// The broker as its callers see it.
pub(crate) struct Service {
    desk: RefCell<Desk>,
    keeper: Keeper,
    signers: RefCell<Signers>,
    /// Whether the keys are to be kept.
    has_other_keys: Cell<bool>,
    tokens: Rc<Known>,
    /// What everybody may see, if so.
    open: Option<OpenView>,
    waiting: RefCell<BTreeMap<u64, Rc<Notify>>>,
}

/// Changes cannot be kept: the broker is about to end.
fn not_kept() -> No {
    No::new(Kind::Away, "the broker cannot keep what it decides; ask again in a few seconds")
}

impl Service {
    pub(crate) fn new(desk: Desk, keeper: Keeper, signers: Signers, tokens: Rc<Known>) -> Service {
        let (desk, waiting) = (RefCell::new(desk), RefCell::default());
        let (signers, has_other_keys) = (RefCell::new(signers), Cell::new(true));
        Service { desk, keeper, signers, has_other_keys, tokens, open: None, waiting }
    }

    /// The same, of which everybody may see what names nobody.
    pub(crate) fn with_open_view(self, is_open: bool) -> Service {
        Service { open: is_open.then(OpenView::default), ..self }
    }

    /// Decides by other rules from now on.
    pub(crate) fn set_rules(&self, rules: Rules) {
        self.desk.borrow_mut().set_rules(rules, Timestamp::now());
    }

    /// Signs with the newest of these keys, once servers know it.
    ///
    /// # Errors
    ///
    /// If the one that signs is not among them.
    pub(crate) fn set_keys(&self, keys: Vec<SigningKey>) -> Result<(), StoreError> {
        self.signers.borrow_mut().reload(keys, Timestamp::now())?;
        self.has_other_keys.set(true);
        Ok(())
    }

    /// Keeps what has been decided, and wakes those whom it concerns.
    async fn settle(&self) -> Result<(), No> {
        let (mut changes, news) = {
            let mut desk = self.desk.borrow_mut();
            (desk.take_changes(), desk.take_news())
        };
        if self.has_other_keys.take() {
            changes.push(Change::Keys(self.signers.borrow().keys()));
        }
        if !self.keeper.keep(changes).await {
            return Err(not_kept());
        }
        if news.is_empty() {
            return Ok(());
        }
        let front: Vec<u64> = self.desk.borrow().front(FRONT).collect();
        let waiting = self.waiting.borrow();
        for ticket in news.iter().chain(&front) {
            if let Some(waiter) = waiting.get(ticket) {
                waiter.notify_waiters();
            }
        }
        Ok(())
    }

    /// What was decided for somebody, told once that is kept.
    ///
    /// The answer is made before: while the store keeps it, the desk may decide more that is not
    /// kept yet.
    async fn once_kept<T>(&self, answer: Result<T, No>) -> Result<T, No> {
        self.settle().await?;
        answer
    }

    /// Does what is due, for ever.
    pub(crate) async fn keep_going(&self) {
        let (mut usage, mut tokens) = (Instant::now(), Instant::now());
        loop {
            sleep(TICK).await;
            let now = Timestamp::now();
            if tokens.elapsed() >= LOOK_AT_TOKENS {
                tokens = Instant::now();
                self.end_revoked(now);
            }
            if usage.elapsed() >= KEEP_USAGE {
                usage = Instant::now();
                self.desk.borrow_mut().keep_usage(now);
            }
            self.desk.borrow_mut().tick(now);
            let last = || self.desk.borrow().last_end();
            if self.signers.borrow_mut().tick(now, last) {
                self.has_other_keys.set(true);
            }
            if self.settle().await.is_err() {
                return;
            }
        }
    }

    fn end_revoked(&self, now: Timestamp) {
        if self.tokens.take_changed() {
            let is_over = |token: &str| self.tokens.is_revoked(token);
            self.desk.borrow_mut().end_those_of(is_over, now);
        }
    }

    /// Keeps all that is known, before the end.
    pub(crate) async fn finish(&self) {
        self.desk.borrow_mut().keep_usage(Timestamp::now());
        let _ = self.settle().await;
        self.keeper.close();
    }

    pub(crate) fn me(&self, caller: &Caller) -> Me {
        let group = self.desk.borrow().rules().group(&caller.owner);
        Me { owner: caller.owner.clone(), group, role: caller.role }
    }

    /// A server beats, which has proven to have that key.
    pub(crate) async fn beat(
        &self,
        caller: &Caller,
        key: Option<&PublicKey>,
        beat: &Beat,
    ) -> Result<BeatAnswer, No> {
        caller.must_be(&[Role::Server])?;
        let speaker = Speaker { owner: caller.owner.clone(), key: key.map(PublicKey::to_text) };
        let heard = self.desk.borrow_mut().beat(&speaker, beat, Timestamp::now())?;
        let renewed = heard.renewed.iter().map(|lease| self.sign(lease));
        let answer = renewed.collect::<Result<_, _>>().map(|renewed| BeatAnswer {
            keys: self.signers.borrow().believed(),
            ended: heard.ended.iter().map(|(lease, _)| *lease).collect(),
            expire: heard.ended.iter().copied().collect(),
            more: heard.more,
            renewed,
            next_ms: if heard.more { MORE_MS } else { BEAT_MS },
        });
        self.once_kept(answer).await
    }

    /// How many leases the server with the most has that is registered with the caller's token.
    pub(crate) fn most_leases(&self, caller: &Caller) -> usize {
        self.desk.borrow().most_leases_of_a_server(&caller.owner)
    }

    /// To be told [once it is kept](Service::once_kept).
    fn grant(&self, number: LeaseNumber) -> Result<Grant, No> {
        let desk = self.desk.borrow();
        let lease = desk.lease(number).ok_or_else(|| {
            No::new(Kind::Unavailable, format!("lease {number} is over already; ask again"))
        })?;
        Ok(Grant {
            token: self.sign(lease)?,
            number,
            servers: desk.reach(lease),
            expires: lease.expires,
            renewable_until: lease.renewable_until,
            is_shortened: desk.loan(number).is_some_and(Lent::shortens),
        })
    }

    fn sign(&self, lease: &Lease) -> Result<String, No> {
        sign(lease, self.signers.borrow().present())
            .map_err(|error| No::new(Kind::Unavailable, error.to_string()))
    }

    /// Checks that the caller may do something with the lease.
    fn holds(&self, caller: &Caller, number: LeaseNumber) -> Result<(), No> {
        let whose = self.desk.borrow().whose(number);
        match whose {
            Some(whose) => caller.acts_on(&whose),
            None => {
                let sentence = format!("there is no lease {number} any more");
                Err(No::new(Kind::NotFound, sentence))
            }
        }
    }

    pub(crate) async fn lease(&self, caller: &Caller, number: LeaseNumber) -> Result<Grant, No> {
        self.holds(caller, number)?;
        self.once_kept(self.grant(number)).await
    }

    pub(crate) async fn renew(&self, caller: &Caller, number: LeaseNumber) -> Result<Grant, No> {
        self.holds(caller, number)?;
        self.desk.borrow_mut().renew(number, Timestamp::now())?;
        self.once_kept(self.grant(number)).await
    }

    /// What a client says when it asks stays its limit: only those who may ask for others move it.
    pub(crate) async fn prolong(
        &self,
        caller: &Caller,
        number: LeaseNumber,
        Prolong { for_seconds }: Prolong,
    ) -> Result<Grant, No> {
        caller.must_be(&[Role::Scheduler, Role::Admin])?;
        self.holds(caller, number)?;
        self.desk.borrow_mut().prolong(number, for_seconds, Timestamp::now())?;
        self.once_kept(self.grant(number)).await
    }

    pub(crate) async fn end(&self, caller: &Caller, number: LeaseNumber) -> Result<(), No> {
        self.holds(caller, number)?;
        let whose = self.desk.borrow().whose(number);
        let because = match whose {
            Some(whose) if whose.owner == caller.owner => "its owner gave it back".into(),
            _ => format!("the {} {} ended it", caller.role, caller.owner),
        };
        self.desk.borrow_mut().end(number, &because, Timestamp::now())?;
        self.settle().await
    }

    /// An admin has a server be none of the pool any more.
    pub(crate) async fn forget(&self, caller: &Caller, server: &ServerName) -> Result<(), No> {
        caller.must_be(&[Role::Admin])?;
        tracing::info!(%server, by = %caller.owner, "a server is forgotten");
        self.desk.borrow_mut().forget_server(server, Timestamp::now())?;
        self.settle().await
    }

    pub(crate) fn why(&self, caller: &Caller, number: LeaseNumber) -> Result<Why, No> {
        caller.may_look()?;
        self.desk.borrow().why(number, Timestamp::now())
    }

    pub(crate) fn pool(&self, caller: &Caller) -> Result<PoolView, No> {
        caller.may_look()?;
        Ok(self.desk.borrow().view(RELEASE))
    }

    /// What of the pool comes after that.
    pub(crate) fn page(&self, caller: &Caller, told: &Told) -> Result<PoolView, No> {
        caller.may_look()?;
        Ok(self.desk.borrow().page(RELEASE, told))
    }

    pub(crate) fn history(
        &self,
        caller: &Caller,
        (seconds, points): (u32, u32),
    ) -> Result<HistoryView, No> {
        caller.may_look()?;
        Ok(self.desk.borrow().history(Timestamp::now(), seconds, points))
    }

    /// What everybody may see, if so.
    pub(crate) fn open_pool(&self, told: &Told) -> Option<Bytes> {
        self.open.as_ref()?.pool(told, |told| self.desk.borrow().page(RELEASE, told))
    }

    /// The same of the past.
    pub(crate) fn open_history(&self, (seconds, points): (u32, u32)) -> Option<HistoryView> {
        self.open.as_ref().map(|_| self.desk.borrow().history(Timestamp::now(), seconds, points))
    }

    pub(crate) fn usage(
        &self,
        caller: &Caller,
        told: Option<&UsageTold>,
    ) -> Result<Vec<UsageView>, No> {
        caller.may_look()?;
        Ok(self.desk.borrow().usage(told))
    }
}

#[cfg(test)]
mod tests;
