//! Both sides of a session over a link that delivers bytes in pieces of any size, and may be cut at
//! any byte.

use std::collections::{BTreeMap, VecDeque};

use outboard_session::{ProtocolError, client, server};
use outboard_wire::ContextId;
use outboard_wire::frame::{ReplyHeader, ReplyKind};
use proptest::prelude::*;

/// What happens next. Sizes are in bytes.
#[derive(Debug, Clone)]
enum Step {
    Post {
        len: usize,
    },
    Call {
        len: usize,
    },
    /// The client hands what is pending to the link.
    Send,
    /// Up to this many bytes arrive at the worker.
    Arrive(usize),
    /// Up to this many bytes arrive at the client.
    Return(usize),
    /// The worker answers the oldest or newest call it has open.
    Answer {
        newest: bool,
    },
    Notice,
    /// Both sides say what they have received.
    Acknowledge,
    /// Bytes on the way are lost; both sides resume.
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0usize..300).prop_map(|len| Step::Post { len }),
        3 => (0usize..300).prop_map(|len| Step::Call { len }),
        4 => Just(Step::Send),
        8 => (1usize..700).prop_map(Step::Arrive),
        8 => (1usize..700).prop_map(Step::Return),
        4 => any::<bool>().prop_map(|newest| Step::Answer { newest }),
        1 => Just(Step::Notice),
        1 => Just(Step::Acknowledge),
        1 => Just(Step::Cut),
    ]
}

/// A command's payload, made from its number alone, so that whoever receives it can check it.
fn payload(seq: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seq as usize * 31 + i) as u8).collect()
}

struct World {
    out: client::Outgoing,
    back: client::Incoming,
    calls: client::PendingCalls<u64>,
    commands: server::Incoming,
    replies: server::Outgoing,
    there: VecDeque<u8>,
    here: VecDeque<u8>,
    lengths: BTreeMap<u64, usize>,
    open: VecDeque<u64>,
    executed: u64,
    called: u64,
    answered: u64,
    notices_sent: u64,
    notices_seen: u64,
}

impl World {
    fn new(retain: bool) -> World {
        World {
            out: client::Outgoing::new(retain),
            back: client::Incoming::new(),
            calls: client::PendingCalls::default(),
            commands: server::Incoming::new(),
            replies: server::Outgoing::new(retain),
            there: VecDeque::new(),
            here: VecDeque::new(),
            lengths: BTreeMap::new(),
            open: VecDeque::new(),
            executed: 0,
            called: 0,
            answered: 0,
            notices_sent: 0,
            notices_seen: 0,
        }
    }

    fn command(&mut self, len: usize, flags: u16) -> u64 {
        let next = self.out.last() + 1;
        let seq = self
            .out
            .push(7, flags, ContextId(3), |writer| writer.fixed(&payload(next, len)))
            .unwrap();
        assert_eq!(seq, next);
        self.lengths.insert(seq, len);
        seq
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Post { len } => drop(self.command(len, 0)),
            Step::Call { len } => {
                let seq = self.command(len, client::CALL);
                self.calls.insert(seq, seq);
                self.called += 1;
            }
            Step::Send => {
                if let Some(batch) = self.out.take() {
                    self.there.extend(batch.bytes());
                    self.out.done(batch);
                }
            }
            Step::Arrive(most) => self.arrive(most),
            Step::Return(most) => self.come_back(most),
            Step::Answer { newest } => {
                let seq = if newest { self.open.pop_back() } else { self.open.pop_front() };
                if let Some(seq) = seq {
                    let taken = self.commands.taken();
                    self.replies
                        .reply(seq, seq as u32, taken, |writer| writer.fixed(&payload(seq, 40)))
                        .unwrap();
                }
            }
            Step::Notice => {
                self.notices_sent += 1;
                let number = self.notices_sent;
                self.replies.notice(9, self.commands.taken(), |writer| writer.u64(number)).unwrap();
            }
            Step::Acknowledge => {
                self.out.acknowledge(self.back.received());
                self.replies.acknowledge(self.commands.taken());
            }
            Step::Cut => {
                self.there.clear();
                self.here.clear();
                if let Some(batch) = self.replies.take() {
                    self.replies.done(batch);
                }
                let taken = self.commands.taken();
                self.commands.resume(taken);
                self.back.resume();
                self.out.resume(self.commands.taken()).unwrap();
                self.replies.resume(self.back.received()).unwrap();
            }
        }
    }

    fn arrive(&mut self, most: usize) {
        let count = most.min(self.there.len());
        let bytes: Vec<u8> = self.there.drain(..count).collect();
        self.commands.buffer().push(&bytes);
        while let Some(command) = self.commands.next_command().unwrap() {
            assert_eq!(command.seq, self.executed + 1, "commands come once, in order");
            self.executed = command.seq;
            assert_eq!((command.op, command.ctx), (7, ContextId(3)));
            assert_eq!(command.payload, payload(command.seq, self.lengths[&command.seq]));
            if command.wants_reply() {
                self.open.push_back(command.seq);
            }
        }
        self.replies.acknowledged(self.commands.acknowledged()).unwrap();
    }

    fn come_back(&mut self, most: usize) {
        if let Some(batch) = self.replies.take() {
            self.here.extend(batch.bytes());
            self.replies.done(batch);
        }
        let count = most.min(self.here.len());
        let bytes: Vec<u8> = self.here.drain(..count).collect();
        self.back.buffer().push(&bytes);
        while let Some(event) = self.back.next_event().unwrap() {
            match event {
                client::Event::Reply { answers, status, payload: found } => {
                    assert_eq!(
                        self.calls.complete(answers),
                        Ok(answers),
                        "a call is answered once"
                    );
                    assert_eq!(status, answers as u32);
                    assert_eq!(found, payload(answers, 40));
                    self.answered += 1;
                }
                client::Event::Notice { code, payload } => {
                    self.notices_seen += 1;
                    assert_eq!(code, 9);
                    assert_eq!(
                        payload,
                        self.notices_seen.to_le_bytes(),
                        "notices come once, in order"
                    );
                }
            }
        }
        self.out.acknowledged(self.back.taken()).unwrap();
    }

    /// Lets everything arrive.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.step(&Step::Send);
            self.arrive(usize::MAX);
            while !self.open.is_empty() {
                self.step(&Step::Answer { newest: false });
            }
            self.come_back(usize::MAX);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_command_is_executed_once_in_order_and_every_call_answered_once(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new(true);
        for step in &steps {
            world.step(step);
        }
        world.settle();
        prop_assert_eq!(world.executed, world.out.last());
        prop_assert_eq!(world.answered, world.called);
        prop_assert_eq!(world.notices_seen, world.notices_sent);
        prop_assert!(world.calls.is_empty());
        // Once both sides have said so, nothing is kept.
        world.step(&Step::Acknowledge);
        world.settle();
        prop_assert_eq!(world.out.unacknowledged(), 0);
        prop_assert_eq!(world.out.retained_bytes(), 0);
    }

    #[test]
    fn without_retention_nothing_is_kept(steps in proptest::collection::vec(step(), 1..100)) {
        let mut world = World::new(false);
        for step in steps.iter().filter(|step| !matches!(step, Step::Cut)) {
            world.step(step);
            prop_assert_eq!(world.out.retained_bytes(), 0);
        }
        world.settle();
        prop_assert_eq!(world.answered, world.called);
    }
}

