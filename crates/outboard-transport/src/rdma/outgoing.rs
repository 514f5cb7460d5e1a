//! Which parts of the ring of bytes to send are free. No adapter, no memory: numbers only.
//!
//! A message's part is free again when the adapter has sent it *and* the peer has used it up: a
//! server's ring is the image of the client's, and a client's credits are the server's receives.

use std::collections::VecDeque;

use super::settings::{BARE, Settings};

pub(super) struct Outgoing {
    settings: Settings,
    /// Sizes of the messages whose parts are not free, oldest first.
    messages: VecDeque<usize>,
    /// How many messages were freed, sent by the adapter, and used up by the peer, so far: the low
    /// halves of the numbers.
    freed: u16,
    done: u16,
    used: u16,
    /// Where in the ring the next message begins.
    position: usize,
    /// Bytes that are not free.
    held: usize,
    /// Messages without bytes that the adapter has not sent yet.
    bare: u32,
}

impl Outgoing {
    pub(super) fn new(settings: Settings) -> Outgoing {
        Outgoing {
            settings,
            messages: VecDeque::with_capacity(settings.depth as usize),
            freed: 0,
            done: 0,
            used: 0,
            position: 0,
            held: 0,
            bare: 0,
        }
    }

    /// Where the next message begins, and how many bytes it may have: 0 if none may be sent.
    pub(super) fn room(&self) -> (usize, usize) {
        let ring = self.settings.ring();
        if self.messages.len() >= self.settings.depth as usize {
            return (self.position, 0);
        }
        let bytes =
            (ring - self.held).min(ring - self.position).min(self.settings.message as usize);
        (self.position, bytes)
    }

    /// Whether much can be sent.
    pub(super) fn has_much_room(&self) -> bool {
        self.is_much_without(0)
    }

    /// Whether much could be sent if the adapter had sent what the peer has used up, which it says
    /// later.
    pub(super) fn waits_for_adapter(&self) -> bool {
        let used = usize::from(self.used.wrapping_sub(self.freed));
        !self.has_much_room() && self.is_much_without(used)
    }

    /// Whether a quarter of all messages and of all bytes would be free without the oldest ones.
    fn is_much_without(&self, oldest: usize) -> bool {
        let (depth, ring) = (self.settings.depth as usize, self.settings.ring());
        let messages = self.messages.len() - oldest;
        let held = self.held - self.messages.iter().take(oldest).sum::<usize>();
        depth - messages >= depth / 4 && ring - held >= ring / 4
    }

    /// Whether so much is under way that it is worth asking what has been sent.
    pub(super) fn is_half_full(&self) -> bool {
        self.messages.len() >= self.settings.depth as usize / 2
            || self.held >= self.settings.ring() / 2
    }

    /// A message of so many bytes, at most the [room](Self::room), is under way.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.messages.push_back(bytes);
        self.held += bytes;
        self.position = (self.position + bytes) % self.settings.ring();
    }

    /// The adapter has sent the next message with bytes.
    pub(super) fn is_done(&mut self) {
        self.done = self.done.wrapping_add(1);
        self.free();
    }

    /// The peer has used up so many messages in all, of those that were sent.
    pub(super) fn is_used(&mut self, used: u16) {
        self.used = used;
        self.free();
    }

    fn free(&mut self) {
        let both = self.done.wrapping_sub(self.freed).min(self.used.wrapping_sub(self.freed));
        for _ in 0..both {
            self.held -= self.messages.pop_front().unwrap_or(0);
            self.freed = self.freed.wrapping_add(1);
        }
    }

    /// Whether a message without bytes may be sent. One is left for the last.
    pub(super) fn may_send_bare(&self, last: bool) -> bool {
        self.bare + u32::from(!last) < BARE
    }

    pub(super) fn bare_sent(&mut self) {
        self.bare += 1;
    }

    pub(super) fn bare_is_done(&mut self) {
        self.bare = self.bare.saturating_sub(1);
    }

    /// Whether the adapter has sent everything.
    pub(super) fn is_idle(&self) -> bool {
        let sent = self.freed.wrapping_add(self.messages.len() as u16);
        self.bare == 0 && self.done == sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_rdma::Mtu;
    use proptest::prelude::*;

    fn small() -> Outgoing {
        Outgoing::new(Settings { depth: 4, message: 100, ring: 400, mtu: Mtu::MOST })
    }

    #[test]
    fn a_part_is_free_when_it_was_sent_and_used_up() {
        let mut out = small();
        for _ in 0..4 {
            assert_eq!(out.room().1, 100);
            out.sent(100);
        }
        assert_eq!(out.room(), (0, 0));
        out.is_done();
        assert_eq!((out.room().1, out.waits_for_adapter()), (0, false), "not used up");
        out.is_used(2);
        assert_eq!((out.room(), out.waits_for_adapter()), ((0, 100), false));
        out.is_done();
        assert_eq!((out.held, out.is_idle()), (200, false));
        out.is_done();
        out.is_done();
        assert!(out.is_idle());
    }

    #[test]
    fn the_adapter_is_waited_for_only_if_nothing_else_is() {
        let mut out = small();
        (0..4).for_each(|_| out.sent(100));
        assert!(!out.waits_for_adapter(), "the peer has used up nothing");
        out.is_used(1);
        assert!(out.waits_for_adapter() && !out.has_much_room());
        out.is_done();
        assert!(!out.waits_for_adapter() && out.has_much_room());
    }

    #[test]
    fn messages_do_not_reach_around_the_end() {
        let mut out = small();
        (0..3).for_each(|_| out.sent(100));
        (0..3).for_each(|_| out.is_done());
        out.sent(50);
        out.is_used(3);
        assert_eq!(out.room(), (350, 50));
        out.sent(50);
        assert_eq!(out.room(), (0, 100));
    }

    #[test]
    fn the_last_message_always_has_a_place() {
        let mut out = small();
        while out.may_send_bare(false) {
            out.bare_sent();
        }
        assert!(out.may_send_bare(true));
    }

    proptest! {
        /// Whatever the order of events, parts under way never overlap, and all gets free again.
        #[test]
        fn parts_never_overlap(steps in proptest::collection::vec((0..3_u8, 1..100_usize), 1..2000)) {
            let mut out = small();
            let mut parts: VecDeque<(usize, usize)> = VecDeque::new();
            let (mut sent, mut done, mut used, mut freed) = (0_u64, 0_u64, 0_u64, 0_u64);
            for (step, bytes) in steps {
                match step {
                    0 => {
                        let (at, room) = out.room();
                        let bytes = bytes.min(room);
                        if bytes > 0 {
                            prop_assert!(at + bytes <= 400);
                            let apart = |(other, size): &(usize, usize)| {
                                at + bytes <= *other || other + size <= at
                            };
                            prop_assert!(parts.iter().all(apart));
                            parts.push_back((at, bytes));
                            out.sent(bytes);
                            sent += 1;
                        }
                    }
                    1 if done < sent => {
                        out.is_done();
                        done += 1;
                    }
                    2 if used < sent => {
                        used += 1;
                        out.is_used(used as u16);
                    }
                    _ => {}
                }
                while freed < done.min(used) {
                    parts.pop_front();
                    freed += 1;
                }
                prop_assert_eq!(out.held, parts.iter().map(|part| part.1).sum::<usize>());
            }
        }
    }
}
