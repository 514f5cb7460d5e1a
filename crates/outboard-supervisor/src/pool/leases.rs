//! Leases that sessions and waiting clients use, and those that have ended before their time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use jiff::Timestamp;
use outboard_control::account::{Account, SEATS};
use outboard_pool::api::{LEASES_OF_A_SERVER, LeaseUse};
use outboard_pool::lease::{CLOCK_TOLERANCE, Lease};
use outboard_pool::words::LeaseNumber;

use super::ended::Ended;
use super::notes::Notes;

/// Why a lease cannot be used although it was signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Over {
    #[error("lease {0} was revoked or given back; ask for a new one")]
    Ended(LeaseNumber),
    #[error("lease {number} has expired at {expired}; ask for a new one")]
    Expired { number: LeaseNumber, expired: Timestamp },
    #[error("lease {0} is in use with other devices or by somebody else; ask for a new one")]
    Another(LeaseNumber),
}

/// The leases in use.
#[derive(Default)]
pub(super) struct Leases {
    used: RefCell<BTreeMap<LeaseNumber, Used>>,
    ended: RefCell<Ended>,
    /// Those with a later end than clients know, from the broker, whether or not they are used.
    prolonged: RefCell<BTreeMap<LeaseNumber, Lease>>,
    /// Where they are noted for the next server.
    notes: RefCell<Option<Notes>>,
}

struct Used {
    lease: Lease,
    /// Sessions and clients that wait.
    users: usize,
    /// What its sessions hold together, once there is one, ...
    account: Option<Account>,
    /// ... and their seats there.
    seats: u64,
}

const _: () = assert!(SEATS == u64::BITS as usize);

impl Used {
    fn new(lease: Lease) -> Used {
        Used { lease, users: 1, account: None, seats: 0 }
    }
}

/// A session's seat at the account of its lease; free again when the session's worker is gone.
pub(crate) struct Seated {
    holding: Rc<Holding>,
    number: u32,
}

impl Seated {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The account's memory, for the worker.
    pub(crate) fn memory(&self) -> io::Result<OwnedFd> {
        let used = self.holding.leases.used.borrow();
        let account = used.get(&self.holding.number).and_then(|one| one.account.as_ref());
        account.ok_or(io::ErrorKind::NotFound)?.memory().try_clone_to_owned()
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        let mut used = self.holding.leases.used.borrow_mut();
        if let Some(one) = used.get_mut(&self.holding.number) {
            if let Some(account) = &one.account {
                account.clear(self.number);
            }
            one.seats &= !(1 << self.number);
        }
    }
}

/// The use of a lease by one session, or by a client that is to have one.
pub(crate) struct Holding {
    number: LeaseNumber,
    leases: Rc<Leases>,
}

impl std::fmt::Debug for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Holding").field(&self.number).finish()
    }
}

impl Holding {
    pub(crate) fn number(&self) -> LeaseNumber {
        self.number
    }

    /// What the lease says by now.
    pub(crate) fn lease(&self) -> Lease {
        let used = self.leases.used.borrow();
        used.get(&self.number).expect("a lease is there as long as it is used").lease.clone()
    }

    /// A seat at the lease's account for a new session.
    pub(crate) fn sit(self: &Rc<Self>) -> io::Result<Seated> {
        let mut used = self.leases.used.borrow_mut();
        let one = used.get_mut(&self.number).ok_or(io::ErrorKind::NotFound)?;
        let number = one.seats.trailing_ones();
        if number as usize >= SEATS {
            return Err(io::Error::other("the lease has as many sessions as it may have"));
        }
        let account = match one.account.take() {
            Some(account) => account,
            None => Account::create()?,
        };
        account.clear(number);
        one.account = Some(account);
        one.seats |= 1 << number;
        Ok(Seated { holding: Rc::clone(self), number })
    }

