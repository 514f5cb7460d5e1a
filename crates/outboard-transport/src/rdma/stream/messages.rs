//! Messages to and from the adapter.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU32, Ordering};

use outboard_rdma::{Completion, Part, Remote, WorkError};

use super::{BARE, RECEIVED, RdmaStream, SENT, Side, WITH_BYTES};
use crate::locks::lock;
use crate::rdma::immediate::{Immediate, Kind};
use crate::rdma::incoming::Incoming;
use crate::rdma::outgoing::Outgoing;
use crate::stream::Interest;

impl RdmaStream {
    /// Has the adapter take the receive again.
    pub(super) fn post_receive(&self, receive: u64) {
        let message = self.settings.message as usize;
        let part = match self.side {
            Side::Client => None,
            Side::Server { .. } => {
                Some(Part { region: RECEIVED, offset: receive as usize * message, bytes: message })
            }
        };
        if let Err(error) = self.pair.receive(receive, part) {
            self.fail(io::ErrorKind::Other, &error.to_string());
        }
    }

    /// The peer says that it has used up so many messages in all: whether that can be.
    fn is_credited(&self, used: u16) -> bool {
        let before = self.peer_used.load(Ordering::Relaxed) as u16;
        let sent = self.sent.load(Ordering::Acquire) as u16;
        self.peer_used.store(used.into(), Ordering::Release);
        used.wrapping_sub(before) <= sent.wrapping_sub(before)
    }

    /// Takes what has come, also after a failure; wakes other threads that wait for it than the one
    /// that calls, which itself waits for `own`.
    pub(super) fn progress(&self, back: &mut Incoming, own: Interest) {
        let (mut news, mut credit, mut flushed) = (false, false, false);
        let mut take = |taken: Result<Completion, WorkError>| {
            let completion = match taken {
                Ok(completion) => completion,
                Err(WorkError::Flushed) => return flushed = true,
                Err(error) => return self.fail_of(error),
            };
            let said = completion.immediate.and_then(Immediate::decode);
            let Some(said) = said else {
                return self.fail(io::ErrorKind::InvalidData, "the peer says what nobody says");
            };
            if !self.is_credited(said.used) {
                return self
                    .fail(io::ErrorKind::InvalidData, "the peer has used up what was not sent");
            }
            credit = true;
            match said.kind {
                Kind::Bytes => {
                    if back.arrive(completion.bytes as usize, completion.work).is_err() {
                        self.fail(io::ErrorKind::InvalidData, "the peer sends more than it may");
                    }
                    news = true;
                    // The bytes are in the ring, and the receive is free at once.
                    if self.side == Side::Client {
                        self.post_receive(completion.work);
                    }
                }
                Kind::Bare => self.post_receive(completion.work),
                Kind::End => {
                    self.ended.store(true, Ordering::Release);
                    news = true;
                }
            }
        };
        if let Err(error) = self.pair.received().poll_all(&mut take) {
            self.fail(io::ErrorKind::Other, &error.to_string());
        }
        if flushed && self.failure.get().is_none() {
            // The works to send say why.
            self.collect(&mut lock(&self.out));
            self.fail_of(WorkError::Flushed);
        }
        let others = |count: &AtomicU32, own: bool| count.load(Ordering::SeqCst) > u32::from(own);
        if news && others(&self.readers, own.read) {
            self.events.readable.wake();
        }
        if credit && others(&self.writers, own.write) {
            self.events.writable.wake();
        }
    }

    /// Frees what the adapter has sent and the peer has used up.
    pub(super) fn collect(&self, out: &mut Outgoing) {
        let mut take = |taken: Result<Completion, WorkError>| match taken {
            Ok(completion) if completion.work == WITH_BYTES => out.is_done(),
            Ok(_) => out.bare_is_done(),
            Err(error) => self.fail_of(error),
        };
        if let Err(error) = self.pair.sent().poll_all(&mut take) {
            self.fail(io::ErrorKind::Other, &error.to_string());
        }
        out.is_used(self.peer_used.load(Ordering::Acquire) as u16);
    }

    /// Sends a message, and with it how much this side has used up.
    pub(super) fn post(&self, work: u64, kind: Kind, part: Option<Part>) -> io::Result<()> {
        // What is used up meanwhile is told by the next one.
        self.untold.store(0, Ordering::Relaxed);
        let used = self.used.load(Ordering::Acquire);
        self.told.store(used, Ordering::Release);
        let number = Immediate { used: used as u16, kind }.encode();
        let to = match (self.side, part) {
            (Side::Server { ring }, Some(part)) => {
                Some(Remote { address: ring.address + part.offset as u64, rkey: ring.rkey })
            }
            _ => None,
        };
        self.pair.send(work, number, part, to).map_err(|error| {
            self.fail(io::ErrorKind::Other, &error.to_string());
            error.into()
        })
    }

    /// Sends a message without bytes, if there is a place for one.
    pub(super) fn post_bare(&self, out: &mut Outgoing, kind: Kind) {
        if out.may_send_bare(kind == Kind::End) && self.post(BARE, kind, None).is_ok() {
            out.bare_sent();
        }
    }

    /// Whether the peer should hear how much this side has used up.
    pub(super) fn owes_word(&self) -> bool {
        let used = self.used.load(Ordering::Acquire);
        let messages = used.wrapping_sub(self.told.load(Ordering::Acquire));
        messages >= self.settings.depth / 4
            || messages > 0 && self.untold.load(Ordering::Relaxed) >= self.settings.ring() / 4
    }

    /// Tells the peer, if it should hear.
    pub(super) fn tell(&self) {
        if !self.owes_word() || self.is_over() {
            return;
        }
        let mut out = lock(&self.out);
        self.collect(&mut out);
        if self.owes_word() && !self.is_over() {
            self.post_bare(&mut out, Kind::Bare);
        }
    }

    /// Fills a message from the buffers, beginning at `from` of all their bytes.
    pub(super) fn fill(&self, buffers: &[IoSlice<'_>], from: usize, part: Part) {
        let (mut skip, mut filled) = (from, 0);
        for buffer in buffers {
            if skip >= buffer.len() {
                skip -= buffer.len();
                continue;
            }
            let rest = &buffer[skip..];
            skip = 0;
            let bytes = &rest[..rest.len().min(part.bytes - filled)];
            self.pair.regions()[SENT].write(part.offset + filled, bytes);
            filled += bytes.len();
            if filled == part.bytes {
                return;
            }
        }
    }
}
