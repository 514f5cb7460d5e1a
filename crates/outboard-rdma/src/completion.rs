//! Queues in which an adapter says what it has done, and the descriptor that tells of it.

use std::ffi::{CStr, c_int};
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use crate::device::Device;
use crate::error::Error;
use crate::ffi;

/// A descriptor that becomes readable when an armed queue gets an entry.
pub struct Channel {
    device: Arc<Device>,
    channel: NonNull<ffi::Channel>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Channel {}
// SAFETY: and by several at once.
unsafe impl Sync for Channel {}

impl Channel {
    /// A new one. Its descriptor does not block.
    ///
    /// # Errors
    /// Why the library makes none.
    pub fn create(device: &Arc<Device>) -> Result<Arc<Channel>, Error> {
        // SAFETY: the device is open.
        let channel = unsafe { (device.library.ibv_create_comp_channel)(device.context.as_ptr()) };
        let channel = device.made("ibv_create_comp_channel", channel)?;
        let channel = Channel { device: Arc::clone(device), channel };
        device.make_nonblocking(channel.descriptor())?;
        Ok(Arc::new(channel))
    }

    /// The descriptor.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        // SAFETY: the library's structure lives as long as this value.
        unsafe { self.channel.as_ref() }.fd
    }

    /// Takes all events, so that the descriptor is not readable any more; whether there were any.
    #[must_use]
    pub fn take_events(&self) -> bool {
        let mut any = false;
        loop {
            let (mut queue, mut context) = (null_mut(), null_mut());
            // SAFETY: the library writes which queue an event is for, if there is one. The
            // descriptor does not block.
            let taken = unsafe {
                (self.device.library.ibv_get_cq_event)(
                    self.channel.as_ptr(),
                    &mut queue,
                    &mut context,
                )
            };
            if taken != 0 {
                return any;
            }
            any = true;
            // SAFETY: the library has just named the queue, whose destruction waits until its
            // events are acknowledged.
            unsafe { (self.device.library.ibv_ack_cq_events)(queue, 1) };
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the library made it, and its queues keep it alive.
        unsafe { (self.device.library.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

/// A completion queue.
pub struct Queue {
    channel: Arc<Channel>,
    pub(crate) queue: NonNull<ffi::Cq>,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Queue {}
// SAFETY: and by several at once.
unsafe impl Sync for Queue {}

/// What has been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The number that the work was given.
    pub work: u64,
    /// Bytes that have come.
    pub bytes: u32,
    /// The number that came with them.
    pub immediate: Option<u32>,
}

/// Why something was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkError {
    /// The peer's adapter has not answered.
    NoAnswer,
    /// The queue pair has failed before, or was closed.
    Flushed,
    /// What the library says of another number.
    Other(&'static str),
}

/// Entries that are taken at once.
const BATCH: usize = 16;

impl Queue {
    /// A new one with room for so many entries.
    ///
    /// # Errors
    /// Why the library makes none.
    pub fn create(channel: &Arc<Channel>, entries: usize) -> Result<Arc<Queue>, Error> {
        let device = &channel.device;
        // SAFETY: device and channel are open.
        let queue = unsafe {
            (device.library.ibv_create_cq)(
                device.context.as_ptr(),
                c_int::try_from(entries).unwrap_or(c_int::MAX),
                null_mut(),
                channel.channel.as_ptr(),
                0,
            )
        };
        let queue = device.made("ibv_create_cq", queue)?;
        Ok(Arc::new(Queue { channel: Arc::clone(channel), queue }))
    }

    /// Has the next entry make the channel's descriptor readable. Entries that are there already
    /// do not: look for them afterwards.
    ///
    /// # Errors
    /// Why the library does not do so.
    pub fn arm(&self) -> Result<(), Error> {
        let device = &self.channel.device;
        // SAFETY: the table of functions is the open device's.
        let arm = unsafe { device.context.as_ref() }.ops.req_notify_cq;
        let arm = arm.ok_or_else(|| device.lacks("ibv_req_notify_cq"))?;
        // SAFETY: the queue is this value's.
        device.check("ibv_req_notify_cq", unsafe { arm(self.queue.as_ptr(), 0) })
    }

    /// Takes the entries that are there and gives each to `take`.
    ///
    /// # Errors
    /// Why the library cannot look.
    pub fn poll_all(
        &self,
        take: &mut dyn FnMut(Result<Completion, WorkError>),
    ) -> Result<(), Error> {
        let device = &self.channel.device;
        // SAFETY: the table of functions is the open device's.
        let poll = unsafe { device.context.as_ref() }.ops.poll_cq;
        let poll = poll.ok_or_else(|| device.lacks("ibv_poll_cq"))?;
        loop {
            let mut entries = [ffi::Completion::default(); BATCH];
            // SAFETY: the queue is this value's, and there is room for so many entries.
            let count = unsafe { poll(self.queue.as_ptr(), BATCH as c_int, entries.as_mut_ptr()) };
            let count = usize::try_from(count).map_err(|_| device.lacks("ibv_poll_cq"))?;
            entries.iter().take(count).for_each(|entry| take(self.understood(entry)));
            if count < BATCH {
                return Ok(());
            }
        }
    }

    fn understood(&self, entry: &ffi::Completion) -> Result<Completion, WorkError> {
        match entry.status {
            ffi::IBV_WC_SUCCESS => Ok(Completion {
                work: entry.wr_id,
                bytes: entry.byte_len,
                immediate: (entry.wc_flags & ffi::IBV_WC_WITH_IMM != 0)
                    .then(|| u32::from_be(entry.imm_data)),
            }),
            ffi::IBV_WC_WR_FLUSH_ERR => Err(WorkError::Flushed),
            ffi::IBV_WC_RETRY_EXC_ERR => Err(WorkError::NoAnswer),
            other => {
                // SAFETY: the library returns a text of its own for every number.
                let text = unsafe {
                    CStr::from_ptr((self.channel.device.library.ibv_wc_status_str)(other))
                };
                Err(WorkError::Other(text.to_str().unwrap_or("an unknown failure")))
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the library made it, and queue pairs that use it keep it alive.
        unsafe { (self.channel.device.library.ibv_destroy_cq)(self.queue.as_ptr()) };
    }
}

impl Device {
    /// A device whose driver lacks a function, or whose function fails without a reason.
    fn lacks(&self, call: &'static str) -> Error {
        Error::Call { call, device: self.name().to_owned(), errno: libc::EIO }
    }
}
