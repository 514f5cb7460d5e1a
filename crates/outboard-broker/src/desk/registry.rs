//! The servers: who they are, and what they said last.

use super::kept::{Registered, Speaker};
use super::no::{Kind, No};
use super::rules::{
    DOUBLED_FOR, MOST_KINDS_OF_AN_OWNER, MOST_SERVERS, MOST_SERVERS_OF_AN_OWNER, MOVED_FOR, Rules,
    SILENT_AFTER,
};
use jiff::Timestamp;
use outboard_pool::api::LeaseUse;
use outboard_pool::words::{Condition, DeviceUuid, LeaseNumber, OwnerName, ServerName};
use std::collections::{BTreeMap, BTreeSet};

/// Who speaks in the name of a server: which start of it, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Voice {
    pub(super) start: Option<u64>,
    pub(super) address: String,
    pub(super) fingerprint: Option<String>,
}

/// A server.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) registered: Registered,
    /// When it spoke last, since the broker started.
    pub(super) heard: Option<Timestamp>,
    pub(super) drains: bool,
    /// How busy its devices are, in percent.
    pub(super) loads: BTreeMap<DeviceUuid, u8>,
    /// What its sessions use.
    pub(super) uses: BTreeMap<LeaseNumber, LeaseUse>,
    /// Leases with devices of it, those that are over among them.
    pub(super) leases: BTreeSet<LeaseNumber>,
    /// Leases that it uses although they are over, or that nobody knows.
    pub(super) strays: Vec<LeaseNumber>,
    /// Which start of it spoke last, ...
    start: Option<u64>,
    /// ... and the leases of which that one has said that it refuses them.
    refuses: BTreeSet<LeaseNumber>,
    /// Those that have spoken within a minute, and when each did so last.
    voices: BTreeMap<Voice, Timestamp>,
    /// The one that spoke last.
    voice: Option<Voice>,
    /// When one spoke from another address than the one before.
    moved: Option<Timestamp>,
    /// When one spoke again that another one had followed.
    doubled: Option<Timestamp>,
}

impl Known {
    /// One that was kept, or that speaks for the first time.
    pub(super) fn new(registered: Registered) -> Known {
        Known {
            registered,
            heard: None,
            drains: false,
            loads: BTreeMap::new(),
            uses: BTreeMap::new(),
            leases: BTreeSet::new(),
            strays: Vec::new(),
            start: None,
            voices: BTreeMap::new(),
            voice: None,
            moved: None,
            doubled: None,
            refuses: BTreeSet::new(),
        }
    }

    /// That start of it speaks, and refuses these leases. Another one has to hear of all again.
    pub(super) fn refuses_also(
        &mut self,
        start: Option<u64>,
        gone: impl Iterator<Item = LeaseNumber>,
    ) {
        if self.start != start {
            self.start = start;
            self.refuses.clear();
        }
        if start.is_some() {
            let own = gone.filter(|lease| self.leases.contains(lease));
            self.refuses.extend(own);
        }
    }

    /// Whether it need not hear that the lease is over.
    pub(super) fn refuses(&self, lease: LeaseNumber) -> bool {
        self.refuses.contains(&lease)
    }

    /// A lease is no more.
    pub(super) fn forget(&mut self, lease: LeaseNumber) {
        self.leases.remove(&lease);
        self.refuses.remove(&lease);
    }

    /// It speaks so. A start that is over does not speak again: if one does, there are two servers.
    pub(super) fn speaks(&mut self, voice: Voice, now: Timestamp) {
        self.voices.retain(|_, last| now.duration_since(*last) <= DOUBLED_FOR);
        if self.voice.as_ref() != Some(&voice) {
            if self.voices.contains_key(&voice) {
                self.doubled = Some(now);
            }
            let is_elsewhere = |before: &Voice| {
                (&before.address, &before.fingerprint) != (&voice.address, &voice.fingerprint)
            };
            if self.voice.as_ref().is_some_and(is_elsewhere) {
                self.moved = Some(now);
            }
            self.voice = Some(voice.clone());
        }
        self.voices.insert(voice, now);
    }

    /// Whether two servers with the same key use its name.
    pub(super) fn is_doubled(&self, now: Timestamp) -> bool {
        self.doubled.is_some_and(|doubled| now.duration_since(doubled) <= DOUBLED_FOR)
    }

    fn has_just_moved(&self, now: Timestamp) -> bool {
        self.moved.is_some_and(|moved| now.duration_since(moved) < MOVED_FOR)
    }

