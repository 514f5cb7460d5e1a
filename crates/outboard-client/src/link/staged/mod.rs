//! Large copies through memory that the worker shares: no socket, and one copy of the bytes, by
//! several threads.
//!
//! The slots lie in shared memory that the worker has registered with the device. The device waits
//! for their flags in the application's stream, as it does for those that lanes fill; here threads
//! of this process fill and empty them, and set and see the flags themselves.

mod areas;
pub mod background;
mod copying;
mod crew;
mod pauses;
mod runner;
mod streams;

use std::sync::Arc;

use outboard_session::chunks::Cut;
use outboard_session::groups::{FLAGS, Groups};
use outboard_transport::Memory;

use super::bulk::direction::Direction;
use super::bulk::host_bytes::HostBytes;
use super::error::LinkError;
use super::shared::Shared;
use areas::{Area, Areas};
use copying::{Copying, Wait};
use crew::Crew;
pub(crate) use pauses::pause_after;
use runner::Runner;
pub use streams::Stream;
use streams::Streams;

/// State of a link for copies through shared memory.
#[derive(Debug)]
pub(super) struct Staged {
    areas: Arc<Areas>,
    crew: Arc<Crew>,
    runner: Arc<Runner>,
    streams: Arc<Streams>,
}

/// A copy that has its part of the shared memory. Post the command that announces it, then
/// [run](Self::run) it.
#[derive(Debug)]
pub struct StagedCopy<'a> {
    staged: &'a Staged,
    copying: Arc<Copying>,
    cut: Cut,
    area: Area,
    shared: &'a Arc<Shared>,
}

/// A chunk size for a transfer of `len` bytes: what a thread copies in about 20 microseconds.
pub fn chunk(len: u64) -> u32 {
    let large = if len > 1 << 20 { 256 << 10 } else { 128 << 10 };
    if len > 64 << 10 { large } else { 64 << 10 }
}

impl Staged {
    pub(super) fn new(bytes: usize, threads: usize) -> Staged {
        let (areas, crew) = (Arc::new(Areas::new(bytes)), Crew::new(threads));
        let runner = Runner::new(Arc::clone(&areas), Arc::clone(&crew));
        Staged { areas, crew, runner, streams: Arc::default() }
    }

    pub(super) fn lose(&self) {
        self.crew.end();
        self.runner.end();
        self.areas.lose();
    }
}

/// The state for copies through shared memory, and that memory, if there is any.
fn of(shared: &Arc<Shared>) -> Option<(&Staged, &Memory)> {
    let memory = shared.memory.as_ref()?;
    let staged = shared.bulk.staged(memory.staging().bytes(), shared.config.copy_threads);
    Some((staged, memory))
}

/// Takes a part of the shared memory for a transfer; waits while others have it all. `None` if no
/// memory is shared.
///
/// # Safety
/// The program's bytes at `place` are valid until [`StagedCopy::run`] returns: for reads or,
/// towards the program, for writes.
pub(super) unsafe fn open(
    shared: &Arc<Shared>,
    direction: Direction,
    place: HostBytes,
    len: u64,
    chunk: u32,
) -> Option<Result<StagedCopy<'_>, LinkError>> {
    let (staged, memory) = of(shared)?;
    let cut = match super::bulk::sizes::cut(len, chunk) {
        Ok(cut) => cut,
        Err(error) => return Some(Err(error)),
    };
    let groups = Groups::shared(cut, direction == Direction::Up);
    let mut wait = Wait::new(shared);
    let area = loop {
        if shared.is_lost() {
            return Some(Err(shared.lost()));
        }
        if let Some(area) = staged.areas.take(FLAGS + groups.staging()) {
            break area;
        }
        // Only the device knows when it stops using one.
        wait.turn();
    };
    // SAFETY: the area lies within the segment, and is nobody else's until it is given back.
    let copying = unsafe {
        let flags = memory.staging().as_ptr().add(area.at);
        Copying::new(Arc::clone(shared), flags, groups, direction, place, Box::default())
    };
    Some(Ok(StagedCopy { staged, copying, cut, area, shared }))
}

impl StagedCopy<'_> {
    /// Where its flags and slots begin in the shared memory.
    pub fn at(&self) -> u64 {
        self.area.at as u64
    }

    /// Bytes of each chunk but the last.
    pub fn chunk(&self) -> u32 {
        self.cut.chunk()
    }

    /// Copies the bytes, and returns when the program's memory is its own again. To the device,
    /// they need not have reached it: see [`taken`](Self::taken). [`LinkError::Cancelled`] if the
    /// copy has come to nothing.
    pub fn run(&self) -> Result<(), LinkError> {
        // The command that announces it may still be in the queue. If this fails, so does the copy.
        let _ = self.shared.flush();
        self.copying.run(&self.staged.crew)
    }

    /// Waits until the device has done its part.
    pub fn taken(&self) -> Result<(), LinkError> {
        self.copying.taken()
    }
}

impl Drop for StagedCopy<'_> {
    fn drop(&mut self) {
        self.copying.let_pass();
        let copying = Arc::clone(&self.copying);
        self.staged.areas.give_back_when(self.area, move || copying.state());
    }
}
