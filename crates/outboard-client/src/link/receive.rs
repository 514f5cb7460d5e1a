//! Waiting for replies: one thread reads for all.
//!
//! The thread that holds the lock on the incoming half is the leader. One rule keeps all threads
//! going: *a thread that releases the lock wakes one thread that still waits.* The woken thread
//! becomes the leader, or finds another one, which then follows the same rule.

use std::io;
use std::time::Duration;

use outboard_transport::{Interest, PEER_CHECK, Readiness, Spin};

use super::error::LinkError;
use super::landing::Landing;
use super::reader::{ReadError, Reading};
use super::reply::{Reply, Slot};
use super::shared::Shared;

impl Shared {
    /// Waits for a reply that has been asked for. What it returns may land where it belongs.
    pub(super) fn receive(
        &self,
        slot: &Slot,
        mut landing: Option<Landing>,
    ) -> Result<Reply, LinkError> {
        let mut spin = self.reader.spin(Duration::MAX);
        loop {
            if let Some(reply) = slot.take() {
                return reply;
            }
            let Some(mut reading) = self.reader.try_read() else {
                if !spin.again() {
                    slot.block();
                }
                continue;
            };
            let epoch = reading.epoch();
            let result = self.lead(&mut reading, slot, &mut landing, &mut spin);
            if let Some(landing) = &landing {
                reading.leave(landing);
            }
            drop(reading);
            self.reader.pass_leadership();
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
        let mut spin = self.reader.spin(most);
        while !sign() {
            if self.is_lost() || !spin.again() {
                return false;
            }
        }
        // Any other reader also waits for something else.
        let Some(mut reading) = self.reader.try_read() else { return false };
        let epoch = reading.epoch();
        let read = loop {
            match self.read_some(&mut reading) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        drop(reading);
        self.reader.pass_leadership();
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
            let ready = reading.stream().wait(Interest::READ, None, Some(PEER_CHECK))?;
            if ready == Readiness::default() {
                self.bulk.check_lanes();
                reading.stream().check_peer()?;
                self.reader.not_heard(PEER_CHECK)?;
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
        match self.reader.read_some(reading, landing, self.connection.is_resumable()) {
            Ok(read) => {
                if let Some(due) = read.due {
                    self.queue.acknowledge(due);
                }
                Ok(read.any)
            }
            Err(ReadError::Io(error)) => Err(error),
            Err(ReadError::Ended(sentence)) => {
                self.lose(&sentence);
                Err(io::Error::other("the server ended it"))
            }
        }
    }

    /// Reads the bytes that have arrived, unless another thread reads: notices are read this way
    /// while no thread waits for a reply.
    pub(super) fn read_unasked(&self) {
        let Some(mut reading) = self.reader.try_read() else { return };
        let epoch = reading.epoch();
        let result = self.read_some(&mut reading);
        drop(reading);
        self.reader.pass_leadership();
        if let Err(error) = result {
            self.broken(epoch, &error);
        }
    }

    /// Called by a thread that has waited that long for something that comes another way: checks
    /// whether the worker has sent anything over this connection meanwhile. A thread that reads
    /// already checks that itself; until it has, what has come is not known.
    pub(super) fn check_for_life(&self, waited: Duration) {
        let Some(mut reading) = self.reader.try_read() else { return };
        let epoch = reading.epoch();
        let result = match self.read_some(&mut reading) {
            Ok(true) => Ok(()),
            Ok(false) => self.reader.not_heard(waited),
            Err(error) => Err(error),
        };
        drop(reading);
        self.reader.pass_leadership();
        if let Err(error) = result {
            self.broken(epoch, &error);
        }
    }

    /// The peer has hung up: reads what it said before, up to the end.
    pub(super) fn read_to_the_end(&self) {
        let (epoch, error) = {
            let mut reading = self.reader.read();
            let error = loop {
                match self.read_some(&mut reading) {
                    Ok(true) => {}
                    Ok(false) => break io::ErrorKind::UnexpectedEof.into(),
                    Err(error) => break error,
                }
            };
            (reading.epoch(), error)
        };
        self.reader.pass_leadership();
        self.broken(epoch, &error);
    }
}

#[cfg(test)]
mod tests {
    use outboard_transport::pipe;

    use super::super::{Config, Link};
    use super::*;

    #[test]
    fn a_thread_that_cannot_look_calls_no_worker_silent() {
        let (client, _worker) = pipe::pair().unwrap();
        let config = Config { silence: Some(Duration::ZERO), ..Config::default() };
        let link = Link::start(client, config, Box::new(|_, _| ())).unwrap();
        let reading = link.shared.reader.read();
        link.shared.check_for_life(PEER_CHECK);
        assert!(link.is_alive(), "nobody knows what has come");
        drop(reading);
        link.shared.check_for_life(PEER_CHECK);
        assert!(!link.is_alive());
    }
}
