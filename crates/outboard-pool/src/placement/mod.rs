//! Which devices a request gets: one function of a pool's state and a request, for everybody who
//! places.

mod foresight;
mod only;
mod order;
mod refusal;
mod same;

pub use foresight::{Foreseen, foresee};
pub use refusal::{NotFree, Overdrawn, Refusal};

use crate::state::{Place, Pool, Usage};
use crate::words::{Granted, Malformed, Request, Servers};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A way to choose devices.
pub trait Placement {
    /// Which devices the request gets of what is free now, or why none. It depends on nothing else
    /// and changes nothing: [`Pool::grant`] enters the answer.
    ///
    /// # Errors
    ///
    /// If it cannot have what it asks for.
    fn place(&self, pool: &Pool, request: &Request) -> Result<Vec<Granted>, Refusal>;
}

/// What is preferred among devices that fit. With all of them, servers with the label that a
/// request names come first, and small devices before large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Devices and servers that are used already, so that others stay empty.
    Pack,
    /// Devices and servers that are used least.
    Spread,
    /// Devices with the least free memory that will do.
    BestFit,
    /// As `Pack`; several devices are on one server, with NVLink between them, where there are
    /// such.
    Linked,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 4] = [Policy::Pack, Policy::Spread, Policy::BestFit, Policy::Linked];

    /// Where to try, first things first.
    fn attempts(self, request: &Request) -> &'static [Servers] {
        match (request.servers, self) {
            (Servers::Same, _) => &[Servers::Same],
            (Servers::Distinct, _) => &[Servers::Distinct],
            (Servers::Any, _) if request.devices == 1 => &[Servers::Any],
            (Servers::Any, Policy::Spread) => &[Servers::Distinct, Servers::Any],
            (Servers::Any, Policy::Pack | Policy::Linked) => &[Servers::Same, Servers::Any],
            (Servers::Any, Policy::BestFit) => &[Servers::Any],
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Pack => "pack",
            Policy::Spread => "spread",
            Policy::BestFit => "bestfit",
            Policy::Linked => "linked",
        })
    }
}

impl FromStr for Policy {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Policy, Malformed> {
        let named = Policy::ALL.into_iter().find(|policy| policy.to_string() == text);
        named.ok_or_else(|| {
            let all = Policy::ALL.map(|policy| policy.to_string()).join(", ");
            Malformed(format!("`{text}` is no policy; the policies are {all}"))
        })
    }
}

impl Placement for Policy {
    fn place(&self, pool: &Pool, request: &Request) -> Result<Vec<Granted>, Refusal> {
        request.check().map_err(Refusal::Malformed)?;
        may_be(pool, request)?;
        if !request.only.is_empty() {
            let places = only::choose(pool, request)?;
            return allowed(pool, request, granted(pool, request, &places));
        }
        let avoided = request.avoid.iter().filter_map(|name| pool.find(name));
        let avoided: BTreeSet<u32> = avoided.map(|(server, _)| server).collect();
        let places = if pool.last().is_empty() {
            self.choose(pool, request, &avoided)
        } else {
            let with_last = &avoided | pool.last();
            let without_last = self.choose(pool, request, &with_last);
            without_last.or_else(|_| self.choose(pool, request, &avoided))
        };
        let places = places.map_err(|found| not_free(pool, request, found))?;
        allowed(pool, request, granted(pool, request, &places))
    }
}

impl Policy {
    /// The devices that the request gets on servers other than these, or how many there are.
    fn choose(
        self,
        pool: &Pool,
        request: &Request,
        without: &BTreeSet<u32>,
    ) -> Result<Vec<Place>, u32> {
        let mut found = 0;
        for servers in self.attempts(request) {
            let chosen = match servers {
                Servers::Same => same::choose(pool, request, self, without),
                Servers::Any => take(request, order::devices(pool, request, self, without)),
                Servers::Distinct => {
                    let mut used = BTreeSet::new();
                    let devices = order::devices(pool, request, self, without);
                    take(request, devices.filter(|place| used.insert(place.server)))
                }
            };
            match chosen {
                Ok(places) => return Ok(places),
                Err(most) => found = most,
            }
        }
        Err(found)
    }
}

