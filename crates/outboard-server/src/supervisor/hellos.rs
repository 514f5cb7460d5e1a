//! Clients that are at their hello: only so many at once, and who has been silent the longest makes room for who comes.
//!
//! Those on this machine have seats of their own, so that strangers do not keep them out. Who takes most of the seats is the first to make room: one
//! machine that opens thousands of connections stands in its own way.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Where a client comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// A machine, over TCP.
    Machine(IpAddr),
    /// A user of this machine, by the Unix socket.
    User(u32),
}

/// The seats for those at their hello.
pub(super) struct Hellos {
    remote: Rc<Seats>,
    local: Rc<Seats>,
}

struct Seats {
    most: usize,
    /// Those taken, the longest first.
    taken: RefCell<VecDeque<Rc<Taken>>>,
}

struct Taken {
    from: Origin,
    since: Cell<Instant>,
    leave: Notify,
}

/// A seat; free again when dropped.
pub(super) struct Seat {
    seats: Rc<Seats>,
    taken: Rc<Taken>,
}

/// A client that means to speak does so with its first bytes; who has had this long can be sent away.
const FAIR: Duration = Duration::from_millis(100);

impl Hellos {
    /// So many seats for clients over TCP, and as many for those by the socket.
    pub(super) fn new(most: usize) -> Hellos {
        let seats = || Rc::new(Seats { most, taken: RefCell::default() });
        Hellos { remote: seats(), local: seats() }
    }

    /// A seat, if there is one or can be made.
    pub(super) fn enter(&self, from: Origin) -> Option<Seat> {
        let seats = match from {
            Origin::Machine(_) => &self.remote,
            Origin::User(_) => &self.local,
        };
        let mut all = seats.taken.borrow_mut();
        if all.len() >= seats.most {
            let next = next_to_go(&all, from)?;
            all.remove(next)?.leave.notify_one();
        }
        let taken = Rc::new(Taken { from, since: Cell::new(Instant::now()), leave: Notify::new() });
        all.push_back(Rc::clone(&taken));
        Some(Seat { seats: Rc::clone(seats), taken })
    }
}

/// Which of those that are there makes room for one from there, if any is to: the longest of those from where most come.
fn next_to_go(all: &VecDeque<Rc<Taken>>, newcomer: Origin) -> Option<usize> {
    let mut counts: HashMap<Origin, usize> = HashMap::new();
    for taken in all {
        *counts.entry(taken.from).or_default() += 1;
    }
    let (crowd, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let at = all.iter().position(|taken| taken.from == crowd)?;
    // Where more than half come from one place, others need not wait for these to have had their time.
    let crowded_out = crowd != newcomer && count > all.len() / 2;
    (crowded_out || all[at].since.get().elapsed() >= FAIR).then_some(at)
}

impl Seat {
    /// Returns when somebody else is to have the seat.
    pub(super) async fn is_wanted(&self) {
        self.taken.leave.notified().await;
    }

    /// The client has said something: it has its time anew to say the rest.
    pub(super) fn has_spoken(&self) {
        self.taken.since.set(Instant::now());
        let mut all = self.seats.taken.borrow_mut();
        if let Some(own) = all.iter().position(|taken| Rc::ptr_eq(taken, &self.taken)).and_then(|at| all.remove(at)) {
            all.push_back(own);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken.borrow_mut().retain(|taken| !Rc::ptr_eq(taken, &self.taken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(last: u8) -> Origin {
        Origin::Machine([10, 0, 0, last].into())
    }

    fn is_wanted(seat: &Seat) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(Duration::from_millis(1), seat.is_wanted()).await.is_ok() })
    }

    /// As if somebody had sat there for longer than is fair.
    fn age(seat: &Seat) {
        seat.taken.since.set(Instant::now() - 2 * FAIR);
    }

    #[test]
    fn who_has_been_silent_the_longest_makes_room() {
        let hellos = Hellos::new(2);
        let seat = || hellos.enter(machine(1));
        let (first, second) = (seat().unwrap(), seat().unwrap());
        assert!(seat().is_none(), "neither has had its time");
        age(&first);
        age(&second);
        let third = seat().unwrap();
        assert!(is_wanted(&first) && !is_wanted(&second) && !is_wanted(&third));
        second.has_spoken();
        assert!(seat().is_none(), "who has said something has its time anew");
        drop(first);
        drop((second, third));
        assert!(seat().is_some());
        assert!(hellos.remote.taken.borrow().is_empty(), "seats are given back");
    }

    #[test]
    fn those_on_this_machine_have_seats_of_their_own() {
        let hellos = Hellos::new(1);
        let stranger = hellos.enter(machine(1)).unwrap();
        assert!(hellos.enter(machine(1)).is_none());
        let user = hellos.enter(Origin::User(0)).unwrap();
        assert!(!is_wanted(&stranger) && !is_wanted(&user));
        assert!(hellos.enter(Origin::User(0)).is_none());
    }

    #[test]
    fn one_machine_does_not_keep_others_out() {
        let hellos = Hellos::new(8);
        let crowd: Vec<Seat> = (0..7).map(|_| hellos.enter(machine(1)).unwrap()).collect();
        let lone = hellos.enter(machine(2)).unwrap();
        assert!(hellos.enter(machine(1)).is_none(), "its own have not had their time");
        age(&lone);
        let other = hellos.enter(machine(3)).unwrap();
        assert!(is_wanted(&crowd[0]) && !is_wanted(&lone) && !is_wanted(&other));
    }
}
