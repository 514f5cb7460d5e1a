//! Several devices of one server.

use super::{Policy, order};
use crate::state::{Entry, Place, Pool};
use crate::words::{Request, Use};
use std::collections::BTreeSet;

/// What one server can give.
struct Offer {
    places: Vec<Place>,
    /// The smaller, the better: memory that stays free beside it, or pairs without NVLink.
    cost: u64,
}

/// The devices, on one server but none of these, or how many the best server has.
pub(super) fn choose(
    pool: &Pool,
    request: &Request,
    policy: Policy,
    without: &BTreeSet<u32>,
) -> Result<Vec<Place>, u32> {
    let wanted = request.devices as usize;
    let mut best: Option<Offer> = None;
    let servers = order::servers(pool, request, policy);
    for server in servers.filter(|server| !without.contains(server)) {
        let Some(entry) = pool.entry(server) else { continue };
        let fitting = order::on_server(pool, (server, entry), request, policy);
        if fitting.len() < wanted {
            continue;
        }
        let fitting: Vec<u8> = fitting.into_iter().map(|(_, slot)| slot).collect();
        let (slots, cost) = match policy {
            Policy::Linked => linked(entry, &fitting, wanted),
            Policy::BestFit => (fitting[..wanted].to_vec(), beside(entry, &fitting[..wanted])),
            // The first server that can is the best one.
            Policy::Pack | Policy::Spread => (fitting[..wanted].to_vec(), 0),
        };
        if best.as_ref().is_none_or(|best| cost < best.cost) {
            let places = slots.into_iter().map(|slot| Place { server, slot }).collect();
            best = Some(Offer { places, cost });
        }
        if cost == 0 {
            break;
        }
    }
    best.map(|best| best.places).ok_or_else(|| most_on_one(pool, request, policy, without))
}

/// The most devices that fit of one server, also of those that were not looked at.
fn most_on_one(pool: &Pool, request: &Request, policy: Policy, without: &BTreeSet<u32>) -> u32 {
    let mut most = 0;
    for (idle, servers) in pool.index().by_idle.iter().rev() {
        let servers = servers.difference(without);
        let there = |server: &u32| Some((*server, pool.entry(*server)?));
        for entry in servers.filter_map(there) {
            if request.usage == Use::Exclusive && *idle as usize <= most {
                return u32::try_from(most).unwrap_or(u32::MAX);
            }
            most = most.max(order::on_server(pool, entry, request, policy).len());
        }
    }
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// The memory that is free on these devices now.
fn beside(entry: &Entry, slots: &[u8]) -> u64 {
    slots.iter().map(|slot| entry.slots[usize::from(*slot)].free_bytes).sum()
}

/// So many of these devices with many pairs that NVLink joins, and how many pairs it does not. From
/// each device it goes on to the one with the most links to those that it has.
fn linked(entry: &Entry, fitting: &[u8], wanted: usize) -> (Vec<u8>, u64) {
    let links = |slot: u8| entry.slots[usize::from(slot)].links;
    let mut best: (Vec<u8>, u64) = (fitting[..wanted].to_vec(), u64::MAX);
    for first in fitting {
        let (mut chosen, mut mask, mut pairs) = (vec![*first], 1 << first, 0);
        while chosen.len() < wanted {
            let left = fitting.iter().filter(|slot| mask & 1 << **slot == 0);
            // Of equal ones the first, which is the policy's choice.
            let Some(next) = left.rev().max_by_key(|slot| (links(**slot) & mask).count_ones())
            else {
                break;
            };
            pairs += u64::from((links(*next) & mask).count_ones());
            mask |= 1 << next;
            chosen.push(*next);
        }
        let missing = (wanted * (wanted - 1) / 2) as u64 - pairs;
        if missing < best.1 {
            best = (chosen, missing);
        }
        // Without any link all starts are alike.
        if best.1 == 0 || fitting.iter().all(|slot| links(*slot) == 0) {
            break;
        }
    }
    best
}
