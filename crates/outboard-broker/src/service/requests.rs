//! Clients ask and wait.

use super::Service;
use crate::desk::{Aimed, Kind, No, Outcome, Stands};
use crate::roles::{ASKERS, Caller};
use jiff::Timestamp;
use outboard_auth::sparing::STRANGERS;
use outboard_pool::api::{Ask, JobAsk, JobGrant, Role, Standing};
use outboard_pool::words::{LeaseNumber, NodeName, OwnerName, Purpose};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

impl Service {
    pub(crate) async fn ask(&self, caller: &Caller, ask: Ask) -> Result<Standing, No> {
        self.enter(caller, ask, BTreeSet::new()).await
    }

    /// As [`Service::ask`], for a job on nodes: the key is the broker's.
    pub(crate) async fn ask_for_job(&self, caller: &Caller, job: JobAsk) -> Result<Standing, No> {
        caller.must_be(&[Role::Scheduler, Role::Admin])?;
        let made = self.signers.borrow().job_thumbprint(&caller.owner, &job.purpose);
        let key = made.map_err(|sentence| No::new(Kind::Unavailable, sentence))?;
        let (ask, nodes) = job.bound_to(key)?;
        self.enter(caller, ask, nodes).await
    }

    async fn enter(
        &self,
        caller: &Caller,
        ask: Ask,
        nodes: BTreeSet<NodeName>,
    ) -> Result<Standing, No> {
        self.may_ask(caller, &ask)?;
        let now = Timestamp::now();
        let asked = self.desk.borrow_mut().ask_for_job(ask, nodes, caller.asker(), now);
        let standing = asked.and_then(|ticket| {
            let stands = self.desk.borrow_mut().stands(ticket, now)?;
            self.standing(ticket, stands)
        });
        // Also a request in vain may have had others served.
        self.once_kept(standing).await
    }

    fn may_ask(&self, caller: &Caller, ask: &Ask) -> Result<(), No> {
        let request = &ask.request;
        caller.asks_for(&request.owner)?;
        if caller.is_trusted() {
            return Ok(());
        }
        let group = self.desk.borrow().rules().group(&request.owner);
        if request.group != group {
            let owner = &request.owner;
            return Err(No::new(
                Kind::Forbidden,
                format!("{owner} is in group {group}, not in {}", request.group),
            ));
        }
        if request.priority > 0 {
            let sentence = "only an admin or a scheduler gives a lease a priority; leave it at 0";
            return Err(No::new(Kind::Forbidden, sentence));
        }
        if ask.life_seconds.is_some() {
            let sentence = "only an admin or a scheduler says how long a lease lives; leave it out";
            return Err(No::new(Kind::Forbidden, sentence));
        }
        Ok(())
    }

    /// How a request stands; if it waits, once that changes or the time is over.
    pub(crate) async fn stands(
        &self,
        caller: &Caller,
        ticket: u64,
        wait: Duration,
    ) -> Result<Standing, No> {
        self.may_see_ticket(caller, ticket)?;
        let until = Instant::now() + wait;
        let look = || self.desk.borrow_mut().stands(ticket, Timestamp::now());
        let first = look()?;
        let place = |stands: &Stands| match stands {
            Stands::Waiting { place, .. } => Some(*place),
            Stands::Settled(_) => None,
        };
        let mut stands = first;
        let before = place(&stands);
        while before.is_some() && place(&stands) == before && Instant::now() < until {
            self.wait_for_news(ticket, until).await;
            stands = look()?;
        }
        self.once_kept(self.standing(ticket, stands)).await
    }

    async fn wait_for_news(&self, ticket: u64, until: Instant) {
        let waiter = {
            let mut waiting = self.waiting.borrow_mut();
            Rc::clone(waiting.entry(ticket).or_default())
        };
        // Late is no failure: then there is no news.
        let _ = timeout_at(until, waiter.notified()).await;
        drop(waiter);
        let mut waiting = self.waiting.borrow_mut();
        // Another connection may wait for the same.
        if waiting.get(&ticket).is_some_and(|waiter| Rc::strong_count(waiter) == 1) {
            waiting.remove(&ticket);
        }
    }

    /// Checks that the caller may know of the ticket. Of others' it learns nothing.
    fn may_see_ticket(&self, caller: &Caller, ticket: u64) -> Result<(), No> {
        let whose = self.desk.borrow().whose_ticket(ticket);
        match whose {
            Some(whose) if caller.acts_on(&whose).is_ok() => Ok(()),
            _ => Err(No::ticket(ticket)),
        }
    }

