//! Admission: which clients get a session, and in which order others wait. Without sockets or a
//! clock.
//!
//! First come, first served, for each device: a waiting client keeps later ones from the devices
//! that it waits for, and from nothing else. A client is therefore never delayed by one that wants
//! another device, and never overtaken without end.

use std::collections::BTreeSet;

use jiff::Timestamp;
use outboard_wire::handshake::{Refusal, RefusalCode};
use serde::{Deserialize, Serialize};

use super::tenure::Tenures;
use super::{Mode, Modes};

/// What a client wants. Fields that are added need a default: it is noted for servers of other
/// releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The holder of exclusive devices: an owner, or the machine of clients that have shown
    /// nothing.
    pub(crate) holder: String,
    pub(crate) owner: String,
    /// Sessions that the owner may have at once.
    pub(crate) owner_sessions: Option<u32>,
    /// Indices of devices; empty for all.
    pub(crate) devices: Vec<u32>,
    /// Bytes of each of them that it may need: they are promised.
    pub(crate) memory: u64,
    /// Those of the devices that nobody else may have meanwhile.
    #[serde(default)]
    pub(crate) exclusive: Vec<u32>,
    /// Its name, for its owner to read.
    pub(crate) client: String,
}

/// The server's resources.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    pub(super) modes: Modes,
    pub(super) sessions: usize,
    pub(super) memory: Option<u64>,
    /// Whether memory up to their limits is reserved for sessions.
    pub(super) promises: bool,
    pub(super) queue: usize,
}

/// Why a client is not admitted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// It is the owner's own number of sessions.
    own: bool,
    pub(super) sentence: String,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    In,
    Waits { place: u32, sentence: String },
}

/// A client that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Come {
    pub(super) number: u64,
    /// What it is refused with unless it is let in within a moment.
    pub(super) unless_soon: Option<Refusal>,
}

/// Clients that wait for a moment only, at most: for those who are just leaving.
const MOST_PASSING: usize = 64;

/// Admitted and waiting clients, in the order in which they came.
pub(super) struct Admission {
    policy: Policy,
    present: Vec<(u64, Request)>,
    waiting: Vec<(u64, Request)>,
    /// Those of them that wait for a moment only.
    passing: BTreeSet<u64>,
    tenures: Tenures,
    last: u64,
}

/// The holder of an exclusive device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) device: u32,
    pub(crate) holder: String,
    pub(crate) since: Timestamp,
}

impl Request {
    fn wants(&self, device: u32) -> bool {
        self.devices.is_empty() || self.devices.contains(&device)
    }

    /// Whether both want some device.
    fn meets(&self, other: &Request) -> bool {
        self.devices.is_empty()
            || other.devices.is_empty()
            || self.devices.iter().any(|device| other.wants(*device))
    }
}

impl Modes {
    fn is_exclusive(&self, device: u32) -> bool {
        *self.named.get(&device).unwrap_or(&self.usual) == Mode::Exclusive
    }

    /// A device that both want and that only one may have.
    fn contested(&self, one: &Request, other: &Request) -> Option<u32> {
        let named = self.named.keys().chain(&one.devices).chain(&other.devices);
        // All devices: some are named nowhere. The first stands for them.
        let all: BTreeSet<u32> = named.copied().chain([0]).collect();
        all.into_iter().find(|device| {
            let for_one = || one.exclusive.contains(device) || other.exclusive.contains(device);
            one.wants(*device) && other.wants(*device) && (self.is_exclusive(*device) || for_one())
        })
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}

impl Admission {
    pub(super) fn new(policy: Policy) -> Admission {
        Admission {
            policy,
            present: Vec::new(),
            waiting: Vec::new(),
            passing: BTreeSet::new(),
            tenures: Tenures::default(),
            last: 0,
        }
    }

