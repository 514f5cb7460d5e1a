//! Seats for clients that have not finished their hello, and for other connections for which the
//! server waits. Their number is limited: the connection that has been silent for the longest makes
//! room for a new one.
//!
//! Clients on this machine have seats of their own, so that remote clients cannot keep them out.
//! The address that holds the most seats gives up its oldest one: a machine that opens thousands of
//! connections only displaces its own. If each comes from another address, every new connection
//! gets a seat, and the oldest ones, which had the longest time for their hello, lose theirs.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The origin of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A [machine], over TCP.
    Machine(IpAddr),
    /// A virtual machine, by its number of vsock.
    Guest(u32),
    /// A virtual machine, by the process of its hypervisor.
    Hypervisor(u32),
    /// A user of this machine, by the Unix socket.
    User(u32),
}

/// Represents the machine with this address: the owner of one IPv6 address has all of its network.
pub fn machine(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// The seats for those at their hello.
pub struct Hellos {
    remote: Rc<Seats>,
    local: Rc<Seats>,
}

/// Seats of one kind.
pub struct Seats {
    most: usize,
    /// A connection that has had its seat for this long may lose it.
    fair: Duration,
    taken: RefCell<AllTaken>,
}

/// The seats that are taken. Strangers come by the thousand, so that none of them is looked at in
/// vain.
#[derive(Default)]
struct AllTaken {
    /// The longest first.
    order: VecDeque<Rc<Taken>>,
    /// How many there are from each place.
    counts: HashMap<Origin, usize>,
}

struct Taken {
    from: Origin,
    since: Cell<Instant>,
    leave: Notify,
}

/// A seat; free again when dropped.
pub struct Seat {
    seats: Rc<Seats>,
    taken: Rc<Taken>,
}

/// A client that means to speak does so with its first bytes; a connection that has had its seat
/// for this long may lose it.
const FIRST_BYTES_WITHIN: Duration = Duration::from_millis(100);
/// One of so many seats is few for one place: several clients of a machine come at once.
const FEW: usize = 32;

impl Hellos {
    /// So many seats for clients over TCP, and so many for those by the socket.
    pub fn new(remote: usize, local: usize) -> Hellos {
        Hellos {
            remote: Seats::new(remote, FIRST_BYTES_WITHIN),
            local: Seats::new(local, FIRST_BYTES_WITHIN),
        }
    }

    /// A seat, if there is one or can be made.
    pub fn enter(&self, from: Origin) -> Option<Seat> {
        match from {
            Origin::Machine(_) | Origin::Guest(_) | Origin::Hypervisor(_) => {
                self.remote.enter(from)
            }
            Origin::User(_) => self.local.enter(from),
        }
    }
}

impl Seats {
    /// So many, of which each can be had for so long.
    pub fn new(most: usize, fair: Duration) -> Rc<Seats> {
        Rc::new(Seats { most, fair, taken: RefCell::default() })
    }

    /// A seat, if there is one or can be made.
    pub fn enter(self: &Rc<Self>, from: Origin) -> Option<Seat> {
        let mut all = self.taken.borrow_mut();
        if all.order.len() >= self.most {
            let next = all.next_to_go(from, self.fair, self.most / FEW)?;
            all.remove(next)?.leave.notify_one();
        }
        let taken = Rc::new(Taken { from, since: Cell::new(Instant::now()), leave: Notify::new() });
        all.order.push_back(Rc::clone(&taken));
        *all.counts.entry(from).or_default() += 1;
        Some(Seat { seats: Rc::clone(self), taken })
    }

    /// The same, and waits for a seat as long as it takes until one has been had for its time.
    /// `None` if all speak.
    pub async fn enter_or_wait(self: &Rc<Self>, from: Origin) -> Option<Seat> {
        let seat = self.enter(from);
        if seat.is_some() {
            return seat;
        }
        tokio::time::sleep(self.fair).await;
        self.enter(from)
    }
}

impl AllTaken {
    /// Which of those that are there makes room for one from there, if any is to: the longest of
    /// those from where most come, or of all if nowhere more than a `few` come from.
    fn next_to_go(&self, newcomer: Origin, fair: Duration, few: usize) -> Option<usize> {
        let most = *self.counts.values().max()?;
        let is_crowd =
            |taken: &Rc<Taken>| most <= few || self.counts.get(&taken.from) == Some(&most);
        let at = self.order.iter().position(is_crowd)?;
        // A client whose address holds fewer seats need not wait until the others have had their
        // time.
        let is_rarer = self.counts.get(&newcomer).is_none_or(|own| *own < most.max(few));
        (is_rarer || self.order[at].since.get().elapsed() >= fair).then_some(at)
    }

    fn remove(&mut self, at: usize) -> Option<Rc<Taken>> {
        let taken = self.order.remove(at)?;
        if let Some(count) = self.counts.get_mut(&taken.from) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&taken.from);
            }
        }
        Some(taken)
    }

    fn find(&self, taken: &Rc<Taken>) -> Option<usize> {
        self.order.iter().position(|other| Rc::ptr_eq(other, taken))
    }
}

