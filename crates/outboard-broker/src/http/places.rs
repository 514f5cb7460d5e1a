//! Places for connections of those who have shown who they are.
//!
//! Servers, those who administer, and all others have places of their own, so that none of them
//! keeps out the others. Where all are taken, the owner with the most of them makes room: the
//! connection that has been idle for the longest goes.

use outboard_pool::api::Role;
use outboard_pool::words::OwnerName;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::Notify;

/// Places of servers: each server of a pool has one, and some come anew.
const SERVERS: usize = 5120;
/// Places of admins and schedulers.
const ADMINS: usize = 1024;
/// Places of all others.
const OTHERS: usize = 8192;
/// Open files that the broker needs for something else: strangers, its store.
const OTHER_FILES: usize = 2048;

/// All places.
pub(super) struct Places {
    servers: Rc<Hall>,
    admins: Rc<Hall>,
    others: Rc<Hall>,
}

/// Places of one kind.
struct Hall {
    most: usize,
    taken: RefCell<AllTaken>,
}

#[derive(Default)]
struct AllTaken {
    /// By a number that grows.
    places: BTreeMap<u64, Rc<Taken>>,
    counts: HashMap<OwnerName, usize>,
    next: u64,
}

struct Taken {
    owner: OwnerName,
    /// How many requests are being answered.
    answering: Cell<u32>,
    /// Since when that is so, or since when there are none.
    since: Cell<Instant>,
    leave: Rc<Notify>,
}

/// A place; free again when dropped.
pub(super) struct Place {
    hall: Rc<Hall>,
    number: u64,
    taken: Rc<Taken>,
}

impl Places {
    /// As many as that number of open files allows.
    pub(super) fn new(files: usize) -> Places {
        let all = SERVERS + ADMINS + OTHERS;
        let room = files.saturating_sub(OTHER_FILES).max(files / 2).min(all);
        let hall = |most: usize| Rc::new(Hall::new((most * room / all).max(1)));
        Places { servers: hall(SERVERS), admins: hall(ADMINS), others: hall(OTHERS) }
    }

    /// A place for a connection of that owner, if there is one or can be made; `leave` is notified
    /// when another one needs it.
    pub(super) fn enter(&self, owner: &OwnerName, role: Role, leave: &Rc<Notify>) -> Option<Place> {
        let hall = match role {
            Role::Server => &self.servers,
            Role::Admin | Role::Scheduler => &self.admins,
            Role::Client | Role::Viewer | Role::Node => &self.others,
        };
        hall.enter(owner, leave)
    }
}

impl Hall {
    fn new(most: usize) -> Hall {
        Hall { most, taken: RefCell::default() }
    }

    fn enter(self: &Rc<Self>, owner: &OwnerName, leave: &Rc<Notify>) -> Option<Place> {
        let mut all = self.taken.borrow_mut();
        if all.places.len() >= self.most {
            let next = all.next_to_go(owner)?;
            all.remove(next)?.leave.notify_one();
        }
        let number = all.next;
        all.next += 1;
        let taken = Rc::new(Taken {
            owner: owner.clone(),
            answering: Cell::new(0),
            since: Cell::new(Instant::now()),
            leave: Rc::clone(leave),
        });
        all.places.insert(number, Rc::clone(&taken));
        *all.counts.entry(owner.clone()).or_default() += 1;
        Some(Place { hall: Rc::clone(self), number, taken })
    }
}

impl AllTaken {
    /// Which one makes room for one of that owner, if any is to: of the owner with the most, the
    /// one that has been idle for the longest. One that is being answered goes only for an owner
    /// that has fewer.
    fn next_to_go(&self, newcomer: &OwnerName) -> Option<u64> {
        let most = self.counts.values().copied().max()?;
        let of = |owner: &OwnerName| self.counts.get(owner).copied().unwrap_or(0);
        let is_most = of(newcomer) == most;
        let goes = |taken: &Taken| match is_most {
            true => taken.owner == *newcomer && taken.answering.get() == 0,
            false => of(&taken.owner) == most,
        };
        let places = self.places.iter().filter(|(_, taken)| goes(taken));
        let first = places.min_by_key(|(_, taken)| (taken.answering.get() > 0, taken.since.get()));
        first.map(|(number, _)| *number)
    }