    /// Why it gets no leases although it speaks, if there is something wrong with that.
    pub(super) fn why_unheard(&self, now: Timestamp) -> Option<String> {
        self.is_doubled(now).then(|| {
            let all: BTreeSet<&str> =
                self.voices.keys().map(|voice| voice.address.as_str()).collect();
            let all = all.into_iter().collect::<Vec<_>>().join(" and ");
            format!(
                "two servers with the same key use this name, at {all}: give one of them a state \
                 and a name of its own"
            )
        })
    }

    pub(super) fn is_silent(&self, now: Timestamp) -> bool {
        self.heard.is_none_or(|heard| now.duration_since(heard) > SILENT_AFTER)
    }

    /// Whether it gets leases, if it owes no answer.
    pub(super) fn condition(&self, now: Timestamp, owes: bool) -> Condition {
        if self.is_silent(now) || self.is_doubled(now) || self.has_just_moved(now) {
            Condition::Silent
        } else if self.drains || owes || !self.strays.is_empty() {
            Condition::Draining
        } else {
            Condition::Ready
        }
    }

    /// Whether sessions of it use the lease.
    pub(super) fn uses(&self, lease: LeaseNumber) -> bool {
        self.uses.contains_key(&lease)
    }
}

/// All servers.
#[derive(Debug, Default)]
pub(super) struct Registry(pub(super) BTreeMap<ServerName, Known>);

/// So many servers are named in a sentence.
const NAMED: usize = 3;

impl Registry {
    /// Which servers are silent, and what to do about them; none, if none is.
    pub(super) fn away(&self, now: Timestamp) -> Option<String> {
        let mut silent = self.0.iter().filter(|(_, known)| known.is_silent(now));
        let named: Vec<&str> = silent.by_ref().take(NAMED).map(|(name, _)| name.as_str()).collect();
        let others = match silent.count() {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let (verb, one) = if named.len() == 1 { ("is", "it is") } else { ("are", "one is") };
        let named = named.join(", ");
        let sentence = format!(
            "{named}{others} {verb} silent: the request may wait for that alone; if {one} gone for \
             good, an admin removes it with `outboard pool forget NAME`"
        );
        (!named.is_empty()).then_some(sentence)
    }

    /// Checks that somebody may speak for that server: who has the key to which its name belongs.
    pub(super) fn admits(
        &self,
        name: &ServerName,
        speaker: &Speaker,
        rules: &Rules,
    ) -> Result<(), No> {
        let forbidden = |sentence: String| Err(No::new(Kind::Forbidden, sentence));
        let known = self.0.get(name).map(|known| &known.registered);
        match (known, &speaker.key) {
            (Some(known), _) if known.by != speaker.owner => forbidden(format!(
                "server {name} is registered with a token of another owner; give this server a \
                 name of its own, or a token of the same owner"
            )),
            (Some(Registered { key: Some(key), .. }), shown) if shown.as_ref() != Some(key) => {
                forbidden(format!(
                    "server {name} is registered with another key; give this server a name of its \
                     own, or, if it was set up anew, have an admin forget the former one: \
                     `outboard pool forget {name}`"
                ))
            }
            (_, None) if !rules.allow_unproven => forbidden(format!(
                "server {name} proves no key; upgrade it, or start the broker with \
                 --allow-unproven-servers until all servers are"
            )),
            (Some(_), _) => Ok(()),
            (None, _) => self.has_room(&speaker.owner),
        }
    }

    /// Checks that the owner's servers have few kinds of devices with this one.
    pub(super) fn admits_kinds_of(&self, registered: &Registered) -> Result<(), No> {
        let others = self.0.values().map(|known| &known.registered);
        let others = others.filter(|other| {
            other.by == registered.by && other.server.name != registered.server.name
        });
        let devices = others.chain([registered]).flat_map(|one| &one.server.devices);
        let kinds: BTreeSet<_> =
            devices.map(|device| (&device.model, device.memory_bytes, device.capability)).collect();
        if kinds.len() <= MOST_KINDS_OF_AN_OWNER {
            return Ok(());
        }
        let sentence = format!(
            "servers of {} would have {} kinds of devices; at most {MOST_KINDS_OF_AN_OWNER} may be \
             an owner's",
            registered.by,
            kinds.len()
        );
        Err(No::new(Kind::Busy, sentence))
    }

    fn has_room(&self, owner: &OwnerName) -> Result<(), No> {
        let of_owner = self.0.values().filter(|known| known.registered.by == *owner).count();
        let left = MOST_SERVERS.saturating_sub(self.0.len());
        if of_owner < MOST_SERVERS_OF_AN_OWNER.min(left) {
            return Ok(());
        }
        let sentence = format!(
            "the pool has {} servers, {of_owner} of them of {owner}; an admin forgets those that \
             are no more: `outboard pool forget NAME`",
            self.0.len()
        );
        Err(No::new(Kind::Busy, sentence))
    }
}
