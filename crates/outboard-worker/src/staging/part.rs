//! This worker's part in a copy or signal that has a place in memory which it shares with a peer.
//!
//! What the device is to do with the place is queued once; from then on the flags there, which both
//! devices write and wait for, move it. The device writes last to marks in this worker's own
//! memory. So the peer, which can write to all of the place, cannot have this worker take the place
//! for free while its device uses it. If the peer is gone, or says that nothing comes of it, this
//! worker lets its device pass whatever is queued.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::CUresult;
use parking_lot::Mutex;

use super::deferred::{DeferredCopy, ExclusiveStream};
use super::memory::Piece;
use super::place::Place;
use super::transfer::{CopySite, DeviceSide, Queue};
use crate::memops::{self, Operation};
use crate::objects::Handle;

/// Marks that the device sets when it has begun with the copy, when it has done it, and when it has
/// passed what keeps the program's stream busy meanwhile.
const BEGUN: usize = 0;
const COPIED: usize = 1;
const PASSED: usize = 2;

/// Operations that the driver takes at once.
const AT_ONCE: usize = 128;

/// Queues what is to be done, in a stream, but for the last operation, which it returns if there is
/// one. It is given the operation that says that the device has begun.
pub(super) type Work =
    Box<dyn FnOnce(&Queue, &DeviceSide, Operation) -> Result<Option<Operation>, CUresult> + Send>;

/// Such a part.
pub(super) struct Part {
    pub(super) own: DeferredCopy,
    queue: Queue,
    /// Until it is queued.
    work: Mutex<Option<Work>>,
    marks: Piece,
    /// Whether the program's stream has work for it beside that of the copy's stream.
    keeps_busy: bool,
    /// Nothing comes of it: what is queued is to pass.
    broken: AtomicBool,
    /// The device has not taken the last operation: nobody will know when it has passed.
    stuck: AtomicBool,
    /// Its stream, if that is not the program's.
    exclusive: Mutex<Option<Arc<ExclusiveStream>>>,
}

impl Part {
    /// The context is current.
    pub(super) fn new(
        site: &CopySite<'_>,
        number: u64,
        place: &Place,
        work: Work,
    ) -> Result<Part, CUresult> {
        let (groups, view) = (place.groups(), place.view(site)?);
        let marks = site.pool.take(site.table, 0)?;
        Ok(Part {
            own: DeferredCopy::new(site, number, groups, view),
            queue: site.queue(groups, view),
            work: Mutex::new(Some(work)),
            marks,
            keeps_busy: false,
            broken: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            exclusive: Mutex::default(),
        })
    }

    fn mark(&self, mark: usize) -> Operation {
        Operation::Write(self.marks.view().device_flag(mark), 1)
    }

    /// Queues the copy, or what there is instead, in a stream.
    fn run(&self, queue: &Queue, target: &DeviceSide) -> Result<(), CUresult> {
        let work = self.work.lock().take();
        let queued = work.map_or(Ok(None), |work| work(queue, target, self.mark(BEGUN)));
        if queued.is_err() {
            self.broken.store(true, Ordering::Release);
        }
        let last = queued.as_ref().ok().copied().flatten();
        let last: Vec<Operation> = last.into_iter().chain([self.mark(COPIED)]).collect();
        let marked = queue.queue(&last);
        if marked.is_err() {
            self.broken.store(true, Ordering::Release);
            self.stuck.store(true, Ordering::Release);
        }
        self.own.watcher.nudge();
        queued.and(marked)
    }

    /// Queues it in a stream of the worker's, beside all of the program's.
    pub(super) fn queue_apart(
        &mut self,
        exclusive: Arc<ExclusiveStream>,
        target: &DeviceSide,
    ) -> Result<(), CUresult> {
        let queue = Queue { stream: Handle::new(exclusive.get()), ..self.queue };
        *self.exclusive.get_mut() = Some(exclusive);
        self.run(&queue, target)
    }

    /// Queues it in the program's stream.
    pub(super) fn queue(&self, target: &DeviceSide) -> Result<(), CUresult> {
        self.run(&self.queue, target)
    }

    /// Queues it in a stream of the worker's, and has the program's stream wait until it is over.
    pub(super) fn queue_beside(
        &mut self,
        exclusive: Arc<ExclusiveStream>,
        target: &DeviceSide,
    ) -> Result<(), CUresult> {
        let queued = self.queue_apart(exclusive, target);
        let copied = Operation::WaitAtLeast(self.marks.view().device_flag(COPIED), 1);
        let held = self.queue.queue(&[copied, self.mark(PASSED)]);
        self.keeps_busy = held.is_ok();
        queued.and(held)
    }

    /// Queues it in a stream of its own, for a program's stream that stands still. Called on a
    /// helper thread.
    pub(super) fn start(&self, target: &DeviceSide) -> Result<(), CUresult> {
        let begun = self.own.enter().and_then(|()| {
            let exclusive = ExclusiveStream::for_copying(self.own.table(), &self.own.pool)?;
            let stream = Handle::new(exclusive.get());
            *self.exclusive.lock() = Some(Arc::new(exclusive));
            Ok(Queue { stream, ..self.queue })
        });
        match begun {
            Ok(queue) => self.run(&queue, target),
            Err(error) => {
                self.broken.store(true, Ordering::Release);
                self.stuck.store(true, Ordering::Release);
                self.own.watcher.nudge();
                Err(error)
            }
        }
    }

    fn is_set(&self, mark: usize) -> bool {
        self.marks.flag(mark).load(Ordering::Acquire) != 0
    }

    /// Whether the device has begun with the copy.
    pub(super) fn has_begun(&self) -> bool {
        self.is_set(BEGUN)
    }

    /// Whether nothing comes of it.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Nothing is to come of it; whether that is new.
    pub(super) fn break_off(&self) -> bool {
        !self.broken.swap(true, Ordering::AcqRel)
    }

    /// Whether nobody will know when the device has passed it.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }

    /// The device may go on to use what it has: that stays for good.
    pub(super) fn leak(&self) {
        self.marks.leak();
        self.exclusive.lock().iter().for_each(|exclusive| exclusive.abandon());
    }

    /// Whether what is at the destination can be kept.
    pub(super) fn can_keep(&self) -> bool {
        self.queue.has_all_slots()
    }

    /// Keeps what is at the destination. Called on a helper thread.
    pub(super) fn keep_what_is_there(&self, target: &DeviceSide) -> Result<(), CUresult> {
        self.queue.keep_what_is_there(target, &self.own.pool)
    }

    /// Whether the device will not touch the place any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_set(COPIED) && (!self.keeps_busy || self.is_set(PASSED))
    }

    /// Has the device set the flags for which it may wait. Called on a helper thread.
    pub(super) fn release_by_device(&self, flags: Range<usize>) -> Result<(), CUresult> {
        self.own.enter()?;
        let stream = self.own.shared_stream(false)?;
        let all: Vec<Operation> = flags
            .map(|flag| Operation::Write(self.queue.view.device_flag(flag), i32::MAX as u32))
            .collect();
        all.chunks(AT_ONCE).try_for_each(|some| memops::queue(self.own.table(), stream.get(), some))
    }
}
