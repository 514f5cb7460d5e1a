//! Copies that go on while the thread that has made them does, too.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use outboard_session::groups::{FLAGS, Groups};

use super::super::bulk::direction::Direction;
use super::super::bulk::host_bytes::HostBytes;
use super::super::error::LinkError;
use super::super::shared::Shared;
use super::areas::Area;
use super::copying::{Copying, Step};
use super::crew::Crew;
use super::runner::Task;
use super::streams::{Share, Stream};
use super::{Staged, of};

/// Blocks of the shared memory that such copies may have. The others are for synchronous copies,
/// which must not wait for a stream that makes no progress.
const BLOCKS: usize = 8;
/// How long a copy waits for room while nothing of its stream moves, and its pauses.
const STUCK_AFTER: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_micros(50);

/// A transfer that has its part of the shared memory. Post the command that announces it, then
/// [start](Self::start) it.
#[derive(Debug)]
pub struct Background<'a> {
    staged: &'a Staged,
    task: Option<Task>,
}

/// One that may be under way.
#[derive(Debug)]
pub struct StagedTicket {
    copying: Arc<Copying>,
    crew: Arc<Crew>,
}

/// One that another may have to wait for.
#[derive(Debug, Clone)]
pub struct Before(Weak<Copying>);

/// Takes a part of the shared memory for a transfer of a stream, if there is one. While other
/// copies of the stream move, it is waited for. The transfer writes to the program's memory once
/// those that it is `behind` have done so.
///
/// # Safety
/// The program's bytes at `place` are valid until the ticket says that the transfer has ended: for
/// reads or, towards the program, for writes.
pub(in super::super) unsafe fn open<'a>(
    shared: &'a Arc<Shared>,
    direction: Direction,
    place: HostBytes,
    (len, chunk): (u64, u32),
    stream: Stream,
    behind: Vec<Before>,
) -> Result<Option<Background<'a>>, LinkError> {
    let Some((staged, memory)) = of(shared) else { return Ok(None) };
    let groups =
        Groups::shared(super::super::bulk::sizes::cut(len, chunk)?, direction == Direction::Up);
    if !staged.runner.is_there() {
        return Ok(None);
    }
    let bytes = FLAGS + groups.staging();
    let Some((area, share)) = room(shared, staged, bytes, groups.operations(), stream)? else {
        return Ok(None);
    };
    let behind = behind.into_iter().map(|before| before.0).collect();
    // SAFETY: the area lies within the segment, and is nobody else's until it is given back.
    let copying = unsafe {
        let flags = memory.staging().as_ptr().add(area.at);
        Copying::new(Arc::clone(shared), flags, groups, direction, place, behind)
    };
    Ok(Some(Background { staged, task: Some(Task::new(copying, area, share)) }))
}

/// Room for a copy, which is waited for while others of its stream move.
fn room(
    shared: &Shared,
    staged: &Staged,
    bytes: usize,
    operations: usize,
    stream: Stream,
) -> Result<Option<(Area, Share)>, LinkError> {
    let mut last: Option<(u64, Instant)> = None;
    loop {
        if shared.is_lost() {
            return Err(shared.lost());
        }
        staged.areas.drain();
        if let Some(area) = staged.areas.take_of(bytes, BLOCKS) {
            if let Some(share) = staged.streams.share(stream, bytes, operations) {
                return Ok(Some((area, share)));
            }
            staged.areas.give_back(area);
        }
        let Some(progress) = staged.streams.progress(stream) else { return Ok(None) };
        match last {
            Some((before, since)) if before == progress => {
                if since.elapsed() >= STUCK_AFTER {
                    staged.streams.stands_still(stream);
                    return Ok(None);
                }
            }
            _ => last = Some((progress, Instant::now())),
        }
        // Only the device knows when it stops using an area.
        std::thread::sleep(PAUSE);
    }
}