    /// To be told [once it is kept](Service::once_kept).
    fn standing(&self, ticket: u64, stands: Stands) -> Result<Standing, No> {
        match stands {
            Stands::Waiting { place, of, because } => {
                Ok(Standing::Waiting { ticket, place, of, because })
            }
            Stands::Settled(Outcome::Refused(no)) => Err(no),
            Stands::Settled(Outcome::Granted(number)) => self.grant(number).map(Standing::Granted),
        }
    }

    pub(crate) async fn withdraw(&self, caller: &Caller, ticket: u64) -> Result<(), No> {
        self.may_see_ticket(caller, ticket)?;
        self.desk.borrow_mut().withdraw(ticket, Timestamp::now());
        self.settle().await
    }

    /// How the caller's request for a purpose stands; one that waits as [`Service::stands`] says.
    pub(crate) async fn stands_for(
        &self,
        caller: &Caller,
        purpose: &Purpose,
        wait: Duration,
    ) -> Result<Standing, No> {
        match self.with_purpose(caller, purpose)? {
            Aimed::Waits(ticket) => self.stands(caller, ticket, wait).await,
            Aimed::Has(lease) => self.once_kept(self.grant(lease).map(Standing::Granted)).await,
        }
    }

    /// Ends what the caller has or waits for, for a purpose.
    pub(crate) async fn end_with(&self, caller: &Caller, purpose: &Purpose) -> Result<(), No> {
        match self.with_purpose(caller, purpose)? {
            Aimed::Waits(ticket) => self.withdraw(caller, ticket).await,
            Aimed::Has(lease) => self.end(caller, lease).await,
        }
    }

    /// The lease of a job with its key, for a node on which it runs or for who has asked for it.
    pub(crate) async fn job(&self, caller: &Caller, job: &Purpose) -> Result<JobGrant, No> {
        let (asker, number) = self.lease_of_job(caller, job)?;
        if caller.role != Role::Node
            && let Some(left_out) = STRANGERS.admits("a job's key for its scheduler")
        {
            tracing::warn!(scheduler = %asker, %job, left_out, "a job's key was fetched with the scheduler's token: if nodes have it, root of one may do all that the scheduler may; give each node a token of the role node");
        }
        let granted = self.grant(number);
        let key = self.key_of_job(&asker, job, number);
        let both = granted.and_then(|grant| Ok(JobGrant { grant, key: key? }));
        self.once_kept(both).await
    }

    /// The lease of a job, and who has asked for it. Of jobs on other nodes a node learns nothing.
    fn lease_of_job(&self, caller: &Caller, job: &Purpose) -> Result<(OwnerName, LeaseNumber), No> {
        if caller.role == Role::Node {
            let node = caller.node()?;
            let number = self.desk.borrow().job_on(&node, job);
            let sentence = || format!("{} has no lease for {job} on {}", node.scheduler, node.name);
            let number = number.ok_or_else(|| No::new(Kind::NotFound, sentence()))?;
            return Ok((node.scheduler, number));
        }
        caller.must_be(&[Role::Node, Role::Scheduler, Role::Admin])?;
        match self.with_purpose(caller, job)? {
            Aimed::Has(number) => Ok((caller.owner.clone(), number)),
            Aimed::Waits(_) => Err(No::new(Kind::NotFound, format!("the lease for {job} waits"))),
        }
    }

    fn key_of_job(
        &self,
        asker: &OwnerName,
        job: &Purpose,
        number: LeaseNumber,
    ) -> Result<String, No> {
        let bound_to = self.desk.borrow().lease(number).map(|lease| lease.client_key.clone());
        let signers = self.signers.borrow();
        let key = bound_to.and_then(|thumbprint| signers.job_key(asker, job, &thumbprint));
        key.ok_or_else(|| {
            let sentence = format!(
                "the lease for {job} is bound to a key that the broker does not have: {asker} made \
                 it itself, as Slurm's controller does with Outboard 0.1.0, or it came from a key \
                 that is not in lease.key any more"
            );
            No::new(Kind::Unavailable, sentence)
        })
    }

    fn with_purpose(&self, caller: &Caller, purpose: &Purpose) -> Result<Aimed, No> {
        caller.must_be(&ASKERS)?;
        let held = self.desk.borrow().with_purpose(&caller.owner, purpose);
        held.ok_or_else(|| {
            let owner = &caller.owner;
            No::new(Kind::NotFound, format!("{owner} has no request or lease for {purpose}"))
        })
    }
}
