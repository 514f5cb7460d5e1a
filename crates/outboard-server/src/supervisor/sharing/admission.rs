//! Who is let in, who waits, and behind whom. Without sockets or a clock.
//!
//! First come, first served, for each device: who waits keeps what it waits for from those who came later, and nothing else. So nobody is held up by
//! one who wants another device, and nobody is overtaken for ever.

use std::collections::BTreeSet;

use outboard_wire::handshake::{Refusal, RefusalCode};
use serde::{Deserialize, Serialize};

use super::{Mode, Modes};

/// What a client wants. Fields that are added need a default: it is noted for servers of other releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::supervisor) struct Request {
    /// For whom devices are exclusive: an owner, or the machine of clients that have shown nothing.
    pub(in crate::supervisor) holder: String,
    pub(in crate::supervisor) owner: String,
    /// Sessions that the owner may have at once.
    pub(in crate::supervisor) owner_sessions: Option<u32>,
    /// Indices of devices; empty for all.
    pub(in crate::supervisor) devices: Vec<u32>,
    /// Bytes of each of them that it may need: they are promised.
    pub(in crate::supervisor) memory: u64,
    /// Who it is, for its owner to read.
    pub(in crate::supervisor) client: String,
}

/// What there is to be had.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    pub(super) modes: Modes,
    pub(super) sessions: usize,
    pub(super) memory: Option<u64>,
    /// Whether what sessions may need is promised to them.
    pub(super) promises: bool,
    pub(super) queue: usize,
}

/// Why somebody is not let in now.
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

/// Who is in, and who waits, in the order in which they came.
pub(super) struct Admission {
    policy: Policy,
    present: Vec<(u64, Request)>,
    waiting: Vec<(u64, Request)>,
    last: u64,
}

impl Request {
    fn wants(&self, device: u32) -> bool {
        self.devices.is_empty() || self.devices.contains(&device)
    }

    /// Whether both want some device.
    fn meets(&self, other: &Request) -> bool {
        self.devices.is_empty() || other.devices.is_empty() || self.devices.iter().any(|device| other.wants(*device))
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
        all.into_iter().find(|device| one.wants(*device) && other.wants(*device) && self.is_exclusive(*device))
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}

impl Admission {
    pub(super) fn new(policy: Policy) -> Admission {
        Admission { policy, present: Vec::new(), waiting: Vec::new(), last: 0 }
    }

    /// Whether a request can be met beside these.
    fn fits(&self, wanted: &Request, beside: &[&Request]) -> Result<(), Obstacle> {
        let other = |sentence| Err(Obstacle { own: false, sentence });
        let own: Vec<&&Request> = beside.iter().filter(|one| one.owner == wanted.owner).collect();
        if let Some(most) = wanted.owner_sessions
            && own.len() >= most as usize
        {
            // Of those who have shown nothing, one machine is told nothing of another.
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
            return other(format!("the server has as many sessions as it takes ({})", self.policy.sessions));
        }
        for one in beside.iter().filter(|one| one.holder != wanted.holder) {
            if let Some(device) = self.policy.modes.contested(wanted, one) {
                return other(format!("device {device} is for one owner at a time, and another one has it"));
            }
        }
        if let Some(offered) = self.policy.memory.filter(|_| self.policy.promises) {
            let named: BTreeSet<u32> =
                beside.iter().flat_map(|one| &one.devices).chain(&wanted.devices).copied().collect();
            for device in named.into_iter().chain([0]).filter(|device| wanted.wants(*device)) {
                let others = beside.iter().filter(|one| one.wants(device)).map(|one| one.memory);
                let promised = others.fold(0, u64::saturating_add);
                if promised.saturating_add(wanted.memory) > offered {
                    let (needed, promised, offered) = (gib(wanted.memory), gib(promised), gib(offered));
                    return other(format!(
                        "device {device} has no room for {needed:.1} GiB: {promised:.1} of {offered:.1} GiB are promised"
                    ));
                }
            }
        }
        Ok(())
    }

