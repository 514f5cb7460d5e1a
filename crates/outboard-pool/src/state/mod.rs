//! The state of a pool: its servers, who has what of them, and what is free.

mod accounts;
mod class;
mod entry;
mod index;

pub use accounts::{Quota, Quotas, Usage};
pub(crate) use entry::{Entry, Slot};
pub(crate) use index::{Index, OfClass, Place};

use crate::words::{
    Condition, Device, Granted, GroupName, Label, LeaseNumber, Malformed, Named, OwnerName,
    Request, Server, ServerName,
};
use accounts::Accounts;
use class::Class;
use std::collections::{BTreeMap, BTreeSet};

/// Why something granted cannot be entered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotEntered {
    /// A lease has one number, and a number one lease.
    #[error("lease {0} is there already; give back the old one or take another number")]
    Number(LeaseNumber),
    /// It was placed on another state of the pool.
    #[error(
        "{} of {} has no longer what lease {number} was to get; place the request again",
        granted.device, granted.server
    )]
    Gone {
        /// The lease.
        number: LeaseNumber,
        /// What is not free.
        granted: Granted,
    },
}

#[derive(Clone, Debug, PartialEq)]
struct Holder {
    owner: OwnerName,
    group: GroupName,
    granted: Vec<Granted>,
}

/// Servers, and what leases have of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    entries: Vec<Option<Entry>>,
    names: BTreeMap<ServerName, u32>,
    labels: BTreeMap<Label, BTreeSet<u32>>,
    index: Index,
    accounts: Accounts,
    leases: BTreeMap<LeaseNumber, Holder>,
    quotas: Quotas,
    /// Devices that placement leaves alone.
    apart: BTreeSet<Place>,
    /// Servers whose devices are given only if no others will do.
    last: BTreeSet<u32>,
}

fn labels(entry: &Entry) -> impl Iterator<Item = Label> {
    let labels = &entry.server.labels;
    labels.iter().map(|(key, value)| Label { key: key.clone(), value: value.clone() })
}

impl Pool {
    /// A pool without servers.
    #[must_use]
    pub fn new(quotas: Quotas) -> Pool {
        Pool { quotas, ..Pool::default() }
    }

    /// Adds a server, or what it says of itself now. Returns the leases that are over, since it
    /// does not have any more what they were granted.
    ///
    /// # Errors
    ///
    /// If the server cannot be as described. Nothing has changed then.
    pub fn register(&mut self, server: Server) -> Result<Vec<LeaseNumber>, Malformed> {
        server.check()?;
        let had = self.leases_of(&server.name);
        let old = self.names.get(&server.name).copied();
        let number = old.unwrap_or_else(|| self.vacancy());
        if old.is_some() {
            self.withdraw(number);
        }
        self.names.insert(server.name.clone(), number);
        let mut entry = Entry::new(server);
        let mut over = Vec::new();
        for lease in had {
            let mut granted =
                self.granted(lease).iter().filter(|one| one.server == entry.server.name);
            // All of a lease's devices or none: a copy is cheap next to a registration.
            let mut tried = entry.clone();
            if granted.all(|one| tried.take(one)) {
                entry = tried;
            } else {
                over.push(lease);
            }
        }
        for label in labels(&entry) {
            self.labels.entry(label).or_default().insert(number);
        }
        self.index.insert(number, &entry);
        self.entries[number as usize] = Some(entry);
        for lease in &over {
            let name = self.entry(number).map(|entry| entry.server.name.clone());
            self.end(*lease, name.as_ref());
        }
        Ok(over)
    }

    /// Removes a server. Returns the leases that end by it.
    pub fn remove(&mut self, name: &ServerName) -> Vec<LeaseNumber> {
        let over = self.leases_of(name);
        if let Some(number) = self.names.remove(name) {
            self.withdraw(number);
            self.last.remove(&number);
        }
        for lease in &over {
            self.end(*lease, Some(name));
        }
        over
    }

