//! Waiting for replies: one thread reads for all.
//!
//! The thread that holds the lock on the incoming half is the leader. One rule keeps all threads
//! going: *a thread that releases the lock wakes one thread that still waits.* The woken thread
//! becomes the leader, or finds another one, which then follows the same rule.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use outboard_session::ProtocolError;
use outboard_session::client::Event;
use outboard_transport::{Interest, PEER_CHECK, Readiness, Spin};
use outboard_wire::notice::ENDED;
use outboard_wire::{Reader, plain};

use super::error::LinkError;
use super::landing::Landing;
use super::locks::{lock, try_lock};
use super::reply::{Recipient, Reply, Slot};
use super::shared::{Reading, Shared};

/// So many bytes of a frame that is not complete are a sign of life. The heartbeats of a worker are
/// far fewer bytes within the time of silence: they must not prolong the wait for a frame that
/// never ends.
const PART: usize = 1 << 10;

fn invalid(error: ProtocolError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Shared {
    /// Waits for a reply that has been asked for. What it returns may land where it belongs.
    pub(super) fn receive(
        &self,
        slot: &Slot,
        mut landing: Option<Landing>,
    ) -> Result<Reply, LinkError> {
        let mut spin = Spin::when(self.quick, self.patience.window());
        loop {
            if let Some(reply) = slot.take() {
                return reply;
            }
            let Some(mut reading) = try_lock(&self.read) else {
                if !spin.again() {
                    slot.block();
                }
                continue;
            };
            let epoch = reading.current.epoch;
            let result = self.lead(&mut reading, slot, &mut landing, &mut spin);
            if let Some(landing) = &landing {
                landing.leave(&mut reading.incoming);
            }
            drop(reading);
            self.pass_leadership();
            if let Err(error) = result {
                self.broken(epoch, &error);
                self.wait_for_connection(epoch);
            }
        }
    }

    /// As of [`Link::poll_for`](super::Link::poll_for).
    pub(super) fn poll_for(&self, sign: impl Fn() -> bool, most: Duration) -> bool {
        if self.flush().is_err() {
            return false;
        }
        let mut spin = Spin::when(self.quick, self.patience.window().min(most));
        while !sign() {
            if self.is_lost() || !spin.again() {
                return false;
            }
        }
        // Any other reader also waits for something else.
        let Some(mut reading) = try_lock(&self.read) else { return false };
        let epoch = reading.current.epoch;
        let read = loop {
            match self.read_some(&mut reading) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        drop(reading);
        self.pass_leadership();
        read.inspect_err(|error| self.broken(epoch, error)).is_ok()
    }

    /// Reads for all until the leader's own reply has come.
    fn lead(
        &self,
        reading: &mut Reading,
        own: &Slot,
        landing: &mut Option<Landing>,
        spin: &mut Spin,
    ) -> io::Result<()> {
        while !own.is_answered() {
            if self.is_lost() {
                return Ok(());
            }
            if self.read_some_to(reading, landing)? || spin.again() {
                continue;
            }
            let ready = reading.current.stream.wait(Interest::READ, None, Some(PEER_CHECK))?;
            if ready == Readiness::default() {
                self.bulk.check_lanes();
                reading.current.stream.check_peer()?;
                self.not_heard(PEER_CHECK)?;
            }
        }
        Ok(())
    }

    /// Reads what is there and hands it out; whether there was anything.
    pub(super) fn read_some(&self, reading: &mut Reading) -> io::Result<bool> {
        self.read_some_to(reading, &mut None)
    }

    /// The same. Bytes that belong where `landing` says go there.
    fn read_some_to(
        &self,
        reading: &mut Reading,
        landing: &mut Option<Landing>,
    ) -> io::Result<bool> {
        if !reading.up {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if let Some(to) = landing
            && reading.incoming.open_bytes().is_some()
        {
            if let Some(read) = self.read_open(reading, to)? {
                return Ok(read);
            }
            // The program is to meet the fault by itself.
            to.leave(&mut reading.incoming);
            *landing = None;
        }
        let incoming = &mut reading.incoming;
        let most = landing.as_ref().map_or(usize::MAX, |_| Landing::most_before(incoming));
        let room = incoming.buffer().room();
        let room_len = room.len().min(most);
        let count = match reading.current.stream.read(&mut room[..room_len]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        self.counters.received.add(count as u64);
        incoming.buffer().filled(count);
        if let Some(landing) = landing
            && landing.open(incoming).map_err(invalid)?
        {
            self.heard();
            reading.part = 0;
        }
        let unread = incoming.buffer().unread().len();
        while let Some(event) = incoming.next_event().map_err(invalid)? {
            self.heard();
            match event {
                Event::Notice { code, payload } => {
                    // This thread reads for others: a panic here must not leave them without a
                    // reader.
                    let _ = catch_unwind(AssertUnwindSafe(|| (self.notices)(code, payload)));
                    if code == ENDED {
                        let sentence: &str =
                            Reader::new(payload).get().unwrap_or("the server ended it");
                        self.lose(&plain(sentence));
                        return Err(io::Error::other("the server ended it"));
                    }
                }
                Event::Reply { answers, status, payload } => {
                    let recipient = lock(&self.calls).pending.complete(answers).map_err(invalid)?;
                    let payload = payload.to_vec();
                    recipient.deliver(Ok(Reply { seq: answers, status, payload, landed: false }));
                }
            }
        }
        let left = incoming.buffer().unread().len();
        if left < unread || left >= reading.part + PART {
            self.heard();
            reading.part = left;
        } else {
            self.not_heard(Duration::ZERO)?;
        }
        if self.connection.is_resumable() {
            self.note_received(incoming, count);
        }
        Ok(true)
    }

    /// Reads what is there of the open answer to where it belongs; whether there was anything.
    /// `None` if it cannot be written there.
    fn read_open(&self, reading: &mut Reading, landing: &Landing) -> io::Result<Option<bool>> {
        let Reading { current, incoming, part, .. } = reading;
        let (count, complete) = match landing.read(incoming, |to| current.stream.read(to)) {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Some(false)),
            Err(error) => return Err(error),
        };
        self.counters.received.add(count as u64);
        let come = incoming.open_bytes().unwrap_or(0);
        if complete || come >= *part + PART {
            self.heard();
            *part = come;
        } else {
            self.not_heard(Duration::ZERO)?;
        }
        if self.connection.is_resumable() {
            self.note_received(incoming, count);
        }
        if complete {
            let seq = landing.seq();
            let recipient = lock(&self.calls).pending.complete(seq).map_err(invalid)?;
            recipient.deliver(Ok(Reply { seq, status: 0, payload: Vec::new(), landed: true }));
        }
        Ok(Some(true))
    }

    /// Reads the bytes that have arrived, unless another thread reads: notices are read this way
    /// while no thread waits for a reply.
    pub(super) fn read_unasked(&self) {
        let Some(mut reading) = try_lock(&self.read) else { return };
        let epoch = reading.current.epoch;
        let result = self.read_some(&mut reading);
        drop(reading);
        self.pass_leadership();
        if let Err(error) = result {
            self.broken(epoch, &error);
        }
    }

    /// Called by a thread that has waited that long for something that comes another way: checks
    /// whether the worker has sent anything over this connection meanwhile.
    pub(super) fn check_for_life(&self, waited: Duration) {
        self.read_unasked();
        if self.connection.is_broken() || self.is_lost() {
            return;
        }
        let epoch = self.connection.current().epoch;
        if let Err(error) = self.not_heard(waited) {
            self.broken(epoch, &error);
        }
    }

    /// The peer has hung up: reads what it said before, up to the end.
    pub(super) fn read_to_the_end(&self) {
        let (epoch, error) = {
            let mut reading = lock(&self.read);
            let error = loop {
                match self.read_some(&mut reading) {
                    Ok(true) => {}
                    Ok(false) => break io::ErrorKind::UnexpectedEof.into(),
                    Err(error) => break error,
                }
            };
            (reading.current.epoch, error)
        };
        self.pass_leadership();
        self.broken(epoch, &error);
    }

    /// Call it after releasing the lock on the incoming half.
    pub(super) fn pass_leadership(&self) {
        let calls = lock(&self.calls);
        if let Some(slot) = calls.pending.find(Recipient::thread) {
            slot.nudge();
        }
    }
}