impl Background<'_> {
    fn copying(&self) -> Option<&Arc<Copying>> {
        self.task.as_ref().map(|task| &task.copying)
    }

    /// Where its flags and slots begin in the shared memory.
    pub fn at(&self) -> u64 {
        self.task.as_ref().map_or(0, |task| task.area.at as u64)
    }

    /// Bytes of each chunk but the last.
    pub fn chunk(&self) -> u32 {
        self.copying().map_or(0, |copying| copying.groups().cut().chunk())
    }

    /// Copies what can be copied at once: to the device, as much as has room.
    pub fn fill(&self) {
        while self.copying().is_some_and(|copying| copying.step() == Step::Copied) {}
    }

    /// A handle that shows its progress.
    pub fn ticket(&self) -> Option<StagedTicket> {
        let copying = self.copying()?;
        Some(StagedTicket { copying: Arc::clone(copying), crew: Arc::clone(&self.staged.crew) })
    }

    /// The command that announces it is posted: its bytes go on.
    pub fn start(mut self) {
        if let Some(task) = self.task.take() {
            if task.copying.has_ended() {
                task.end(&self.staged.areas);
            } else {
                if task.copying.direction() == Direction::Up {
                    task.copying.call(&self.staged.crew);
                }
                self.staged.runner.add(task);
            }
        }
    }
}

impl Drop for Background<'_> {
    fn drop(&mut self) {
        // It was not announced: there is no link.
        if let Some(task) = self.task.take() {
            task.copying.stop();
            task.end(&self.staged.areas);
        }
    }
}

impl StagedTicket {
    /// Whether the transfer has ended, well or not: the program's memory is its own again.
    pub fn has_ended(&self) -> bool {
        self.copying.has_ended()
    }

    /// Whether the device has done its part of it.
    pub fn is_done_by_device(&self) -> bool {
        self.copying.is_over()
    }

    /// A handle by which a later transfer waits for this one.
    pub fn before(&self) -> Before {
        Before(Arc::downgrade(&self.copying))
    }

    /// Waits for the end, and helps.
    pub fn wait(&self) -> Result<(), LinkError> {
        if !self.has_ended() {
            // The command that announces it may still be in the queue. If this fails, so does the
            // transfer.
            let _ = self.copying.shared().flush();
        }
        self.copying.run(&self.crew)
    }

    /// The program knows that the device has done the transfer, and its memory is its own again:
    /// copies that have not ended by now never will. A correct worker has done it.
    pub fn is_known_to_be_done(&self) {
        if !self.has_ended() {
            self.copying.is_known_to_be_done();
        }
    }
}

#[cfg(test)]
mod tests {
    use outboard_session::groups::{BLOCK, SHARED};
    use outboard_transport::pipe;
    use outboard_wire::limits::STAGING;
    use outboard_wire::{ContextId, StreamId};

    use super::*;
    use crate::link::{Config, Link};

    const FIRST: Stream = (ContextId(1), StreamId(7));

    fn link() -> Link {
        let (client, server) = pipe::pair().unwrap();
        std::mem::forget(server);
        Link::start(client, Config::default(), Box::new(|_, _| ())).unwrap()
    }

    fn take(link: &Link, staged: &Staged, stream: Stream) -> Option<(Area, Share)> {
        room(&link.shared, staged, SHARED, 64, stream).unwrap()
    }

    #[test]
    fn streams_that_stand_still_leave_room_for_what_is_waited_for() {
        let (link, staged) = (link(), Staged::new(STAGING, 0));
        let mut all = Vec::new();
        // Each has its share, and they have all there is.
        for stream in 1..=3 {
            while let Some(one) = take(&link, &staged, (ContextId(1), StreamId(stream))) {
                all.push(one);
            }
        }
        assert_eq!(all.len(), BLOCKS);
        // A stream that holds some areas waits for more, but not without limit; one that has none
        // does not.
        assert!(take(&link, &staged, (ContextId(1), StreamId(2))).is_none());
        assert!(take(&link, &staged, FIRST).is_none());
        let others = STAGING / BLOCK - BLOCKS;
        assert!((0..others).all(|_| staged.areas.take(SHARED).is_some()));
    }

    #[test]
    fn who_waits_for_room_has_it_when_a_copy_of_its_stream_ends() {
        let (link, staged) = (link(), Staged::new(STAGING, 0));
        let mut all: Vec<_> = (0..4).map_while(|_| take(&link, &staged, FIRST)).collect();
        assert_eq!(all.len(), 4);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| take(&link, &staged, FIRST));
            std::thread::sleep(STUCK_AFTER / 4);
            let (area, share) = all.remove(0);
            staged.areas.give_back(area);
            drop(share);
            // A test machine may have been too slow: then it has been given up, and is had now.
            assert!(waiting.join().unwrap().or_else(|| take(&link, &staged, FIRST)).is_some());
        });
        link.close();
        assert!(room(&link.shared, &staged, SHARED, 64, FIRST).is_err());
    }
}
