//! Where devices with so much free are, without looking at all of them.

use super::class::Class;
use super::entry::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A device: its server, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) server: u32,
    pub(crate) slot: u8,
}

/// The devices of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OfClass {
    /// All, also those that are not given out.
    pub(crate) registered: usize,
    /// Those given out, by the percent of multiprocessors that are free, then by free bytes. There
    /// are at most 101 such sets, so that what fits in both is found by one look into each.
    pub(crate) by_share: BTreeMap<u8, BTreeSet<(u64, Place)>>,
    /// Servers by how many idle devices of this class they have, which is at least one.
    pub(crate) by_idle: BTreeMap<u32, BTreeSet<u32>>,
}

/// Kept at every change of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Index {
    pub(crate) classes: BTreeMap<Class, OfClass>,
    /// Servers by how many idle devices of any class they have.
    pub(crate) by_idle: BTreeMap<u32, BTreeSet<u32>>,
}

fn add<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: K, value: V) {
    map.entry(key).or_default().insert(value);
}

/// An empty set goes, so that a state is equal to one that never had it.
fn take<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

fn idle_by_class(entry: &Entry) -> BTreeMap<&Class, u32> {
    let mut counts = BTreeMap::new();
    for slot in entry.slots.iter().filter(|slot| entry.gives(slot) && slot.is_idle()) {
        *counts.entry(&slot.class).or_default() += 1;
    }
    counts
}

impl Index {
    pub(crate) fn insert(&mut self, server: u32, entry: &Entry) {
        for (place, slot) in places(server, entry) {
            if !self.classes.contains_key(&slot.class) {
                self.classes.insert(slot.class.clone(), OfClass::default());
            }
            let Some(class) = self.classes.get_mut(&slot.class) else { continue };
            class.registered += 1;
            if entry.gives(slot) {
                add(&mut class.by_share, slot.free_percent, (slot.free_bytes, place));
            }
        }
        for (class, count) in idle_by_class(entry) {
            if let Some(class) = self.classes.get_mut(class) {
                add(&mut class.by_idle, count, server);
            }
        }
        add(&mut self.by_idle, entry.idle(), server);
    }

    pub(crate) fn remove(&mut self, server: u32, entry: &Entry) {
        take(&mut self.by_idle, &entry.idle(), &server);
        for (class, count) in idle_by_class(entry) {
            if let Some(class) = self.classes.get_mut(class) {
                take(&mut class.by_idle, &count, &server);
            }
        }
        for (place, slot) in places(server, entry) {
            let Some(class) = self.classes.get_mut(&slot.class) else { continue };
            if entry.gives(slot) {
                take(&mut class.by_share, &slot.free_percent, &(slot.free_bytes, place));
            }
            class.registered -= 1;
            if class.registered == 0 {
                self.classes.remove(&slot.class);
            }
        }
    }
}

fn places(server: u32, entry: &Entry) -> impl Iterator<Item = (Place, &super::entry::Slot)> {
    (0..).zip(&entry.slots).map(move |(slot, device)| (Place { server, slot }, device))
}