    fn remove(&mut self, number: u64) -> Option<Rc<Taken>> {
        let taken = self.places.remove(&number)?;
        if let Some(count) = self.counts.get_mut(&taken.owner) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&taken.owner);
            }
        }
        Some(taken)
    }
}

impl Place {
    /// The connection is answered until what this returns is dropped.
    pub(super) fn answer(&self) -> Answering {
        self.taken.begin();
        Answering(Rc::clone(&self.taken))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may have been taken away.
        self.hall.taken.borrow_mut().remove(self.number);
    }
}

/// A request that is being answered.
pub(super) struct Answering(Rc<Taken>);

impl Taken {
    fn begin(&self) {
        self.answering.set(self.answering.get() + 1);
        self.since.set(Instant::now());
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.set(self.0.answering.get() - 1);
        self.0.since.set(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hall, and who has to leave.
    struct Case(Rc<Hall>);

    struct Guest(Option<Place>, Rc<Notify>);

    impl Case {
        fn enter(&self, owner: &str) -> Guest {
            let leave = Rc::new(Notify::new());
            let place = self.0.enter(&owner.parse().unwrap(), &leave);
            Guest(place, leave)
        }

        fn crowd(&self, owner: &str, count: usize) -> Vec<Guest> {
            (0..count).map(|_| self.enter(owner)).collect()
        }
    }

    impl Guest {
        fn is_in(&self) -> bool {
            self.0.is_some() && !self.has_to_leave()
        }

        fn has_to_leave(&self) -> bool {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let wait = std::time::Duration::from_millis(1);
            let left = async { tokio::time::timeout(wait, self.1.notified()).await.is_ok() };
            let left = runtime.unwrap().block_on(left);
            if left {
                self.1.notify_one();
            }
            left
        }
    }

    fn hall(most: usize) -> Case {
        Case(Rc::new(Hall::new(most)))
    }

    #[test]
    fn the_owner_with_the_most_makes_room_and_its_longest_idle_goes() {
        let hall = hall(8);
        let lone = hall.enter("ada");
        let crowd = hall.crowd("bob", 7);
        let answered = crowd[0].0.as_ref().unwrap().answer();
        let eve = hall.enter("eve");
        assert!(lone.is_in() && eve.is_in());
        let left: Vec<bool> = crowd.iter().map(Guest::has_to_leave).collect();
        assert_eq!(left, [false, true, false, false, false, false, false]);
        // Its own newcomers displace its own only.
        let more = hall.crowd("bob", 20);
        assert!(lone.is_in() && eve.is_in() && more.last().unwrap().is_in());
        assert!(crowd[0].is_in(), "it is being answered");
        drop(answered);
        assert!(hall.enter("bob").is_in());
    }

    #[test]
    fn an_owner_whose_requests_are_all_being_answered_keeps_out_only_itself() {
        let hall = hall(4);
        let crowd = hall.crowd("bob", 4);
        let _answered: Vec<_> =
            crowd.iter().map(|guest| guest.0.as_ref().unwrap().answer()).collect();
        assert!(!hall.enter("bob").is_in());
        let others: Vec<Guest> = ["ada", "eve", "zoe"].map(|owner| hall.enter(owner)).into();
        assert!(others.iter().all(Guest::is_in));
        assert_eq!(crowd.iter().filter(|guest| guest.is_in()).count(), 1);
    }

    #[test]
    fn places_are_given_back_and_each_kind_has_its_own() {
        let places = Places::new(1 << 20);
        let owner: OwnerName = "ada".parse().unwrap();
        let leave = Rc::new(Notify::new());
        let all: Vec<_> =
            (0..OTHERS).map(|_| places.enter(&owner, Role::Client, &leave).unwrap()).collect();
        assert_eq!(places.others.taken.borrow().places.len(), OTHERS);
        for role in [Role::Server, Role::Admin, Role::Scheduler, Role::Viewer] {
            assert!(places.enter(&owner, role, &leave).is_some(), "{role}");
        }
        drop(all);
        for hall in [&places.servers, &places.admins, &places.others] {
            let taken = hall.taken.borrow();
            assert!(taken.places.is_empty() && taken.counts.is_empty());
        }
        // Where few files may be open, all kinds have some.
        let few = Places::new(1024);
        let (servers, admins) = (few.servers.most, few.admins.most);
        assert!(servers > 100 && admins > 30 && servers + admins + few.others.most <= 512);
    }
}