impl Seat {
    /// Returns when another connection needs the seat.
    pub async fn is_wanted(&self) {
        self.taken.leave.notified().await;
    }

    /// The client has said something: it has its time anew to say the rest.
    pub fn has_spoken(&self) {
        self.taken.since.set(Instant::now());
        let mut all = self.seats.taken.borrow_mut();
        if let Some(own) = all.find(&self.taken).and_then(|at| all.order.remove(at)) {
            all.order.push_back(own);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.seats.taken.borrow_mut();
        if let Some(at) = all.find(&self.taken) {
            all.remove(at);
        }
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
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_millis(1), seat.is_wanted()).await.is_ok()
        })
    }

    /// As if somebody had sat there for longer than is fair.
    fn age(seat: &Seat) {
        seat.taken.since.set(Instant::now() - 2 * FIRST_BYTES_WITHIN);
    }

    #[test]
    fn who_has_been_silent_the_longest_makes_room() {
        let hellos = Hellos::new(2, 2);
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
        assert!(
            hellos.remote.taken.borrow().order.is_empty()
                && hellos.remote.taken.borrow().counts.is_empty(),
            "seats are given back"
        );
    }

    #[test]
    fn a_newcomer_waits_until_another_has_had_its_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let seats = Seats::new(2, Duration::from_millis(10));
        runtime.block_on(async {
            let mut all = Vec::new();
            for number in 0..20 {
                all.push(
                    seats
                        .enter_or_wait(machine(1))
                        .await
                        .unwrap_or_else(|| panic!("no seat for number {number}")),
                );
            }
            assert_eq!(seats.taken.borrow().order.len(), 2);
        });
    }

    #[test]
    fn those_on_this_machine_have_seats_of_their_own() {
        let hellos = Hellos::new(1, 1);
        let stranger = hellos.enter(machine(1)).unwrap();
        assert!(hellos.enter(machine(1)).is_none());
        let user = hellos.enter(Origin::User(0)).unwrap();
        assert!(!is_wanted(&stranger) && !is_wanted(&user));
        assert!(hellos.enter(Origin::User(0)).is_none());
    }

    #[test]
    fn one_machine_does_not_keep_others_out() {
        let hellos = Hellos::new(8, 8);
        let crowd: Vec<Seat> = (0..7).map(|_| hellos.enter(machine(1)).unwrap()).collect();
        let lone = hellos.enter(machine(2)).unwrap();
        assert!(hellos.enter(machine(1)).is_none(), "its own have not had their time");
        age(&lone);
        let other = hellos.enter(machine(3)).unwrap();
        assert!(is_wanted(&crowd[0]) && !is_wanted(&lone) && !is_wanted(&other));
    }

    #[test]
    fn of_many_machines_the_first_makes_room_at_once() {
        let hellos = Hellos::new(4, 4);
        let seats: Vec<Seat> =
            (0..4).map(|number| hellos.enter(machine(number)).unwrap()).collect();
        for (number, seat) in (4..8).zip(&seats) {
            assert!(!is_wanted(seat));
            std::mem::forget(hellos.enter(machine(number)).unwrap());
            assert!(is_wanted(seat), "{number}");
        }
        assert!(hellos.enter(machine(7)).is_none(), "one that is there already waits for its turn");
    }

    #[test]
    fn a_network_is_one_machine() {
        let of = |text: &str| super::machine(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::9"));
        assert_ne!(of("2001:db8:1:2::"), of("2001:db8:1:3::"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