#[test]
fn a_repeated_or_missing_command_is_refused() {
    let mut out = client::Outgoing::new(false);
    out.push(1, 0, ContextId::NONE, |_| ()).unwrap();
    let first = out.take().unwrap();
    out.push(2, 0, ContextId::NONE, |_| ()).unwrap();
    let second = out.take().unwrap();

    let mut commands = server::Incoming::new();
    commands.buffer().push(second.bytes());
    assert_eq!(commands.next_command(), Err(ProtocolError::Sequence { expected: 1, found: 2 }));

    let mut commands = server::Incoming::new();
    commands.buffer().push(first.bytes());
    commands.buffer().push(first.bytes());
    assert!(commands.next_command().unwrap().is_some());
    assert_eq!(commands.next_command(), Err(ProtocolError::Sequence { expected: 2, found: 1 }));
}

#[test]
fn a_command_too_long_for_a_frame_leaves_nothing_behind() {
    let mut out = client::Outgoing::new(false);
    let huge = vec![0; outboard_wire::limits::MAX_FRAME + 1];
    assert!(out.push(1, 0, ContextId::NONE, |writer| writer.fixed(&huge)).is_err());
    assert_eq!((out.last(), out.pending_bytes()), (0, 0));
    assert_eq!(out.push(1, 0, ContextId::NONE, |_| ()), Ok(1));
}

#[test]
fn a_panic_while_encoding_leaves_nothing_behind() {
    let mut out = client::Outgoing::new(false);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        out.push(1, 0, ContextId::NONE, |writer| {
            writer.u64(1);
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!((out.last(), out.pending_bytes()), (0, 0));
    assert_eq!(out.push(1, 0, ContextId::NONE, |_| ()), Ok(1));
}

#[test]
fn a_reply_nobody_waits_for_is_an_error() {
    let mut calls = client::PendingCalls::default();
    calls.insert(4, "a");
    assert_eq!(calls.complete(5), Err(ProtocolError::Unasked { answers: 5 }));
    assert_eq!(calls.complete(4), Ok("a"));
    assert_eq!(calls.complete(4), Err(ProtocolError::Unasked { answers: 4 }));
}

#[test]
fn acknowledging_the_future_is_an_error() {
    let mut out = client::Outgoing::new(true);
    out.push(1, 0, ContextId::NONE, |_| ()).unwrap();
    assert_eq!(out.acknowledged(2), Err(ProtocolError::Acknowledged { claimed: 2, sent: 1 }));
}

#[test]
fn a_reply_out_of_turn_is_refused_before_its_payload_is_waited_for() {
    let mut writer = outboard_wire::Writer::new();
    let len = outboard_wire::limits::MAX_FRAME as u32;
    ReplyHeader { len, kind: ReplyKind::Reply, code: 0, seq: 2, taken: 0, answers: 1, status: 0 }
        .encode(&mut writer);
    let mut replies = client::Incoming::new();
    replies.buffer().push(writer.as_slice());
    assert_eq!(replies.next_event(), Err(ProtocolError::Sequence { expected: 1, found: 2 }));
}
