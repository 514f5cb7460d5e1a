//! Devices that a request names.

use super::Refusal;
use crate::state::{Place, Pool};
use crate::words::{Named, Request};

/// The devices, if all of them are free.
pub(super) fn choose(pool: &Pool, request: &Request) -> Result<Vec<Place>, Refusal> {
    request.only.iter().map(|named| find(pool, request, named)).collect()
}

fn find(pool: &Pool, request: &Request, named: &Named) -> Result<Place, Refusal> {
    let not_there = || Refusal::NotThere(named.clone());
    let (server, entry) = pool.find(&named.server).ok_or_else(not_there)?;
    let mut slots = (0..).zip(&entry.slots);
    let (number, slot) = slots.find(|(_, slot)| slot.uuid == named.device).ok_or_else(not_there)?;
    if slot.class.memory_bytes < request.memory_bytes {
        return Err(Refusal::TooMuchMemory(request.memory_bytes, slot.class.memory_bytes));
    }
    let place = Place { server, slot: number };
    let fits = slot.fits(request.memory_bytes, request.usage);
    if !fits || !entry.gives(slot) || !pool.may_take(place) {
        return Err(Refusal::NamedNotFree(named.clone()));
    }
    Ok(place)
}
