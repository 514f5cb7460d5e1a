//! Both sides of a session over a link that delivers bytes in pieces of any size, and may be cut at
//! any byte.

use std::collections::{BTreeMap, VecDeque};

use outboard_session::{ProtocolError, client, server};
use outboard_wire::frame::{ReplyHeader, ReplyKind};
use outboard_wire::{ContextId, Reader, Writer};
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
    /// The client has the bytes of a call's answer received past the buffer from now on.
    Land,
    /// It does so no more, wherever it is.
    Leave,
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
        3 => Just(Step::Land),
        1 => Just(Step::Leave),
        1 => Just(Step::Acknowledge),
        1 => Just(Step::Cut),
    ]
}

/// A command's payload, made from its number alone, so that whoever receives it can check it.
fn payload(seq: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seq as usize * 31 + i) as u8).collect()
}

/// The string of bytes that a call returns, if it returns one.
fn string(seq: u64) -> Option<Vec<u8>> {
    (!seq.is_multiple_of(3)).then(|| payload(seq, (seq as usize * 37) % 300))
}

/// Where the bytes of an answer belong.
struct Landing {
    seq: u64,
    memory: Vec<u8>,
}

struct World {
    landing: Option<Landing>,
    landed: u64,
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
            landing: None,
            landed: 0,
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
                    match string(seq) {
                        Some(bytes) => {
                            self.replies.reply(seq, 0, taken, |writer| writer.bytes(&bytes))
                        }
                        None => self.replies.reply(seq, seq as u32, taken, |writer| {
                            writer.fixed(&payload(seq, 40));
                        }),
                    }
                    .unwrap();
                }
            }
            Step::Notice => {
                self.notices_sent += 1;
                let number = self.notices_sent;
                self.replies.notice(9, self.commands.taken(), |writer| writer.u64(number)).unwrap();
            }
            Step::Land => {
                // Also one that returns something else.
                if self.landing.is_none()
                    && let Some(seq) = self.calls.find(Some).copied()
                {
                    let len = string(seq).map_or(36, |bytes| bytes.len());
                    self.landing = Some(Landing { seq, memory: vec![0xee; len] });
                }
            }
            Step::Leave => self.leave(),
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
                if let Some(Landing { memory, .. }) = &mut self.landing {
                    memory.fill(0xee);
                }
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
        let mut left = most;
        loop {
            let open = self.back.open_bytes();
            let unread = self.back.buffer().unread().len();
            let room = match (&self.landing, open) {
                (Some(landing), Some(come)) => landing.memory.len() - come,
                (Some(_), None) if unread < client::Incoming::HEAD => {
                    client::Incoming::HEAD - unread
                }
                _ => usize::MAX,
            };
            let count = left.min(room).min(self.here.len());
            if count == 0 {
                break;
            }
            left -= count;
            let bytes: Vec<u8> = self.here.drain(..count).collect();
            match (&mut self.landing, open) {
                (Some(landing), Some(come)) => {
                    landing.memory[come..come + count].copy_from_slice(&bytes);
                    if self.back.came_elsewhere(count) {
                        let Landing { seq, memory } = self.landing.take().unwrap();
                        assert_eq!(Some(memory), string(seq));
                        assert_eq!(self.calls.complete(seq), Ok(seq), "a call is answered once");
                        (self.answered, self.landed) = (self.answered + 1, self.landed + 1);
                    }
                }
                (Some(landing), None) => {
                    self.back.buffer().push(&bytes);
                    self.back.open(landing.seq, landing.memory.len()).unwrap();
                }
                (None, _) => self.back.buffer().push(&bytes),
            }
            self.events();
        }
        self.out.acknowledged(self.back.taken()).unwrap();
    }

    /// The client puts what has come where it is into the buffer.
    fn leave(&mut self) {
        if let Some(Landing { memory, .. }) = self.landing.take() {
            let come = self.back.open_bytes().unwrap_or(0);
            self.back.close(&memory[..come]);
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.back.next_event().unwrap() {
            match event {
                client::Event::Reply { answers, status, payload: found } => {
                    assert_eq!(
                        self.calls.complete(answers),
                        Ok(answers),
                        "a call is answered once"
                    );
                    match string(answers) {
                        Some(bytes) => {
                            assert_eq!(status, 0);
                            assert_eq!(Reader::new(found).get(), Ok(&bytes[..]));
                        }
                        None => {
                            assert_eq!(status, answers as u32);
                            assert_eq!(found, payload(answers, 40));
                        }
                    }
                    self.answered += 1;
                    if self.landing.as_ref().is_some_and(|landing| landing.seq == answers) {
                        self.landing = None;
                    }
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

    /// Answers land in pieces of any size, over any cut.
    #[test]
    fn what_lands_is_right(pieces in proptest::collection::vec((1usize..90, 0u8..8), 1..60)) {
        let mut world = World::new(true);
        for (piece, what) in pieces {
            world.step(&Step::Call { len: 3 });
            world.step(&Step::Send);
            world.step(&Step::Arrive(usize::MAX));
            world.step(&Step::Land);
            world.step(&Step::Answer { newest: false });
            world.step(&Step::Return(piece));
            match what {
                0 => world.step(&Step::Cut),
                1 => world.step(&Step::Leave),
                _ => {}
            }
        }
        let last = world.command(0, client::CALL);
        world.calls.insert(last, last);
        world.called += 1;
        world.settle();
        prop_assert_eq!(world.answered, world.called);
        // The last one, if its answer has bytes, with nothing in its way.
        let seq = world.out.last() + 1;
        world.step(&Step::Call { len: 0 });
        world.landing = None;
        world.step(&Step::Land);
        let before = world.landed;
        world.settle();
        prop_assert_eq!(world.landed - before, u64::from(string(seq).is_some_and(|s| !s.is_empty())));
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

/// A head as it would begin the answer to command 7, which returns four bytes.
fn head(change: impl FnOnce(&mut ReplyHeader, &mut u32)) -> Vec<u8> {
    let kind = ReplyKind::Reply;
    let mut header = ReplyHeader { len: 8, kind, code: 0, seq: 1, taken: 7, answers: 7, status: 0 };
    let mut len = 4;
    change(&mut header, &mut len);
    let mut writer = Writer::new();
    header.encode(&mut writer);
    writer.u32(len);
    writer.into_vec()
}

#[test]
fn only_the_answer_that_is_waited_for_is_opened() {
    let open = |bytes: &[u8]| {
        let mut replies = client::Incoming::new();
        replies.buffer().push(bytes);
        let opened = replies.open(7, 4);
        assert!(opened == Ok(true) || replies.buffer().unread() == bytes, "nothing is taken");
        opened
    };
    let right = head(|_, _| ());
    assert_eq!(open(&right), Ok(true));
    assert_eq!(open(&right[..right.len() - 1]), Ok(false), "it is not all there");
    assert_eq!(open(&[&right[..], &[1]].concat()), Ok(false), "more is there");
    for (what, wrong) in [
        ("another's", head(|header, _| header.answers = 6)),
        ("an error", head(|header, _| header.status = 700)),
        ("a notice", head(|header, _| header.kind = ReplyKind::Notice)),
        ("an acknowledgement", head(|header, _| header.kind = ReplyKind::Acknowledge)),
        ("a longer frame", head(|header, _| header.len = 9)),
        ("a shorter frame", head(|header, _| header.len = 7)),
        ("a longer string", head(|_, len| *len = 5)),
        ("a huge string", head(|_, len| *len = u32::MAX)),
        ("both longer", head(|header, len| (header.len, *len) = (9, 5))),
        ("a string of none", head(|header, len| (header.len, *len) = (4, 0))),
    ] {
        assert_eq!(open(&wrong), Ok(false), "{what}");
    }
    let out_of_turn = open(&head(|header, _| header.seq = 2));
    assert_eq!(out_of_turn, Err(ProtocolError::Sequence { expected: 1, found: 2 }));
    assert!(open(&head(|header, _| header.len = u32::MAX)).is_err());
}

#[test]
fn an_answer_counts_as_received_with_its_last_byte() {
    let mut replies = client::Incoming::new();
    replies.buffer().push(&head(|_, _| ()));
    assert_eq!(replies.open(7, 4), Ok(true));
    assert!(!replies.came_elsewhere(3));
    assert_eq!((replies.received(), replies.taken()), (0, 0));
    assert_eq!(replies.next_event(), Ok(None));
    // A cut: all of it comes again.
    replies.resume();
    assert_eq!(replies.open_bytes(), None);
    replies.buffer().push(&head(|_, _| ()));
    assert_eq!(replies.open(7, 4), Ok(true));
    assert!(replies.came_elsewhere(4));
    assert_eq!((replies.received(), replies.taken()), (1, 7));
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
