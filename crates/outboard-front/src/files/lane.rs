//! Streams of our own in which the bytes of files are copied.
//!
//! No stream of the program waits for them: a copy may be made while a stream waits for a function
//! that waits for the copy.

use crate::backend::{Backend, ObjectId, Result, StreamId};
use crate::context::Here;
use crate::copy::{Copy, Operand, Wait};
use crate::copy_queue::Queue;
use crate::order::wait_for;
use crate::process::Process;
use crate::stream::{self, NON_BLOCKING};

/// A stream that one transfer has for itself.
pub(super) struct Lane<B: Backend> {
    process: &'static Process<B>,
    queue: Queue,
    handle: u64,
}

impl<B: Backend> Lane<B> {
    /// One that nothing uses, or another one.
    pub(super) fn take(process: &'static Process<B>, here: &Here) -> Result<Lane<B>> {
        let kept = {
            let mut idle = process.files.idle.lock();
            // Those of contexts that have ended are no more.
            idle.retain(|(_, handle)| process.streams.table.look(*handle).is_some());
            let place = idle.iter().position(|(ctx, _)| *ctx == here.id);
            place.map(|place| idle.swap_remove(place).1)
        };
        let handle = match kept {
            Some(handle) => handle,
            None => stream::create(process, here, NON_BLOCKING, 0)?,
        };
        let stream = StreamId::created(ObjectId(handle));
        let queue = Queue { here: here.clone(), stream, wait: Wait::SourceTaken };
        Ok(Lane { process, queue, handle })
    }

    /// Queues a copy. Host memory on either side is the caller's again when this returns.
    ///
    /// # Safety
    /// Host memory that is named can be used so.
    pub(super) unsafe fn copy(&self, to: Operand, from: Operand, bytes: usize) -> Result<()> {
        // SAFETY: by the contract above.
        unsafe { self.queue.submit(self.process, &Copy::row(to, from, bytes as u64)) }
    }

    /// Has what follows wait for what the program has queued in the default stream.
    pub(super) fn follow_default(&self) -> Result<()> {
        let here = &self.queue.here;
        let (own, default) = ((here.id, self.queue.stream), (here.id, StreamId::LEGACY));
        here.note(wait_for(self.process, own, default))
    }

    /// Waits until all is done.
    pub(super) fn finish(&self) -> Result<()> {
        let (here, stream) = (&self.queue.here, self.queue.stream);
        here.note(self.process.backend.stream_synchronize(here.id, stream))
    }
}

impl<B: Backend> Drop for Lane<B> {
    fn drop(&mut self) {
        self.process.files.idle.lock().push((self.queue.here.id, self.handle));
    }
}
