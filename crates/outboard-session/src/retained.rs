//! Frames of a lane that are kept until the other side has received them, so that they can be sent
//! again over another connection.

use std::collections::VecDeque;

use outboard_wire::frame::widen;

/// The frames sent and not known to be received, in order, numbered from 1.
#[derive(Debug)]
pub struct Retained<T> {
    frames: VecDeque<T>,
    /// How many before them were received.
    received: u64,
    /// How many of them have been sent over the connection as of now.
    sent: usize,
}

impl<T> Default for Retained<T> {
    fn default() -> Retained<T> {
        Retained { frames: VecDeque::new(), received: 0, sent: 0 }
    }
}

impl<T> Retained<T> {
    /// One more frame, which is sent at once, or will be after a [`resume`](Self::resume).
    pub fn push(&mut self, frame: T) {
        // If those before it are yet to be sent again, so is it.
        if self.sent == self.frames.len() {
            self.sent += 1;
        }
        self.frames.push_back(frame);
    }

    /// The other side has received the frames up to the one whose number has this low half; these
    /// frames, which need not be kept. `None` if that many were never sent.
    pub fn acknowledged(&mut self, low: u32) -> Option<impl Iterator<Item = T>> {
        self.received_up_to(widen(low, self.received))
    }

    /// After a cut, with another side that has received `received` frames: all later ones are to be
    /// sent again. As of [`acknowledged`](Self::acknowledged); `None` also if some of them are not
    /// kept any more.
    pub fn resume(&mut self, received: u64) -> Option<impl Iterator<Item = T>> {
        if received < self.received {
            return None;
        }
        // They may all have come.
        self.sent = self.frames.len();
        let last = self.received + self.frames.len() as u64;
        if received > last {
            return None;
        }
        let gone = (received - self.received) as usize;
        self.received = received;
        self.sent = 0;
        Some(self.frames.drain(..gone).collect::<Vec<T>>().into_iter())
    }

    fn received_up_to(&mut self, received: u64) -> Option<impl Iterator<Item = T>> {
        // What was said later may be heard earlier, when it is said on the way of several threads.
        let gone = received.saturating_sub(self.received) as usize;
        if gone > self.sent {
            return None;
        }
        self.received += gone as u64;
        self.sent -= gone;
        Some(self.frames.drain(..gone))
    }

    /// The next frame to send again.
    pub fn next_again(&mut self) -> Option<&mut T> {
        let frame = self.frames.get_mut(self.sent)?;
        self.sent += 1;
        Some(frame)
    }

    /// Whether any is to be sent again.
    pub fn has_again(&self) -> bool {
        self.sent < self.frames.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.frames.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Send,
        Arrive(usize),
        Acknowledge,
        Cut,
        Again,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Send),
            4 => (1usize..4).prop_map(Step::Arrive),
            2 => Just(Step::Acknowledge),
            1 => Just(Step::Cut),
            3 => Just(Step::Again),
        ]
    }

    /// Most steps; Miri takes seconds for a hundred.
    const MOST: usize = if cfg!(miri) { 30 } else { 200 };

    proptest! {
        #[test]
        fn frames_come_once_and_in_order_whatever_is_cut(steps in proptest::collection::vec(step(), 1..MOST)) {
            let mut kept = Retained::default();
            let mut wire = VecDeque::new();
            let (mut made, mut received, mut told) = (0u64, 0u64, 0u64);
            let finish = [Step::Cut, Step::Again, Step::Arrive(usize::MAX), Step::Acknowledge];
            for step in steps.into_iter().chain(finish) {
                match step {
                    Step::Send => {
                        made += 1;
                        kept.push(made);
                        // Those to be sent again go first.
                        if !kept.has_again() {
                            wire.push_back(made);
                        }
                    }
                    Step::Again => while let Some(frame) = kept.next_again() {
                        wire.push_back(*frame);
                    },
                    Step::Arrive(count) => for frame in wire.drain(..count.min(wire.len())) {
                        received += 1;
                        prop_assert_eq!(frame, received);
                    },
                    Step::Acknowledge => {
                        let gone: Vec<u64> = kept.acknowledged(received as u32).unwrap().collect();
                        prop_assert_eq!(gone, (told + 1..=received).collect::<Vec<u64>>());
                        told = received;
                    }
                    Step::Cut => {
                        wire.clear();
                        let gone: Vec<u64> = kept.resume(received).unwrap().collect();
                        prop_assert_eq!(gone, (told + 1..=received).collect::<Vec<u64>>());
                        told = received;
                    }
                }
            }
            prop_assert_eq!(received, made);
            prop_assert!(kept.is_empty());
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut kept = Retained::default();
        kept.push('a');
        kept.push('b');
        assert!(kept.acknowledged(3).is_none() && kept.resume(3).is_none());
        assert_eq!(kept.acknowledged(1).unwrap().collect::<String>(), "a");
        assert_eq!(kept.acknowledged(0).unwrap().count(), 0, "an old word says nothing");
        assert!(kept.resume(0).is_none(), "the first is not kept any more");
        assert_eq!(kept.resume(1).unwrap().count(), 0);
        assert!(kept.acknowledged(2).is_none(), "it has not been sent over this connection");
        assert_eq!(kept.next_again(), Some(&mut 'b'));
        assert_eq!(kept.acknowledged(2).unwrap().collect::<String>(), "b");
    }
}