    /// What becomes of a request behind the first `ahead` of those who wait.
    fn judge(&self, wanted: &Request, ahead: usize) -> Result<(), Obstacle> {
        let present: Vec<&Request> = self.present.iter().map(|(_, one)| one).collect();
        self.fits(wanted, &present)?;
        // Who has an exclusive device may use it from another process, too: the first one may be waiting for that.
        let has_it = |one: &&Request| one.holder == wanted.holder && self.policy.modes.contested(one, wanted).is_some();
        if present.iter().any(has_it) {
            return Ok(());
        }
        // Who is kept out by its own owner's other sessions keeps nobody else out.
        let counts = |one: &&Request| self.fits(one, &present).err().is_none_or(|obstacle| !obstacle.own);
        let earlier = self.waiting[..ahead].iter().map(|(_, one)| one).filter(|one| one.meets(wanted)).filter(counts);
        let beside: Vec<&Request> = present.iter().copied().chain(earlier).collect();
        let crowded = |mut obstacle: Obstacle| {
            obstacle.sentence = format!("others came first; {}", obstacle.sentence);
            obstacle
        };
        self.fits(wanted, &beside).map_err(crowded)
    }

    /// A client has come: its number, or why it is turned away.
    pub(super) fn come(&mut self, wanted: Request, may_wait: bool) -> Result<u64, Refusal> {
        self.last += 1;
        let number = self.last;
        match self.judge(&wanted, self.waiting.len()) {
            Ok(()) => self.present.push((number, wanted)),
            Err(obstacle) => {
                let code = if obstacle.own { RefusalCode::OverLimit } else { RefusalCode::Busy };
                if !may_wait || self.policy.queue == 0 {
                    return Err(Refusal { code, sentence: format!("{}; try again later", obstacle.sentence) });
                }
                if self.waiting.len() >= self.policy.queue {
                    let sentence = format!("{}, and the queue is full; try again later", obstacle.sentence);
                    return Err(Refusal { code, sentence });
                }
                self.waiting.push((number, wanted));
            }
        }
        Ok(number)
    }

    /// How things stand for a client that has come.
    pub(super) fn look(&mut self, number: u64) -> Verdict {
        let Some(at) = self.waiting.iter().position(|(one, _)| *one == number) else { return Verdict::In };
        match self.judge(&self.waiting[at].1, at) {
            Ok(()) => {
                let one = self.waiting.remove(at);
                self.present.push(one);
                Verdict::In
            }
            Err(obstacle) => {
                let wanted = &self.waiting[at].1;
                let ahead = self.waiting[..at].iter().filter(|(_, one)| one.meets(wanted)).count();
                Verdict::Waits { place: ahead as u32 + 1, sentence: obstacle.sentence }
            }
        }
    }

    /// A client that an earlier server has let in: its number.
    pub(super) fn go_on(&mut self, request: Request) -> u64 {
        self.last += 1;
        self.present.push((self.last, request));
        self.last
    }

    /// What a client was let in with.
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
        self.present.retain(|(one, _)| *one != number);
        self.waiting.retain(|(one, _)| *one != number);
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(modes: &str) -> Policy {
        Policy { modes: modes.parse().unwrap(), sessions: 100, memory: None, promises: true, queue: 10 }
    }

    fn request(owner: &str, devices: &[u32]) -> Request {
        Request {
            holder: owner.into(),
            owner: owner.into(),
            owner_sessions: None,
            devices: devices.into(),
            memory: 0,
            client: format!("{owner}'s program"),
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "a verdict just made")]
    fn place(verdict: Verdict) -> u32 {
        match verdict {
            Verdict::In => 0,
            Verdict::Waits { place, .. } => place,
        }
    }

