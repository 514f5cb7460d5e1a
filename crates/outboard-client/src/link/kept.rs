//! Sent commands that may have to be sent again, and how far both sides have acknowledged.

use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use outboard_session::ProtocolError;
use outboard_session::client::Incoming;
use outboard_transport::Interest;

use super::locks::{lock, lock_until};
use super::shared::{Queue, Shared};
use super::write::READER_CHECK;

/// The client acknowledges received frames after so many frames or bytes, together with commands
/// that it sends anyway.
const TELL_FRAMES: u64 = 32;
const TELL_BYTES: u64 = 64 << 10;
/// And at once after so many bytes.
const TELL_AT_ONCE: u64 = 1 << 20;
/// If more bytes than this are written and not acknowledged, the writing thread reads the worker's
/// acknowledgements.
pub(super) const LOOK_RETAINED: usize = 256 << 10;
/// With more than this, it waits.
const MOST_RETAINED: usize = 32 << 20;
/// How long an ending process may take to send its goodbye.
const LAST_WORDS: Duration = Duration::from_millis(100);

impl Shared {
    /// Drops the commands that the worker has acknowledged, and acknowledges received frames if
    /// that is due.
    pub(super) fn take_over(&self, queue: &mut Queue) -> Result<(), ProtocolError> {
        queue.outgoing.acknowledged(self.taken.load(Ordering::Relaxed))?;
        let received =
            (self.received.load(Ordering::Relaxed), self.received_bytes.load(Ordering::Relaxed));
        if received.0 - queue.told.0 >= TELL_FRAMES
            || received.1 - queue.told.1 >= TELL_BYTES && received.0 > queue.told.0
        {
            queue.outgoing.acknowledge(received.0);
            queue.told = received;
        }
        Ok(())
    }

    /// Called with the number of bytes that are written and not acknowledged: reads
    /// acknowledgements, and waits if there are too many bytes.
    pub(super) fn wait_for_taken(&self, retained: usize) {
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
            let mut queue = lock(&self.queue);
            if self.take_over(&mut queue).is_err() {
                return;
            }
            left = queue.outgoing.retained_bytes();
        }
    }

    /// Frames of the worker have been received, or more is known to be taken over.
    pub(super) fn note_received(&self, incoming: &Incoming, bytes: usize) {
        self.taken.store(incoming.taken(), Ordering::Relaxed);
        self.received.store(incoming.received(), Ordering::Relaxed);
        let bytes = bytes as u64;
        let total = self.received_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total / TELL_AT_ONCE > (total - bytes) / TELL_AT_ONCE {
            // Nothing may be posted for long.
            let mut queue = lock(&self.queue);
            queue.outgoing.acknowledge(incoming.received());
            queue.told = (incoming.received(), total);
            self.pending.0.store(queue.outgoing.pending_bytes(), Ordering::Relaxed);
            drop(queue);
            self.wake_sender();
        }
    }

    /// All commands after `taken` are pending again.
    pub(super) fn send_again(&self, taken: u64) -> Result<(), ProtocolError> {
        let mut queue = lock(&self.queue);
        queue.outgoing.resume(taken)?;
        queue.written = taken;
        // Whatever was said last may have been lost.
        queue.told = (0, 0);
        self.pending.0.store(queue.outgoing.pending_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// The process is ending: tells the worker, which then need not keep the session. Does not wait
    /// for long.
    pub(super) fn goodbye(&self) {
        self.leaving.store(true, Ordering::Relaxed);
        if !self.connection.is_resumable() || self.is_lost() || self.connection.is_broken() {
            return;
        }
        let deadline = Instant::now() + LAST_WORDS;
        // Another thread may be writing, or have the lock and have been ended with the process.
        let Some(writing) = lock_until(&self.write, deadline) else { return };
        let Some(mut queue) = lock_until(&self.queue, deadline) else { return };
        queue.outgoing.goodbye();
        let Some(batch) = queue.outgoing.take() else { return };
        let mut bytes = batch.bytes();
        while !bytes.is_empty() && Instant::now() < deadline {
            match writing.current.stream.write(&[IoSlice::new(bytes)]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if writing.current.stream.wait(Interest::WRITE, None, Some(left)).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        let whole = bytes.is_empty();
        queue.written = batch.last();
        queue.outgoing.done(batch);
        self.pending.0.store(0, Ordering::Relaxed);
        if !whole {
            // Half a frame may have been written: nothing can follow it there.
            let _ = writing.current.stream.shutdown();
        }
    }
}
