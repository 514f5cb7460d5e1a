//! Holds: streams that wait until this process lets them go on.
//!
//! A hold is a copy of a few bytes to the device, which are sent when the stream may go on. They
//! travel on a lane, so that they arrive however much the program has queued behind the hold, even
//! if the worker's dispatcher waits for the stream to have room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use outboard_front::backend::{ContextId, DevicePtr, Extent, Layout, Result, StreamId};
use outboard_wire::boxes::{Region, Storage};
use outboard_wire::limits::CHUNK_BYTES;
use outboard_wire::messages as msg;
use parking_lot::Mutex;

use crate::link::Later;
use crate::link::bulk::HostBytes;
use crate::progress::Progress;
use crate::session::Session;

/// What a hold writes, to memory that nobody reads.
static BYTES: [u8; Hold::BYTES as usize] = [0; Hold::BYTES as usize];

/// The streams of a session that wait for other servers.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// How many are held.
    held: AtomicUsize,
    /// Whether any waits for what another server's worker tells its own, as far as is known.
    told: AtomicBool,
    waiting: Mutex<Vec<Waiting>>,
}

/// A stream that waits.
#[derive(Debug)]
struct Waiting {
    ctx: ContextId,
    stream: StreamId,
    is_destroyed: bool,
}

/// Keeps a stream waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    later: Option<Later>,
    all: Arc<Holds>,
}

impl Holds {
    /// Whether any stream waits. What other servers do before it goes on may write the source of
    /// copies that are queued behind it.
    pub(crate) fn are_any(&self, progress: &Progress) -> bool {
        self.is_any_held() || self.told.load(Ordering::Acquire) && self.is_any_waiting(progress)
    }

    /// Whether this process holds any stream.
    pub(crate) fn is_any_held(&self) -> bool {
        self.held.load(Ordering::Acquire) > 0
    }

    #[cold]
    fn is_any_waiting(&self, progress: &Progress) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.retain(|stream| !progress.is_stream_idle(stream.ctx, stream.stream));
        let any = !waiting.is_empty();
        self.told.store(any, Ordering::Release);
        any
    }

    /// The streams that wait for what another server's worker tells their own, and in which work
    /// can be queued still.
    pub(crate) fn waiting(&self, progress: &Progress) -> Vec<(ContextId, StreamId)> {
        if !self.told.load(Ordering::Acquire) || !self.is_any_waiting(progress) {
            return Vec::new();
        }
        let waiting = self.waiting.lock();
        let usable = waiting.iter().filter(|stream| !stream.is_destroyed);
        usable.map(|stream| (stream.ctx, stream.stream)).collect()
    }

    /// A stream is destroyed; what is queued in it waits still.
    pub(crate) fn destroyed(&self, ctx: ContextId, stream: StreamId) {
        if self.told.load(Ordering::Acquire) {
            let mut waiting = self.waiting.lock();
            let found = waiting.iter_mut().find(|found| (found.ctx, found.stream) == (ctx, stream));
            found.into_iter().for_each(|found| found.is_destroyed = true);
        }
    }

    /// A stream waits for what another server's worker tells its own.
    pub(crate) fn add_waiting(&self, ctx: ContextId, stream: StreamId) {
        let mut waiting = self.waiting.lock();
        let is_it = |found: &Waiting| (found.ctx, found.stream) == (ctx, stream);
        if !waiting.iter().any(|found| is_it(found) && !found.is_destroyed) {
            waiting.push(Waiting { ctx, stream, is_destroyed: false });
        }
        self.told.store(true, Ordering::Release);
    }
}

impl Hold {
    /// Bytes of device memory that it writes.
    pub(crate) const BYTES: u64 = 64;
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(later) = self.later.take() {
            later.start();
        }
        self.all.held.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Session {
    /// Has later work of a stream wait until what this returns is dropped. `scratch` has
    /// [`Hold::BYTES`] of device memory that nobody reads. `None` if the worker has no staging
    /// memory left for it.
    pub(crate) fn hold(
        &self,
        ctx: ContextId,
        stream: StreamId,
        scratch: DevicePtr,
    ) -> Result<Option<Hold>> {
        let smallest = *CHUNK_BYTES.start() as u32;
        let Some(upload) = self.link().upload(Hold::BYTES, smallest)? else { return Ok(None) };
        let (transfer, chunk) = (upload.number(), upload.chunk());
        // SAFETY: the bytes are there as long as the process.
        let (_, later) = unsafe { upload.later(HostBytes::from(BYTES.as_ptr())) };
        let extent = Extent::row(Hold::BYTES);
        let layout = Layout::packed(extent);
        let dst = Region { storage: Storage::Linear(scratch), layout, at: (0, 0, 0) };
        let (from, bytes, late) = (0, Hold::BYTES, false);
        self.holds.held.fetch_add(1, Ordering::AcqRel);
        let hold = Hold { later: Some(later), all: Arc::clone(&self.holds) };
        // If this fails, the link is lost, and the transfer with it.
        let message =
            msg::CopyBoxInBulk { dst, extent, stream, from, bytes, transfer, chunk, late };
        self.post_counted(ctx, stream, &message)?;
        Ok(Some(hold))
    }
}