    /// Says whether the server takes leases; those that it has stay. A server that is not there is
    /// `false`.
    pub fn set_condition(&mut self, name: &ServerName, condition: Condition) -> bool {
        self.change(name, |entry| entry.server.condition = condition).is_some()
    }

    /// Whether the devices of a server are given only if no others will do.
    pub fn set_last(&mut self, name: &ServerName, is_last: bool) {
        let Some(number) = self.names.get(name) else { return };
        if is_last {
            self.last.insert(*number);
        } else {
            self.last.remove(number);
        }
    }

    /// Enters what a lease has been granted.
    ///
    /// # Errors
    ///
    /// If it is not free. Nothing has changed then. Quotas are not looked at: placement does, and a
    /// lease outlives a quota that becomes smaller.
    pub fn grant(
        &mut self,
        number: LeaseNumber,
        owner: &OwnerName,
        group: &GroupName,
        granted: Vec<Granted>,
    ) -> Result<(), NotEntered> {
        if self.leases.contains_key(&number) {
            return Err(NotEntered::Number(number));
        }
        for (done, one) in granted.iter().enumerate() {
            if !self.change(&one.server, |entry| entry.take(one)).unwrap_or(false) {
                for undone in &granted[..done] {
                    self.change(&undone.server, |entry| entry.give_back(undone));
                }
                return Err(NotEntered::Gone { number, granted: one.clone() });
            }
        }
        self.accounts.add(owner, group, Usage::of(&granted));
        let holder = Holder { owner: owner.clone(), group: group.clone(), granted };
        self.leases.insert(number, holder);
        Ok(())
    }

    /// Gives back what the lease has. Whether there was one.
    pub fn release(&mut self, number: LeaseNumber) -> bool {
        self.end(number, None)
    }

    /// Gives back what the lease has on one server.
    pub fn release_on(&mut self, number: LeaseNumber, server: &ServerName) {
        let Some(holder) = self.leases.get_mut(&number) else { return };
        let (back, left) = std::mem::take(&mut holder.granted)
            .into_iter()
            .partition::<Vec<Granted>, _>(|one| one.server == *server);
        holder.granted = left;
        self.accounts.subtract(&holder.owner, &holder.group, Usage::of(&back));
        if holder.granted.is_empty() {
            self.leases.remove(&number);
        }
        for one in back {
            self.change(server, |entry| entry.give_back(&one));
        }
    }

    /// What the lease has; nothing if there is none.
    #[must_use]
    pub fn granted(&self, number: LeaseNumber) -> &[Granted] {
        self.leases.get(&number).map_or(&[], |holder| &holder.granted)
    }

