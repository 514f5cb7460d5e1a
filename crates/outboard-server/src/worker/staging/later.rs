//! Copies to the host that find no staging memory when they are queued.
//!
//! Their stream says when it has come to them, and stands still. Then they get memory in turn, the bytes are copied into it in a stream of ours, and
//! when these are there the copy's own stream goes on. So a client that does not read holds up its own streams and nothing else, and a stream that
//! stands still for another reason holds no memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outboard_abi::CUresult;
use outboard_driver::call;
use outboard_session::chunks::Cut;
use outboard_session::groups::Groups;

use super::account::{Share, Ticket};
use super::memory::Piece;
use super::outgoing::{Copied, Filling, Out};
use super::watch::{Step, Watched, What};
use super::{Failed, Place, Queue, Target, Transfer};
use crate::worker::io::Bulk;
use crate::worker::memops::{self, Operation};

/// Words of its flags: the stream has come to it; its bytes are in staging memory; the stream has gone on.
const REACHED: usize = 0;
const COPIED: usize = 1;
const PASSED: usize = 2;

/// Such a copy.
pub(super) struct Later {
    number: u64,
    /// The copy in the stream of ours, but for that stream and its memory.
    queue: Queue,
    flags: Piece,
    ticket: Ticket,
    bulk: Bulk,
    watcher: Arc<super::Watcher>,
    pool: Arc<super::Pool>,
    copied: AtomicBool,
}

/// What has come of its start.
type Started = Arc<Mutex<Option<Result<Arc<Out>, CUresult>>>>;

/// The part of the watcher.
struct Waiting {
    later: Arc<Later>,
    phase: Phase,
    gave_up: bool,
}

enum Phase {
    /// For its stream, and for memory.
    Asked(Target),
    Starting(Started),
    Sending(Filling),
    /// The stream is to go on.
    Leaving,
}

/// Says how a start went when it is dropped, whatever became of it.
struct Say {
    started: Started,
    later: Arc<Later>,
}

impl Say {
    fn say(&self, result: Result<Arc<Out>, CUresult>) {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(result);
        self.later.watcher.nudge();
    }
}

impl Drop for Say {
    fn drop(&mut self) {
        self.say(Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    }
}

impl Later {
    fn is_set(&self, flag: usize) -> bool {
        self.flags.view().flag(flag).load(Ordering::Acquire) > 0
    }

    /// Lets the stream go on.
    fn let_on(&self) {
        if !self.copied.swap(true, Ordering::AcqRel) {
            self.flags.view().flag(COPIED).store(1, Ordering::Release);
        }
    }

    /// Queues the copy in a stream of ours. Called on a helper thread.
    fn start(&self, target: &Target, share: Share, say: &Say) -> Result<(), CUresult> {
        let Queue { groups, table, context, .. } = self.queue;
        call!(table, cuCtxSetCurrent(context.get()))?;
        let stream = self.pool.own_stream(table)?;
        let piece = self.pool.take(table, groups.staging())?;
        let out = Out::new(Transfer {
            number: self.number,
            queue: Queue { view: piece.view(), stream, ..self.queue },
            bulk: self.bulk.clone(),
            watcher: Arc::clone(&self.watcher),
            pool: Arc::clone(&self.pool),
            piece,
            _share: Some(share),
        });
        // Bytes may go while the copy is being queued.
        say.say(Ok(Arc::clone(&out)));
        out.queue(target)
    }
}

impl Copied for Later {
    fn is_copied(&self) -> bool {
        self.copied.load(Ordering::Acquire)
    }
}

impl Waiting {
    /// Looks whether it is its turn, and has it started then.
    fn begin(&mut self) -> Step {
        let later = &self.later;
        if !later.is_set(REACHED) {
            return Step::ForDevice;
        }
        let Some(share) = later.ticket.turn(later.queue.groups.staging(), &later.watcher) else {
            return Step::ForBytes;
        };
        let started = Started::default();
        let say = Say { started: Arc::clone(&started), later: Arc::clone(later) };
        if let Phase::Asked(target) = std::mem::replace(&mut self.phase, Phase::Starting(started)) {
            let job = move || {
                if let Err(error) = say.later.start(&target, share, &say) {
                    tracing::debug!(error = error.0, "a copy that waited for staging memory was not queued");
                }
            };
            later.watcher.helpers().run(job);
        }
        Step::Moved
    }
}

impl Watched for Waiting {
    fn step(&mut self) -> Step {
        let later = Arc::clone(&self.later);
        match &mut self.phase {
            Phase::Asked(_) if self.gave_up => {
                later.bulk.cancel(later.number, 0);
                later.let_on();
                self.phase = Phase::Leaving;
                Step::Moved
            }
            Phase::Asked(_) => self.begin(),
            Phase::Starting(started) => {
                let result = started.lock().unwrap_or_else(PoisonError::into_inner).take();
                match result {
                    None => return Step::ForDevice,
                    Some(Ok(out)) => self.phase = Phase::Sending(Filling::new(out)),
                    Some(Err(_)) => {
                        later.bulk.cancel(later.number, 0);
                        later.let_on();
                        self.phase = Phase::Leaving;
                    }
                }
                Step::Moved
            }
            Phase::Sending(filling) => {
                if self.gave_up {
                    filling.give_up();
                }
                let step = filling.step();
                if step == Step::Ended || filling.is_copied() {
                    later.let_on();
                }
                if step != Step::Ended {
                    return step;
                }
                self.phase = Phase::Leaving;
                Step::Moved
            }
            Phase::Leaving if later.is_set(PASSED) => Step::Ended,
            Phase::Leaving if self.gave_up => {
                // A device that comes to it yet finds what it waits for.
                later.flags.lose();
                Step::Ended
            }
            Phase::Leaving => Step::ForDevice,
        }
    }

    fn alive(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.later.queue.alive(&self.later.pool)
    }

    fn give_up(&mut self) {
        self.gave_up = true;
    }
}

/// Queues what a copy without memory needs of its stream.
pub(super) fn copy_later(place: &Place<'_>, number: u64, cut: Cut, src: &Target) -> Result<Arc<dyn Copied>, Failed> {
    let ticket = place.pool.account().ticket();
    let flags = place.pool.take(place.table, 0).map_err(Failed::NotStarted)?;
    let view = flags.view();
    let operations = [
        Operation::Write(view.device_flag(REACHED), 1),
        Operation::WaitAtLeast(view.device_flag(COPIED), 1),
        Operation::Write(view.device_flag(PASSED), 1),
    ];
    if let Err(error) = memops::queue(place.table, place.stream, &operations) {
        view.flag(COPIED).store(1, Ordering::Release);
        flags.lose();
        return Err(Failed::NotStarted(error));
    }
    let later = Arc::new(Later {
        number,
        queue: place.queue(Groups::new(cut), view),
        flags,
        ticket,
        bulk: place.bulk.clone(),
        watcher: Arc::clone(place.watcher),
        pool: Arc::clone(place.pool),
        copied: AtomicBool::new(false),
    });
    let waiting = Waiting { later: Arc::clone(&later), phase: Phase::Asked(*src), gave_up: false };
    place.watcher.add(Box::new(waiting), What { to_device: false, way: "lanes", bytes: cut.len() });
    Ok(later)
}