    /// The seat that a session has had under an earlier server, at the account that its worker has
    /// kept.
    pub(crate) fn sit_again(self: &Rc<Self>, number: u32, kept: OwnedFd) -> io::Result<Seated> {
        let mut used = self.leases.used.borrow_mut();
        let one = used.get_mut(&self.number).ok_or(io::ErrorKind::NotFound)?;
        if number as usize >= SEATS || one.seats & (1 << number) != 0 {
            return Err(io::Error::other("another session has its seat"));
        }
        if one.account.is_none() {
            one.account = Some(Account::take_over(kept)?);
        }
        one.seats |= 1 << number;
        Ok(Seated { holding: Rc::clone(self), number })
    }

    /// Whether it is still good, or why not.
    pub(crate) fn still(&self, now: Timestamp) -> Result<(), Over> {
        self.leases.still(&self.lease(), now)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut used = self.leases.used.borrow_mut();
        let Some(one) = used.get_mut(&self.number) else { return };
        one.users -= 1;
        if one.users == 0 {
            used.remove(&self.number);
            if let Some(notes) = &*self.leases.notes.borrow() {
                notes.forget_lease(self.number);
            }
        }
    }
}

/// Whether two statements are of the same lease, one perhaps renewed.
fn is_same(one: &Lease, other: &Lease) -> bool {
    let others_time = Lease {
        not_before: one.not_before,
        expires: one.expires,
        renewable_until: one.renewable_until,
        ..other.clone()
    };
    *one == others_time
}

impl Leases {
    /// Notes leases there from now on.
    pub(super) fn note_in(&self, notes: Option<Notes>) {
        *self.notes.borrow_mut() = notes;
    }

    fn note(&self, lease: &Lease) {
        if let Some(notes) = &*self.notes.borrow()
            && let Err(error) = notes.note_lease(lease)
        {
            tracing::warn!(lease = %lease.number, %error, "the lease cannot be noted for the next server; its sessions end with this one");
        }
    }

    /// Somebody uses a lease, which was found good.
    pub(super) fn take(self: &Rc<Self>, lease: &Lease) -> Result<Rc<Holding>, Over> {
        let number = lease.number;
        let ended = self.ended.borrow();
        let is_used = self.used.borrow().contains_key(&number);
        if ended.has(number) || !is_used && ended.may_have_had(number) {
            return Err(Over::Ended(number));
        }
        drop(ended);
        if let Some(one) = self.used.borrow_mut().get_mut(&number) {
            if !is_same(&one.lease, lease) {
                return Err(Over::Another(number));
            }
            one.users += 1;
        } else {
            self.note(lease);
            self.used.borrow_mut().insert(number, Used::new(lease.clone()));
        }
        let holding = Rc::new(Holding { number, leases: Rc::clone(self) });
        // It may be one that was renewed meanwhile.
        self.renew(lease);
        let prolonged = self.prolonged.borrow().get(&number).cloned();
        prolonged.iter().for_each(|lease| _ = self.renew(lease));
        Ok(holding)
    }

    /// A lease of a session that an earlier server has left, if it was noted.
    pub(super) fn take_over(self: &Rc<Self>, number: LeaseNumber) -> Option<Rc<Holding>> {
        let mut used = self.used.borrow_mut();
        if let Some(one) = used.get_mut(&number) {
            one.users += 1;
        } else {
            let lease = self.notes.borrow().as_ref()?.lease(number)?;
            used.insert(number, Used::new(lease));
        }
        Some(Rc::new(Holding { number, leases: Rc::clone(self) }))
    }

    /// The broker says until when a lease is good. It is remembered, also if nobody uses it now:
    /// who comes later may have what was said first. Those that are over are forgotten.
    pub(super) fn hear(&self, renewed: &Lease, now: Timestamp) -> bool {
        let mut prolonged = self.prolonged.borrow_mut();
        prolonged.retain(|_, lease| self.still(lease, now).is_ok());
        prolonged.insert(renewed.number, renewed.clone());
        if prolonged.len() > LEASES_OF_A_SERVER {
            // Leases that live for long are those that nobody renews.
            let first = prolonged.values().min_by_key(|lease| lease.expires);
            let first = first.map(|lease| lease.number);
            first.map(|number| prolonged.remove(&number));
        }
        drop(prolonged);
        self.renew(renewed)
    }