    /// The servers, in order of their names.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.names.values().filter_map(|number| self.entry(*number)).map(|entry| &entry.server)
    }

    /// The server of that name.
    #[must_use]
    pub fn server(&self, name: &ServerName) -> Option<&Server> {
        self.names.get(name).and_then(|number| self.entry(*number)).map(|entry| &entry.server)
    }

    /// The device that was granted, if its server is there and has it.
    #[must_use]
    pub fn device(&self, granted: &Granted) -> Option<&Device> {
        let server = self.server(&granted.server)?;
        server.devices.iter().find(|device| device.uuid == granted.device)
    }

    /// What of each device of a server is free: bytes, and percent of multiprocessors.
    pub fn free(&self, name: &ServerName) -> impl Iterator<Item = (u64, u8)> {
        let entry = self.names.get(name).and_then(|number| self.entry(*number));
        let slots = entry.map_or(&[] as &[Slot], |entry| &entry.slots);
        slots.iter().map(|slot| (slot.free_bytes, slot.free_percent))
    }

    /// The kinds of devices (model, memory, capability) that would do for the request if all were
    /// free, as numbers. A number is a kind's until a server is registered or removed.
    pub fn kinds(&self, request: &Request) -> impl Iterator<Item = usize> {
        let classes = self.index.classes.keys().enumerate();
        let would_do =
            |class: &Class| class.memory_bytes >= request.memory_bytes && class.is_wanted(request);
        classes.filter(move |(_, class)| would_do(class)).map(|(number, _)| number)
    }

    /// Has placement leave these devices alone from now on, and no others: they are kept for
    /// somebody. One whose server is registered anew or removed is kept no longer.
    pub fn set_apart<'a>(&mut self, devices: impl IntoIterator<Item = &'a Named>) {
        let place = |named: &Named| {
            let (server, entry) = self.find(&named.server)?;
            let mut slots = (0..).zip(&entry.slots);
            let (slot, _) = slots.find(|(_, slot)| slot.uuid == named.device)?;
            Some(Place { server, slot })
        };
        self.apart = devices.into_iter().filter_map(place).collect();
    }

    /// What an owner has.
    #[must_use]
    pub fn usage_of_owner(&self, owner: &OwnerName) -> Usage {
        self.accounts.of_owner(owner)
    }

    /// What a group has.
    #[must_use]
    pub fn usage_of_group(&self, group: &GroupName) -> Usage {
        self.accounts.of_group(group)
    }

    /// The most that owners and groups may have.
    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Other quotas from now on. Who has more keeps it.
    pub fn set_quotas(&mut self, quotas: Quotas) {
        self.quotas = quotas;
    }

    pub(crate) fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get(number as usize)?.as_ref()
    }

    /// A server by its name, and its number.
    pub(crate) fn find(&self, name: &ServerName) -> Option<(u32, &Entry)> {
        let number = *self.names.get(name)?;
        Some((number, self.entry(number)?))
    }

    pub(crate) fn slot(&self, place: Place) -> Option<&Slot> {
        self.entry(place.server)?.slots.get(usize::from(place.slot))
    }

    pub(crate) fn may_take(&self, place: Place) -> bool {
        self.apart.is_empty() || !self.apart.contains(&place)
    }

    /// The servers whose devices are given only if no others will do.
    pub(crate) fn last(&self) -> &BTreeSet<u32> {
        &self.last
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// The servers with the label.
    pub(crate) fn labelled(&self, label: &Label) -> impl Iterator<Item = u32> {
        self.labels.get(label).into_iter().flatten().copied()
    }

    /// A number for another server.
    fn vacancy(&mut self) -> u32 {
        let free = self.entries.iter().position(Option::is_none).unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        u32::try_from(free).expect("servers fit into memory, so their number into 32 bits")
    }

    /// Takes a server out of everything that finds servers but its name.
    fn withdraw(&mut self, number: u32) {
        let Some(entry) = self.entries[number as usize].take() else { return };
        self.index.remove(number, &entry);
        self.apart.retain(|place| place.server != number);
        for label in labels(&entry) {
            if let Some(servers) = self.labels.get_mut(&label) {
                servers.remove(&number);
                if servers.is_empty() {
                    self.labels.remove(&label);
                }
            }
        }
    }

    fn change<T>(&mut self, name: &ServerName, how: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let number = *self.names.get(name)?;
        let entry = self.entries.get_mut(number as usize)?.as_mut()?;
        self.index.remove(number, entry);
        let result = how(entry);
        self.index.insert(number, entry);
        Some(result)
    }

    fn leases_of(&self, name: &ServerName) -> Vec<LeaseNumber> {
        let on_it = |holder: &Holder| holder.granted.iter().any(|one| one.server == *name);
        self.leases.iter().filter(|(_, holder)| on_it(holder)).map(|(number, _)| *number).collect()
    }

    /// Ends a lease. The server `without` has nothing of it any more.
    fn end(&mut self, number: LeaseNumber, without: Option<&ServerName>) -> bool {
        let Some(holder) = self.leases.remove(&number) else { return false };
        for one in holder.granted.iter().filter(|one| Some(&one.server) != without) {
            self.change(&one.server, |entry| entry.give_back(one));
        }
        self.accounts.subtract(&holder.owner, &holder.group, Usage::of(&holder.granted));
        true
    }
}
