//! Writing queued commands: one thread at a time has the right to write.

use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use outboard_transport::{Interest, Readiness, Stream};

use super::connection::Current;
use super::error::LinkError;
use super::kept::LOOK_RETAINED;
use super::locks::{lock, lock_awake, try_lock};
use super::shared::{Queue, Shared};

/// What the thread that writes has.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) current: Current,
    /// How often a new connection has been tried.
    attempts: u64,
}

impl Writing {
    pub(super) fn new(current: Current) -> Writing {
        Writing { current, attempts: 0 }
    }

    /// The number of one more attempt to connect.
    pub(super) fn next_attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts
    }
}

/// How long a writer that cannot write waits before it looks again whether someone else still
/// reads.
pub(super) const READER_CHECK: Duration = Duration::from_millis(20);

impl Shared {
    /// The queue, once it has room.
    #[inline]
    pub(super) fn queue_with_room(&self) -> Result<MutexGuard<'_, Queue>, LinkError> {
        loop {
            if self.is_lost() {
                return Err(self.lost());
            }
            let queue = lock(&self.queue);
            if queue.outgoing.pending_bytes() < self.config.queue {
                return Ok(queue);
            }
            let last = queue.outgoing.last();
            drop(queue);
            outboard_front::profile::stalled(|| {
                let current = self.connection.current();
                self.write_up_to(last)?;
                // The queue of commands posted meanwhile is bounded, too.
                self.wait_for_connection(current.epoch);
                Ok::<(), LinkError>(())
            })?;
        }
    }

    pub(super) fn flush(&self) -> Result<(), LinkError> {
        self.write_up_to(u64::MAX)
    }

    /// Writes everything pending, at least up to command `seq`. Writing is what a thread holds
    /// while it blocks on the peer; the queue stays open meanwhile. Without a connection, all of it
    /// stays where it is until there is another one.
    pub(super) fn write_up_to(&self, seq: u64) -> Result<(), LinkError> {
        self.write_pending(lock_awake(&self.write), seq)
    }

    /// Writes a command that has just been queued and not been shown to the sender, which is shown
    /// it if there is anything in the way. Whether it is written.
    #[inline]
    pub(super) fn write_first(&self, seq: u64) -> Result<bool, LinkError> {
        if let Some(writing) =
            try_lock(&self.write).filter(|writing| writing.current.stream.has_room())
            && !self.connection.is_broken()
        {
            return self.write_pending(writing, seq).map(|()| true);
        }
        let queue = lock(&self.queue);
        self.pending.0.store(queue.outgoing.pending_bytes(), Ordering::Relaxed);
        Ok(false)
    }

    /// Whether the last batch has left long enough ago for the worker to wait for more.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        let now = self.start.elapsed().as_nanos() as u64;
        now.saturating_sub(self.sent_at.load(Ordering::Relaxed))
            >= super::sender::GAP.as_nanos() as u64
    }

    fn write_pending(&self, writing: MutexGuard<'_, Writing>, seq: u64) -> Result<(), LinkError> {
        if self.connection.is_broken() {
            return Ok(());
        }
        let resumable = self.connection.is_resumable();
        let batch = {
            let mut queue = lock_awake(&self.queue);
            if queue.written >= seq {
                return Ok(());
            }
            if resumable && let Err(error) = self.take_over(&mut queue) {
                drop((queue, writing));
                self.lose(&error.to_string());
                return Err(self.lost());
            }
            let batch = queue.outgoing.take();
            if self.pending.0.load(Ordering::Relaxed) != 0 {
                self.pending.0.store(0, Ordering::Relaxed);
            }
            batch
        };
        let Some(batch) = batch else { return Ok(()) };
        if self.quick {
            self.sent_at.store(self.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        let result = self.write_bytes(&writing.current.stream, batch.bytes());
        let mut queue = lock_awake(&self.queue);
        queue.written = batch.last();
        queue.outgoing.done(batch);
        let retained = queue.outgoing.retained_bytes();
        drop(queue);
        let epoch = writing.current.epoch;
        drop(writing);
        if let Err(error) = result {
            self.broken(epoch, &error);
            return if self.is_lost() { Err(self.lost()) } else { Ok(()) };
        }
        if resumable && retained > LOOK_RETAINED {
            self.wait_for_taken(retained);
        }
        Ok(())
    }

    fn write_bytes(&self, stream: &Arc<dyn Stream>, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.is_lost() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match stream.write(&[IoSlice::new(bytes)]) {
                Ok(count) => {
                    self.counters.sends.add(1);
                    self.counters.sent.add(count as u64);
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_to_write(&**stream)?
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The worker may be unable to read because we don't: so a thread that waits to write also
    /// reads, unless another thread reads.
    fn wait_to_write(&self, stream: &dyn Stream) -> io::Result<()> {
        let ready = match try_lock(&self.read) {
            Some(mut reading) => {
                let interest = Interest { read: true, write: true, hangup: false };
                let ready = stream.wait(interest, None, Some(outboard_transport::PEER_CHECK));
                let read = match ready {
                    Ok(Readiness { read: true, .. }) => self.read_some(&mut reading).map(drop),
                    _ => Ok(()),
                };
                drop(reading);
                self.pass_leadership();
                read?;
                ready?
            }
            None => {
                stream.wait(Interest::WRITE, None, Some(READER_CHECK))?;
                return Ok(());
            }
        };
        if ready != Readiness::default() {
            return Ok(());
        }
        stream.check_peer()?;
        self.not_heard(outboard_transport::PEER_CHECK)
    }
}