    /// A lease is good for longer. Whether it is used here, and for shorter so far.
    pub(super) fn renew(&self, renewed: &Lease) -> bool {
        let longer = {
            let mut used = self.used.borrow_mut();
            let Some(one) = used.get_mut(&renewed.number) else { return false };
            let longer = is_same(&one.lease, renewed) && renewed.expires > one.lease.expires;
            if longer {
                one.lease = renewed.clone();
            }
            longer
        };
        if longer {
            self.note(renewed);
        }
        longer
    }

    /// Whether the lease is known with a later end, and good.
    pub(super) fn is_renewed(&self, lease: &Lease, now: Timestamp) -> bool {
        let good = |known: &Lease| is_same(known, lease) && self.still(known, now).is_ok();
        let used = self.used.borrow().get(&lease.number).is_some_and(|one| good(&one.lease));
        used || self.prolonged.borrow().get(&lease.number).is_some_and(good)
    }

    /// The leases in use, as the broker is told.
    pub(super) fn in_use(&self) -> Vec<LeaseUse> {
        let used = self.used.borrow();
        let told = |(number, one): (&LeaseNumber, &Used)| LeaseUse {
            lease: *number,
            expires: one.lease.expires,
            sessions: one.seats.count_ones(),
            memory_bytes: one.account.as_ref().map_or(0, Account::total),
        };
        used.iter().map(told).collect()
    }

    /// These have ended before their time, and would expire then. Whether any of that is news.
    pub(super) fn end(
        &self,
        numbers: impl Iterator<Item = (LeaseNumber, Timestamp)>,
        now: Timestamp,
    ) -> bool {
        let (mut ended, used) = (self.ended.borrow_mut(), self.used.borrow());
        ended.forget(now);
        let mut is_news = false;
        for (number, expires) in numbers {
            is_news |= ended.add(number, expires, |number| used.contains_key(&number));
        }
        is_news
    }

    /// All that have.
    pub(super) fn ended(&self) -> Ended {
        self.ended.borrow().clone()
    }

    /// These had under an earlier server.
    pub(super) fn remember(&self, ended: Ended) {
        *self.ended.borrow_mut() = ended;
    }

    fn still(&self, lease: &Lease, now: Timestamp) -> Result<(), Over> {
        let number = lease.number;
        if self.ended.borrow().has(number) {
            return Err(Over::Ended(number));
        }
        if now.duration_since(lease.expires) > CLOCK_TOLERANCE {
            return Err(Over::Expired { number, expired: lease.expires });
        }
        Ok(())
    }

