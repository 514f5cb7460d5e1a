//! Streams of our own in which the bytes of files are copied.
//!
//! No stream of the program waits for them: a copy may be made while a stream waits for a function
//! that waits for the copy.

use crate::backend::{Backend, DevicePtr, HostPtr, ObjectId, Result, StreamId};
use crate::context::Here;
use crate::copy::{Copy, Operand, Wait};
use crate::copy_queue::Queue;
use crate::order::wait_for;
use crate::process::Process;
use crate::stream::{self, NON_BLOCKING};

/// A stream that one transfer has for itself.
pub(super) struct Lane<B: Backend> {
    process: &'static Process<B>,
    here: Here,
    stream: StreamId,
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
        Ok(Lane { process, here: here.clone(), stream })
    }

    /// Queues a copy to the device. It has taken the bytes when this returns.
    pub(super) fn upload(&self, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        let from = Operand::Host(HostPtr::of(bytes.as_ptr()));
        let copy = Copy::row(Operand::Device(to), from, bytes.len() as u64);
        // SAFETY: the bytes can be read as long as this takes, and are not needed longer.
        unsafe { self.queue(Wait::SourceTaken).submit(self.process, &copy) }
    }

    /// Copies from the device.
    pub(super) fn download(&self, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        let to = Operand::Host(HostPtr::of(bytes.as_mut_ptr()));
        let copy = Copy::row(to, Operand::Device(from), bytes.len() as u64);
        // SAFETY: the bytes are the caller's own, and have been written when this returns.
        unsafe { self.queue(Wait::Synchronous).submit(self.process, &copy) }
    }

    fn queue(&self, wait: Wait) -> Queue {
        Queue { here: self.here.clone(), stream: self.stream, wait }
    }

    /// Has what follows wait for what the program has queued in the default stream.
    pub(super) fn follow_default(&self) -> Result<()> {
        let (own, default) = ((self.here.id, self.stream), (self.here.id, StreamId::LEGACY));
        self.here.note(wait_for(self.process, own, default))
    }

    /// Waits until all is done.
    pub(super) fn finish(&self) -> Result<()> {
        self.here.note(self.process.backend.stream_synchronize(self.here.id, self.stream))
    }
}

impl<B: Backend> Drop for Lane<B> {
    fn drop(&mut self) {
        self.process.files.idle.lock().push((self.here.id, self.stream.0));
    }
}
