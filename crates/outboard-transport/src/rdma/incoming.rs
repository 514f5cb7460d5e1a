//! Which bytes have come and are not read. No adapter, no memory: numbers only.

use std::collections::VecDeque;

use super::settings::Settings;

pub(super) struct Incoming {
    settings: Settings,
    /// Where messages lie.
    place: Place,
    /// Messages that are not used up, oldest first.
    arrived: VecDeque<Arrived>,
    /// Bytes of the first one that were read.
    read: usize,
    /// Where in the ring the next message begins.
    position: usize,
    /// Bytes that are not used up.
    held: usize,
}

/// Where the bytes of messages lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// One behind the other in a ring.
    Ring,
    /// Each in the slot of the receive that it came with, which has the receive's number.
    Slots,
}

struct Arrived {
    offset: usize,
    bytes: usize,
    receive: u64,
}

/// The peer has sent more than it may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

impl Incoming {
    pub(super) fn new(settings: Settings, place: Place) -> Incoming {
        let arrived = VecDeque::with_capacity(settings.depth as usize);
        Incoming { settings, place, arrived, read: 0, position: 0, held: 0 }
    }

    /// A message of so many bytes has come, by that receive.
    pub(super) fn arrive(&mut self, bytes: usize, receive: u64) -> Result<(), TooMuch> {
        let ring = self.settings.ring();
        let fits = match self.place {
            Place::Ring => self.position + bytes <= ring && self.held + bytes <= ring,
            Place::Slots => receive < self.settings.works().into(),
        };
        let message = self.settings.message as usize;
        let full = self.arrived.len() >= self.settings.depth as usize;
        if !fits || full || bytes == 0 || bytes > message {
            return Err(TooMuch);
        }
        let offset = match self.place {
            Place::Ring => self.position,
            Place::Slots => receive as usize * message,
        };
        self.position = (self.position + bytes) % ring;
        self.held += bytes;
        self.arrived.push_back(Arrived { offset, bytes, receive });
        Ok(())
    }

    /// Where the next bytes to read are, and how many lie together.
    pub(super) fn next(&self) -> Option<(usize, usize)> {
        let first = self.arrived.front()?;
        Some((first.offset + self.read, first.bytes - self.read))
    }

    /// So many of the [next](Self::next) bytes were read. Returns the receive of a message that is
    /// used up with them, and its size.
    pub(super) fn consume(&mut self, bytes: usize) -> Option<(u64, usize)> {
        self.read += bytes;
        let first = self.arrived.front()?;
        if self.read < first.bytes {
            return None;
        }
        let used_up = (first.receive, first.bytes);
        self.arrived.pop_front();
        self.read = 0;
        self.held -= used_up.1;
        Some(used_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_rdma::Mtu;

    const SETTINGS: Settings = Settings { depth: 4, message: 100, ring: 400, mtu: Mtu::MOST };

    #[test]
    fn messages_are_used_up_in_order() {
        let mut back = Incoming::new(SETTINGS, Place::Slots);
        assert_eq!(back.next(), None);
        assert_eq!(back.arrive(70, 3), Ok(()));
        assert_eq!(back.arrive(100, 0), Ok(()));
        assert_eq!(back.next(), Some((300, 70)));
        assert_eq!(back.consume(30), None);
        assert_eq!(back.next(), Some((330, 40)));
        assert_eq!(back.consume(40), Some((3, 70)));
        assert_eq!(back.next(), Some((0, 100)));
        assert_eq!(back.consume(100), Some((0, 100)));
        assert_eq!(back.next(), None);
    }

    #[test]
    fn a_ring_is_followed_around() {
        let mut back = Incoming::new(SETTINGS, Place::Ring);
        for offset in [0, 100, 200, 300, 0, 100] {
            assert_eq!(back.arrive(100, 9), Ok(()));
            assert_eq!(back.next(), Some((offset, 100)));
            assert_eq!(back.consume(100), Some((9, 100)));
        }
    }

    #[test]
    fn a_peer_that_sends_more_than_it_may_is_found_out() {
        let mut back = Incoming::new(SETTINGS, Place::Ring);
        assert_eq!(back.arrive(0, 0), Err(TooMuch));
        assert_eq!(back.arrive(101, 0), Err(TooMuch));
        (0..3).for_each(|_| assert_eq!(back.arrive(90, 0), Ok(())));
        (0..2).for_each(|_| assert_eq!(back.consume(90), Some((0, 90))));
        assert_eq!(back.arrive(90, 0), Ok(()));
        assert_eq!(back.arrive(50, 0), Err(TooMuch), "beyond the ring's end");
        assert_eq!(back.arrive(40, 0), Ok(()));
        assert_eq!(back.arrive(1, 0), Ok(()));
        assert_eq!(back.arrive(1, 0), Err(TooMuch), "more messages than the depth");
        let mut back = Incoming::new(SETTINGS, Place::Slots);
        assert_eq!(back.arrive(1, 16), Err(TooMuch), "no such slot");
    }
}
