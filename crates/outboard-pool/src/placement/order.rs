//! In which order devices and servers are tried.

use super::Policy;
use crate::state::{Entry, OfClass, Place, Pool, Slot};
use crate::words::{Request, Use};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Devices in some order.
type Places<'a> = Box<dyn Iterator<Item = Place> + 'a>;

/// All devices that fit, on servers other than these, best first, found as they are asked for.
pub(super) fn devices<'a>(
    pool: &'a Pool,
    request: &'a Request,
    policy: Policy,
    without: &'a BTreeSet<u32>,
) -> Places<'a> {
    let all = on_all(pool, request, policy);
    if without.is_empty() {
        return all;
    }
    Box::new(all.filter(|place| !without.contains(&place.server)))
}

fn on_all<'a>(pool: &'a Pool, request: &'a Request, policy: Policy) -> Places<'a> {
    let Some(label) = &request.near else { return everywhere(pool, request, policy) };
    let near: BTreeSet<u32> = pool.labelled(label).collect();
    let mut first: Vec<_> = near
        .iter()
        .filter_map(|server| Some((*server, pool.entry(*server)?)))
        .flat_map(|(server, entry)| {
            on_server(pool, (server, entry), request, policy)
                .into_iter()
                .map(move |(key, slot)| (key, Place { server, slot }))
        })
        .collect();
    first.sort_unstable();
    let then = everywhere(pool, request, policy).filter(move |place| !near.contains(&place.server));
    Box::new(first.into_iter().map(|(_, place)| place).chain(then))
}

fn everywhere<'a>(pool: &'a Pool, request: &'a Request, policy: Policy) -> Places<'a> {
    let fitting = pool.index().classes.iter().filter(|(class, _)| {
        class.is_wanted(request) && class.memory_bytes >= request.memory_bytes
    });
    let places: Places<'a> = match policy {
        Policy::BestFit => least_memory(fitting.map(|(_, of)| of), request),
        Policy::Spread => Box::new(fitting.flat_map(move |(class, of)| {
            let slots = move |slot: &Slot| slot.class == *class;
            let servers = of.by_idle.values().rev().flatten();
            let idle = servers.flat_map(move |server| idle_of(pool, *server, slots));
            idle.chain(partly_used(of, request).rev().flat_map(|set| {
                set.range((request.memory_bytes, FIRST)..).rev().map(|(_, place)| *place)
            }))
        })),
        Policy::Pack | Policy::Linked => Box::new(fitting.flat_map(move |(class, of)| {
            let slots = move |slot: &Slot| slot.class == *class;
            let servers = of.by_idle.values().flatten();
            let idle = servers.flat_map(move |server| idle_of(pool, *server, slots));
            let used = partly_used(of, request).flat_map(|set| {
                set.range((request.memory_bytes, FIRST)..).map(|(_, place)| *place)
            });
            used.chain(idle)
        })),
    };
    Box::new(places.filter(|place| pool.may_take(*place)))
}

const FIRST: Place = Place { server: 0, slot: 0 };

/// The sets of devices of which somebody has something, and of which there is enough.
fn partly_used<'a>(
    of: &'a OfClass,
    request: &Request,
) -> impl DoubleEndedIterator<Item = &'a BTreeSet<(u64, Place)>> + use<'a> {
    let least = request.usage.share().percent();
    of.by_share.range(least..100).map(|(_, set)| set)
}

fn idle_of<'a>(
    pool: &'a Pool,
    server: u32,
    wanted: impl Fn(&Slot) -> bool + 'a,
) -> impl Iterator<Item = Place> + 'a {
    let entry = pool.entry(server);
    entry
        .into_iter()
        .flat_map(move |entry| {
            let idle =
                (0..).zip(&entry.slots).filter(|(_, slot)| entry.gives(slot) && slot.is_idle());
            let places = idle.map(move |(number, slot)| (Place { server, slot: number }, slot));
            places.collect::<Vec<_>>()
        })
        .filter(move |(_, slot)| wanted(slot))
        .map(|(place, _)| place)
}

/// Merges the sets of all classes and shares, each of which is in order of free bytes.
fn least_memory<'a>(
    classes: impl Iterator<Item = &'a OfClass>,
    request: &'a Request,
) -> Places<'a> {
    let least = request.usage.share().percent();
    let mut sets: Vec<_> = classes
        .flat_map(|of| of.by_share.range(least..))
        .map(|(percent, set)| (*percent, set.range((request.memory_bytes, FIRST)..)))
        .collect();
    let mut heads = BinaryHeap::new();
    for (number, (percent, set)) in sets.iter_mut().enumerate() {
        heads.extend(set.next().map(|(bytes, place)| Reverse((*bytes, *percent, *place, number))));
    }
    Box::new(std::iter::from_fn(move || {
        let Reverse((_, percent, place, number)) = heads.pop()?;
        let next = sets.get_mut(number)?.1.next();
        heads.extend(next.map(|(bytes, place)| Reverse((*bytes, percent, *place, number))));
        Some(place)
    }))
}

/// The smaller, the better.
type Key = (u64, u64, u64);

fn key(slot: &Slot, policy: Policy) -> Key {
    let (size, percent) = (slot.class.memory_bytes, u64::from(slot.free_percent));
    match policy {
        Policy::Pack | Policy::Linked => (size, percent, slot.free_bytes),
        Policy::Spread => (size, 100 - percent, u64::MAX - slot.free_bytes),
        Policy::BestFit => (slot.free_bytes, percent, 0),
    }
}

/// The devices of a server that fit, best first.
pub(super) fn on_server(
    pool: &Pool,
    (server, entry): (u32, &Entry),
    request: &Request,
    policy: Policy,
) -> Vec<(Key, u8)> {
    let fits = |number: u8, slot: &Slot| {
        entry.gives(slot)
            && slot.fits(request.memory_bytes, request.usage)
            && pool.may_take(Place { server, slot: number })
            && slot.class.is_wanted(request)
    };
    let slots = (0..).zip(&entry.slots).filter(|(number, slot)| fits(*number, slot));
    let mut fitting: Vec<(Key, u8)> =
        slots.map(|(number, slot)| (key(slot, policy), number)).collect();
    fitting.sort_unstable();
    fitting
}

/// The servers on which all devices of the request might be, best first.
pub(super) fn servers<'a>(
    pool: &'a Pool,
    request: &'a Request,
    policy: Policy,
) -> Box<dyn Iterator<Item = u32> + 'a> {
    // Exclusive devices are idle ones, so servers with fewer of those need no look.
    let least = if request.usage == Use::Exclusive { request.devices } else { 0 };
    let by_idle = pool.index().by_idle.range(least..).map(|(_, servers)| servers);
    let all: Box<dyn Iterator<Item = u32>> = match policy {
        Policy::Spread => Box::new(by_idle.rev().flatten().copied()),
        _ => Box::new(by_idle.flatten().copied()),
    };
    let Some(label) = &request.near else { return all };
    let near: BTreeSet<u32> = pool.labelled(label).collect();
    let mut first: Vec<(u32, u32)> = near
        .iter()
        .filter_map(|server| Some((pool.entry(*server)?.idle(), *server)))
        .filter(|(idle, _)| *idle >= least)
        .collect();
    first.sort_unstable_by_key(|(idle, server)| match policy {
        Policy::Spread => (u32::MAX - idle, *server),
        _ => (*idle, *server),
    });
    let then = all.filter(move |server| !near.contains(server));
    Box::new(first.into_iter().map(|(_, server)| server).chain(then))
}
