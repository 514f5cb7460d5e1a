//! Writing queued commands: one thread at a time has the right to write.

use std::io::{self, IoSlice};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use outboard_transport::{Interest, PEER_CHECK, Readiness, Stream};

use super::error::LinkError;
use super::queue::{Commands, Writing};
use super::shared::Shared;

/// How long a writer that cannot write waits before it looks again whether someone else still
/// reads.
const READER_CHECK: Duration = Duration::from_millis(20);
/// If more bytes than this are written and not acknowledged, the writing thread reads the worker's
/// acknowledgements.
const LOOK_RETAINED: usize = 256 << 10;
/// With more than this, it waits.
const MOST_RETAINED: usize = 32 << 20;

impl Shared {
    /// The queue, once it has room.
    #[inline]
    pub(super) fn queue_with_room(&self) -> Result<MutexGuard<'_, Commands>, LinkError> {
        loop {
            if self.is_lost() {
                return Err(self.lost());
            }
            let last = match self.queue.with_room() {
                Ok(commands) => return Ok(commands),
                Err(last) => last,
            };
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
        self.write_pending(self.queue.writing_soon(), seq)
    }

    /// Writes a command that has just been queued and not been shown to the sender, which is shown
    /// it if there is anything in the way. Whether it is written.
    #[inline]
    pub(super) fn write_first(&self, seq: u64) -> Result<bool, LinkError> {
        if let Some(writing) = self.queue.try_writing()
            && !self.connection.is_broken()
        {
            return self.write_pending(writing, seq).map(|()| true);
        }
        self.queue.show();
        Ok(false)
    }

    fn write_pending(&self, writing: MutexGuard<'_, Writing>, seq: u64) -> Result<(), LinkError> {
        if self.connection.is_broken() {
            return Ok(());
        }
        let taken = self.connection.is_resumable().then(|| self.reader.taken());
        let batch = match self.queue.take(seq, taken) {
            Ok(batch) => batch,
            Err(error) => {
                drop(writing);
                self.lose(&error.to_string());
                return Err(self.lost());
            }
        };
        let Some(batch) = batch else { return Ok(()) };
        let result = self.write_bytes(&writing.current.stream, batch.bytes());
        let retained = self.queue.written(batch);
        let epoch = writing.current.epoch;
        drop(writing);
        if let Err(error) = result {
            self.broken(epoch, &error);
            return if self.is_lost() { Err(self.lost()) } else { Ok(()) };
        }
        if taken.is_some() && retained > LOOK_RETAINED {
            self.wait_for_taken(retained);
        }
        Ok(())
    }

    /// Called with the number of bytes that are written and not acknowledged: reads
    /// acknowledgements, and waits if there are too many bytes.
    fn wait_for_taken(&self, retained: usize) {
        self.read_unasked();
        if retained <= MOST_RETAINED {
            return;
        }
        let mut left = retained;
        while left > MOST_RETAINED && !self.is_lost() && !self.connection.is_broken() {
            let current = self.connection.current();
            if let Err(error) = current.stream.wait(Interest::READ, None, Some(READER_CHECK)) {
                return self.broken(current.epoch, &error);
            }
            self.read_unasked();
            match self.queue.kept(self.reader.taken()) {
                Ok(kept) => left = kept,
                Err(_) => return,
            }
        }
    }

    fn write_bytes(&self, stream: &Arc<dyn Stream>, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.is_lost() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match stream.write(&[IoSlice::new(bytes)]) {
                Ok(count) => {
                    self.queue.count(count);
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
        let ready = match self.reader.try_read() {
            Some(mut reading) => {
                let interest = Interest { read: true, write: true, hangup: false };
                let ready = stream.wait(interest, None, Some(PEER_CHECK));
                let read = match ready {
                    Ok(Readiness { read: true, .. }) => self.read_some(&mut reading).map(drop),
                    _ => Ok(()),
                };
                drop(reading);
                self.reader.pass_leadership();
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
        self.reader.not_heard(PEER_CHECK)
    }
}