    /// Those that are used and no longer good.
    pub(super) fn over(&self, now: Timestamp) -> Vec<(LeaseNumber, Over)> {
        let used = self.used.borrow();
        let over = |(number, one): (&LeaseNumber, &Used)| {
            self.still(&one.lease, now).err().map(|over| (*number, over))
        };
        used.iter().filter_map(over).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use jiff::SignedDuration;
    use outboard_pool::words::Use;

    use super::super::tests::{granted, lease, now};
    use super::*;

    fn later(seconds: i64) -> Timestamp {
        now() + SignedDuration::from_secs(seconds)
    }

    fn until(seconds: i64) -> Lease {
        let lease = lease(vec![granted("gpu1", 1, 1, Use::Exclusive)]);
        Lease { expires: later(seconds), ..lease }
    }

    #[test]
    fn a_lease_is_there_while_it_is_used_and_ends_with_its_time() {
        let leases = Rc::new(Leases::default());
        let (first, second) = (leases.take(&until(60)).unwrap(), leases.take(&until(60)).unwrap());
        assert!(leases.over(later(90)).is_empty() && first.still(later(90)).is_ok());
        let expired = Over::Expired { number: LeaseNumber(7), expired: later(60) };
        assert_eq!(leases.over(later(91)), [(LeaseNumber(7), expired)]);
        assert!(leases.renew(&until(120)) && !leases.renew(&until(100)), "only to later");
        assert!(leases.over(later(91)).is_empty());
        assert_eq!(second.lease().expires, later(120));
        let third = leases.take(&until(60)).unwrap();
        assert_eq!(third.lease().expires, later(120), "an older token makes it no shorter");
        drop((first, second, third));
        assert!(leases.used.borrow().is_empty() && !leases.renew(&until(200)));
    }

    #[test]
    fn a_renewal_changes_nothing_but_times() {
        let leases = Rc::new(Leases::default());
        let held = leases.take(&until(60)).unwrap();
        let more = lease(vec![granted("gpu1", 1, 2, Use::Exclusive)]);
        let more = Lease { expires: later(600), ..more };
        assert!(!leases.renew(&more));
        assert_eq!(leases.take(&more).err(), Some(Over::Another(LeaseNumber(7))));
        let others = Lease { owner: "bob".parse().unwrap(), ..until(600) };
        assert!(!leases.renew(&others));
        assert_eq!(held.lease(), until(60));
    }

    #[test]
    fn a_lease_that_the_broker_has_prolonged_is_good_before_anybody_uses_it() {
        let leases = Rc::new(Leases::default());
        assert!(!leases.is_renewed(&until(60), later(100)));
        assert!(!leases.hear(&until(200), later(10)), "nobody uses it");
        assert!(leases.is_renewed(&until(60), later(100)));
        let others = Lease { owner: "bob".parse().unwrap(), ..until(60) };
        assert!(!leases.is_renewed(&others, later(100)));
        let held = leases.take(&until(60)).unwrap();
        assert_eq!(held.lease().expires, later(200));
        drop(held);
        leases.end([(LeaseNumber(7), later(60))].into_iter(), now());
        assert!(!leases.is_renewed(&until(60), later(100)));
        let other = Lease { number: LeaseNumber(9), ..until(900) };
        leases.hear(&other, later(100));
        assert_eq!(leases.prolonged.borrow().len(), 1, "what is over is forgotten");
    }

    #[test]
    fn seats_are_given_out_again() {
        let leases = Rc::new(Leases::default());
        let held = leases.take(&until(60)).unwrap();
        let mut all: Vec<Seated> = (0..SEATS).map(|_| held.sit().unwrap()).collect();
        assert!(held.sit().is_err());
        let (third, memory) = (all.remove(2), all[0].memory().unwrap());
        let seat = outboard_control::account::Seat::at(memory.as_fd(), 2).unwrap();
        seat.set_elsewhere(0, 5);
        drop(third);
        let others = outboard_control::account::Seat::at(memory.as_fd(), 1).unwrap();
        assert_eq!(others.others(0), 0, "who is gone holds nothing");
        assert_eq!(held.sit().unwrap().number(), 2);
        assert!(held.sit_again(1, memory).is_err(), "somebody has it");
    }

    #[test]
    fn a_seat_is_had_again_under_the_next_server() {
        let (before, leases) = (Rc::new(Leases::default()), Rc::new(Leases::default()));
        let old = before.take(&until(60)).unwrap();
        let _first = old.sit().unwrap();
        let memory = old.sit().unwrap().memory().unwrap();
        let held = leases.take(&until(60)).unwrap();
        let seat = held.sit_again(1, memory.try_clone().unwrap()).unwrap();
        assert!(held.sit_again(1, memory.try_clone().unwrap()).is_err());
        assert!(held.sit_again(64, memory).is_err());
        assert_eq!((held.sit().unwrap().number(), seat.number()), (0, 1));
        let nothing = std::fs::File::open("/dev/null").unwrap().into();
        let lone = Rc::new(Leases::default()).take(&until(60)).unwrap();
        assert!(lone.sit_again(0, nothing).is_err(), "what a worker gone wrong has kept");
    }

    #[test]
    fn what_has_ended_does_not_come_back() {
        let leases = Rc::new(Leases::default());
        let held = leases.take(&until(60)).unwrap();
        let ended = [7, 7, 8].map(|number| (LeaseNumber(number), later(600)));
        assert!(leases.end(ended.into_iter(), now()));
        assert!(!leases.end(ended.into_iter(), now()), "it knows");
        assert_eq!(held.still(now()), Err(Over::Ended(LeaseNumber(7))));
        assert_eq!(leases.over(now()), [(LeaseNumber(7), Over::Ended(LeaseNumber(7)))]);
        leases.renew(&until(600));
        drop(held);
        assert_eq!(leases.take(&until(600)).err(), Some(Over::Ended(LeaseNumber(7))));
    }
}