/// So many of them, or how many there are.
fn take(request: &Request, places: impl Iterator<Item = Place>) -> Result<Vec<Place>, u32> {
    let places: Vec<Place> = places.take(request.devices as usize).collect();
    match u32::try_from(places.len()).unwrap_or(u32::MAX) {
        found if found < request.devices => Err(found),
        _ => Ok(places),
    }
}

/// Refuses what this pool could not give if everything in it were free.
fn may_be(pool: &Pool, request: &Request) -> Result<(), Refusal> {
    /// How many classes a refusal lists.
    const LISTED: usize = 8;
    let classes = &pool.index().classes;
    let largest = classes.keys().rfind(|class| class.is_wanted(request));
    match largest.map(|class| class.memory_bytes) {
        None => Err(Refusal::NoSuchDevice(
            classes.keys().rev().take(LISTED).map(ToString::to_string).collect(),
        )),
        Some(most) if most < request.memory_bytes => {
            Err(Refusal::TooMuchMemory(request.memory_bytes, most))
        }
        Some(_) => Ok(()),
    }
}

fn granted(pool: &Pool, request: &Request, places: &[Place]) -> Vec<Granted> {
    let of = |place: &Place| {
        let slot = pool.slot(*place)?;
        Some(Granted {
            server: pool.entry(place.server)?.server.name.clone(),
            device: slot.uuid.clone(),
            memory_bytes: slot.taken_by(request.memory_bytes, request.usage),
            usage: request.usage,
        })
    };
    places.iter().filter_map(of).collect()
}

/// What is granted, if owner and group may have it: only now is known how much memory exclusive
/// devices have.
fn allowed(pool: &Pool, request: &Request, granted: Vec<Granted>) -> Result<Vec<Granted>, Refusal> {
    within_quotas(pool, request, &granted)?;
    Ok(granted)
}

/// Whether owner and group of the request may have that much more now.
///
/// # Errors
///
/// If their quotas do not allow it.
pub fn within_quotas(pool: &Pool, request: &Request, granted: &[Granted]) -> Result<(), Refusal> {
    let wants = Usage::of(granted);
    let (owner, group) = (&request.owner, &request.group);
    let overdrawn = |has: Usage, quota: crate::state::Quota| {
        (!quota.allows(has.plus(wants))).then_some(Overdrawn { has, wants, quota })
    };
    let (quotas, has) = (pool.quotas(), pool.usage_of_owner(owner));
    if let Some(overdrawn) = overdrawn(has, quotas.of_owner(owner)) {
        return Err(Refusal::OwnerQuota(owner.clone(), overdrawn));
    }
    if let Some(overdrawn) = overdrawn(pool.usage_of_group(group), quotas.of_group(group)) {
        return Err(Refusal::GroupQuota(group.clone(), overdrawn));
    }
    Ok(())
}

/// Why it is not free, from the ends of the index.
fn not_free(pool: &Pool, request: &Request, found: u32) -> Refusal {
    if found > 0 {
        let (wanted, servers) = (request.devices, request.servers);
        return Refusal::TooFew { wanted, found, servers };
    }
    if !request.avoid.is_empty() {
        return Refusal::NotElsewhere(request.avoid.clone());
    }
    let least = request.usage.share().percent();
    let wanted = pool.index().classes.iter().filter(|(class, _)| class.is_wanted(request));
    let (mut most_bytes, mut most_percent) = (None, None);
    for (_, of) in wanted {
        most_percent = most_percent.max(of.by_share.keys().next_back().copied());
        let sets = of.by_share.range(least..).filter_map(|(_, set)| set.last());
        most_bytes = most_bytes.max(sets.map(|(bytes, _)| *bytes).max());
    }
    Refusal::NotFree(NotFree::new(request, most_bytes, most_percent))
}