    /// Whether a request can be met beside these.
    fn fits(&self, wanted: &Request, beside: &[&Request]) -> Result<(), Obstacle> {
        let other = |sentence| Err(Obstacle { own: false, sentence });
        let own: Vec<&&Request> = beside.iter().filter(|one| one.owner == wanted.owner).collect();
        if let Some(most) = wanted.owner_sessions
            && own.len() >= most as usize
        {
            // An unauthenticated client is told nothing of other machines.
            let near = own.iter().filter(|one| one.holder == wanted.holder);
            let names: Vec<&str> = near.map(|one| one.client.as_str()).take(8).collect();
            let owner = &wanted.owner;
            let mut sentence = format!("{owner} has as many sessions as it may have ({most})");
            if !names.is_empty() {
                sentence = format!("{sentence}: {}", names.join(", "));
            }
            return Err(Obstacle { own: true, sentence });
        }
        if beside.len() >= self.policy.sessions {
            return other(format!(
                "the server has as many sessions as it takes ({})",
                self.policy.sessions
            ));
        }
        for one in beside.iter().filter(|one| one.holder != wanted.holder) {
            if let Some(device) = self.policy.modes.contested(wanted, one) {
                // Other owners do not learn the holder's name.
                let has = match self.holder(device) {
                    Some(held) => {
                        format!("has had it since {}", held.since.strftime("%Y-%m-%d %H:%M UTC"))
                    }
                    None => "comes first".to_owned(),
                };
                return other(format!(
                    "device {device} is for one owner at a time, and another one {has}"
                ));
            }
        }
        if let Some(offered) = self.policy.memory.filter(|_| self.policy.promises) {
            let named: BTreeSet<u32> = beside
                .iter()
                .flat_map(|one| &one.devices)
                .chain(&wanted.devices)
                .copied()
                .collect();
            for device in named.into_iter().chain([0]).filter(|device| wanted.wants(*device)) {
                let others = beside.iter().filter(|one| one.wants(device)).map(|one| one.memory);
                let promised = others.fold(0, u64::saturating_add);
                if promised.saturating_add(wanted.memory) > offered {
                    let (needed, promised, offered) =
                        (gib(wanted.memory), gib(promised), gib(offered));
                    return other(format!(
                        "device {device} has no room for {needed:.1} GiB: {promised:.1} of {offered:.1} GiB are promised"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Decides about a request behind the first `ahead` waiting ones.
    fn judge(&self, wanted: &Request, ahead: usize) -> Result<(), Obstacle> {
        let present: Vec<&Request> = self.present.iter().map(|(_, one)| one).collect();
        self.fits(wanted, &present)?;
        // The holder of an exclusive device may use it from another process, too: the first one may
        // be waiting for that.
        let has_it = |one: &&Request| {
            one.holder == wanted.holder && self.policy.modes.contested(one, wanted).is_some()
        };
        if present.iter().any(has_it) {
            return Ok(());
        }
        // A client that waits only for other sessions of its own owner does not block others.
        let counts =
            |one: &&Request| self.fits(one, &present).err().is_none_or(|obstacle| !obstacle.own);
        let earlier = self.waiting[..ahead]
            .iter()
            .map(|(_, one)| one)
            .filter(|one| one.meets(wanted))
            .filter(counts);
        let beside: Vec<&Request> = present.iter().copied().chain(earlier).collect();
        let crowded = |mut obstacle: Obstacle| {
            obstacle.sentence = format!("others came first; {}", obstacle.sentence);
            obstacle
        };
        self.fits(wanted, &beside).map_err(crowded)
    }

    /// The holder of an exclusive device.
    fn holder(&self, device: u32) -> Option<Held> {
        let there = self.present.iter().filter(|(_, one)| {
            let is_exclusive = self.policy.modes.is_exclusive(device);
            (is_exclusive && one.wants(device)) || one.exclusive.contains(&device)
        });
        let since = |(number, one): &(u64, Request)| {
            Some((self.tenures.since(*number, device)?, one.holder.clone()))
        };
        let (since, holder) = there.filter_map(since).min()?;
        Some(Held { device, holder, since })
    }

    /// The holders of all exclusive devices. Of devices that no client has named, only that many
    /// are known.
    pub(super) fn holders(&self, known: usize) -> Vec<Held> {
        let named = self
            .policy
            .modes
            .named
            .keys()
            .chain(self.present.iter().flat_map(|(_, one)| &one.devices));
        let all: BTreeSet<u32> = named.copied().chain(0..known.max(1) as u32).collect();
        all.into_iter().filter_map(|device| self.holder(device)).collect()
    }

    fn let_in(&mut self, number: u64, request: Request, since: Timestamp) {
        self.tenures.begin(number, &request.devices, since);
        self.present.push((number, request));
    }

    /// A client has come; or it is turned away at once, and why.
    pub(super) fn come(
        &mut self,
        wanted: Request,
        may_wait: bool,
        now: Timestamp,
    ) -> Result<Come, Refusal> {
        self.last += 1;
        let number = self.last;
        let obstacle = match self.judge(&wanted, self.waiting.len()) {
            Ok(()) => {
                self.let_in(number, wanted, now);
                return Ok(Come { number, unless_soon: None });
            }
            Err(obstacle) => obstacle,
        };
        let unless_soon = self.no_place_in_queue(&obstacle, may_wait);
        if let Some(refusal) = &unless_soon {
            if self.passing.len() >= MOST_PASSING {
                return Err(refusal.clone());
            }
            self.passing.insert(number);
        }
        self.waiting.push((number, wanted));
        Ok(Come { number, unless_soon })
    }

    /// Why a client that is not let in has no place in the queue, if so.
    fn no_place_in_queue(&self, obstacle: &Obstacle, may_wait: bool) -> Option<Refusal> {
        let is_full = if !may_wait || self.policy.queue == 0 {
            ""
        } else if self.waiting.len() - self.passing.len() >= self.policy.queue {
            ", and the queue is full"
        } else {
            return None;
        };
        let code = if obstacle.own { RefusalCode::OverLimit } else { RefusalCode::Busy };
        let sentence = format!("{}{is_full}; try again later", obstacle.sentence);
        Some(Refusal { code, sentence })
    }

    /// How things stand for a client that has come.
    pub(super) fn look(&mut self, number: u64, now: Timestamp) -> Verdict {
        let Some(at) = self.waiting.iter().position(|(one, _)| *one == number) else {
            return Verdict::In;
        };
        match self.judge(&self.waiting[at].1, at) {
            Ok(()) => {
                let (_, wanted) = self.waiting.remove(at);
                self.passing.remove(&number);
                self.let_in(number, wanted, now);
                Verdict::In
            }
            Err(obstacle) => {
                let wanted = &self.waiting[at].1;
                let ahead = self.waiting[..at].iter().filter(|(_, one)| one.meets(wanted)).count();
                Verdict::Waits { place: ahead as u32 + 1, sentence: obstacle.sentence }
            }
        }
    }

    /// A client that an earlier server has let in then: its number.
    pub(super) fn go_on(&mut self, request: Request, since: Timestamp) -> u64 {
        self.last += 1;
        self.let_in(self.last, request, since);
        self.last
    }

    /// The admission of a client.
    pub(super) fn request(&self, number: u64) -> Option<&Request> {
        self.present.iter().find(|(one, _)| *one == number).map(|(_, request)| request)
    }

    /// Somebody else has taken a client's place over.
    pub(super) fn rename(&mut self, number: u64, client: &str) {
        if let Some((_, request)) = self.present.iter_mut().find(|(one, _)| *one == number) {
            client.clone_into(&mut request.client);
        }
    }

    /// A client is gone.
    pub(super) fn leave(&mut self, number: u64) {
        if let Some(at) = self.present.iter().position(|(one, _)| *one == number) {
            let (_, gone) = self.present.remove(at);
            let staying = self.present.iter().filter(|(_, one)| one.holder == gone.holder);
            self.tenures.end(number, staying.map(|(number, one)| (*number, &*one.devices)));
        }
        self.waiting.retain(|(one, _)| *one != number);
        self.passing.remove(&number);
    }

    /// How many wait in the queue.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len() - self.passing.len()
    }
}

#[cfg(test)]
mod tests;