    #[test]
    fn an_exclusive_device_goes_from_owner_to_owner_in_order() {
        let mut door = Admission::new(policy("shared,0=exclusive"));
        let first = door.come(request("a", &[0]), true).unwrap();
        let own = door.come(request("a", &[]), true).unwrap();
        assert_eq!((door.look(first), door.look(own)), (Verdict::In, Verdict::In), "one owner, two programs");
        let second = door.come(request("b", &[0]), true).unwrap();
        let third = door.come(request("c", &[]), true).unwrap();
        let elsewhere = door.come(request("c", &[1]), true).unwrap();
        assert_eq!([second, third, elsewhere].map(|one| place(door.look(one))), [1, 2, 0], "device 1 is free");
        let again = door.come(request("a", &[0]), true).unwrap();
        assert_eq!(place(door.look(again)), 0, "a process of the one who has it");
        door.leave(first);
        door.leave(again);
        assert_eq!(place(door.look(second)), 1, "another session of the owner is there");
        door.leave(own);
        // Nobody has it now, and so it is the turn of who came first.
        let again = door.come(request("a", &[0]), true).unwrap();
        assert_eq!([again, third, second].map(|one| place(door.look(one))), [3, 2, 0]);
        door.leave(second);
        assert_eq!([again, third].map(|one| place(door.look(one))), [2, 0]);
        door.leave(third);
        assert_eq!(place(door.look(again)), 0);
        assert_eq!(door.waiting(), 0);
    }

    #[test]
    fn who_is_at_the_owners_limit_keeps_nobody_else_out() {
        let mut door = Admission::new(Policy { sessions: 3, ..policy("shared") });
        let two = |owner| Request { owner_sessions: Some(2), ..request(owner, &[]) };
        let first = door.come(two("a"), true).unwrap();
        door.come(two("a"), true).unwrap();
        let third = door.come(two("a"), true).unwrap();
        match door.look(third) {
            Verdict::Waits { sentence, .. } => assert!(sentence.contains("a's program, a's program"), "{sentence}"),
            Verdict::In => panic!("three sessions of an owner that may have two"),
        }
        let other = door.come(two("b"), true).unwrap();
        assert_eq!(place(door.look(other)), 0);
        let refused = door.come(two("a"), false).unwrap_err();
        assert_eq!(refused.code, RefusalCode::OverLimit);
        let refused = door.come(two("c"), false).unwrap_err();
        assert!(refused.code == RefusalCode::Busy && !refused.sentence.contains("program"), "{}", refused.sentence);
        door.leave(first);
        assert_eq!(place(door.look(third)), 0);
    }

    #[test]
    fn memory_is_promised_by_device_and_large_requests_are_not_overtaken() {
        let mut door = Admission::new(Policy { memory: Some(100), ..policy("shared") });
        let asks = |memory, devices: &[u32]| Request { memory, ..request("a", devices) };
        let first = door.come(asks(60, &[0]), true).unwrap();
        let large = door.come(asks(80, &[0]), true).unwrap();
        let small = door.come(asks(10, &[0]), true).unwrap();
        let other = door.come(asks(100, &[1]), true).unwrap();
        assert_eq!([first, large, small, other].map(|one| place(door.look(one))), [0, 1, 2, 0]);
        door.leave(first);
        assert_eq!([large, small].map(|one| place(door.look(one))), [0, 0]);
        let everywhere = door.come(asks(1, &[]), true).unwrap();
        assert!(place(door.look(everywhere)) > 0, "device 1 is full");
        assert!(door.come(asks(101, &[2]), false).is_err());
    }

    #[test]
    fn who_was_let_in_by_an_earlier_server_counts() {
        let mut door = Admission::new(policy("exclusive"));
        let there = door.go_on(request("a", &[0]));
        assert_eq!(door.request(there).map(|request| request.owner.as_str()), Some("a"));
        let next = door.come(request("b", &[0]), true).unwrap();
        assert_eq!(place(door.look(next)), 1);
        door.leave(there);
        assert_eq!(place(door.look(next)), 0);
        let noted = serde_json::to_string(&request("a", &[3])).unwrap();
        assert_eq!(serde_json::from_str::<Request>(&noted).unwrap(), request("a", &[3]));
    }

    #[test]
    fn the_queue_has_an_end() {
        let mut door = Admission::new(Policy { queue: 1, ..policy("exclusive") });
        door.come(request("a", &[]), true).unwrap();
        let waits = door.come(request("b", &[]), true).unwrap();
        assert!(door.come(request("c", &[]), true).unwrap_err().sentence.contains("queue is full"));
        door.leave(waits);
        assert!(door.come(request("c", &[]), true).is_ok());
    }
}
