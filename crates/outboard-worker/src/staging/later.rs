//! Copies that cannot be queued whole: copies to the host without staging memory, copies to the
//! device for which the client had none left, and copies in a stream with so many operations that
//! the driver would block the dispatcher.
//!
//! Their stream signals when it has reached them, and stops. They then get memory in turn; a stream
//! of the worker copies the bytes, and afterwards the copy's own stream continues. A client that
//! does not read or send therefore blocks only its own streams, and a stream that is blocked for
//! another reason holds no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::CUresult;
use outboard_driver::call;
use outboard_session::chunks::Cut;
use outboard_session::groups::Groups;
use parking_lot::Mutex;

use super::account::{Share, Ticket};
use super::incoming::{Emptying, In, Reached};
use super::line::Turn;
use super::outgoing::{Copied, Filling, Out};
use super::watch::{Moving, Step, Watched, What};
use super::{Failed, Failing, Place, Queue, Target, Transfer};
use crate::io::{Bulk, Sink};

/// How the bytes of a copy to the device come.
pub(super) enum Coming {
    /// The client sends them at once, to staging memory of its own.
    Now,
    /// When this asks for them.
    Asked(Reached),
}

/// What becomes of the bytes of a copy.
enum Bytes {
    ToHost,
    /// They come to memory that they have already.
    Coming(Arc<In>),
    /// What asks the client for them, once.
    Asked(Mutex<Option<Reached>>),
}

/// Such a copy.
struct Later {
    number: u64,
    bytes: Bytes,
    /// The copy in the stream of ours, but for that stream and its memory.
    queue: Queue,
    turn: Turn,
    ticket: Ticket,
    bulk: Bulk,
    watcher: Arc<super::Watcher>,
    pool: Arc<super::Pool>,
    copied: AtomicBool,
    failing: Failing,
}

/// A copy that has been started, or that it could not be.
type Started = Arc<Mutex<Option<Result<Box<dyn Moving>, ()>>>>;

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
    Moving(Box<dyn Moving>),
}

/// Says how a start went when it is dropped, whatever became of it.
struct Say {
    started: Started,
    later: Arc<Later>,
}

impl Say {
    fn say(&self, result: Result<Box<dyn Moving>, ()>) {
        self.started.lock().get_or_insert(result);
        self.later.watcher.nudge();
    }
}

impl Drop for Say {
    fn drop(&mut self) {
        self.say(Err(()));
    }
}

impl Later {
    /// Lets the stream go on.
    fn let_on(&self) {
        if !self.copied.swap(true, Ordering::AcqRel) {
            self.turn.end();
        }
    }

    /// Queues the copy in a stream of ours. Called on a helper thread.
    fn start(&self, target: &Target, share: Option<Share>, say: &Say) -> Result<(), CUresult> {
        call!(self.queue.table, cuCtxSetCurrent(self.queue.context.get()))?;
        // Bytes may move while the copy is being queued.
        let emptying =
            |copy: &Arc<In>| say.say(Ok(Box::new(Emptying::new(Arc::clone(copy), None, None))));
        match &self.bytes {
            Bytes::ToHost => {
                let copy = Out::new(self.transfer(false, share)?);
                say.say(Ok(Box::new(Filling::new(Arc::clone(&copy), None))));
                copy.queue(target)
            }
            Bytes::Coming(copy) => {
                emptying(copy);
                copy.queue(target, false)
            }
            Bytes::Asked(ask) => {
                let copy = In::new(self.transfer(true, share)?);
                self.bulk.place(self.number, Arc::clone(&copy) as Arc<dyn Sink>);
                emptying(&copy);
                if let Some(ask) = take(ask) {
                    ask();
                }
                copy.queue(target, false)
            }
        }
    }

    /// The copy in a stream of ours, with memory.
    fn transfer(&self, to_device: bool, share: Option<Share>) -> Result<Transfer, CUresult> {
        let (table, groups) = (self.queue.table, self.queue.groups);
        let stream = self.pool.own_stream(table, to_device)?;
        let piece = self.pool.take(table, groups.staging())?;
        Ok(Transfer {
            number: self.number,
            queue: Queue { view: piece.view(), stream, ..self.queue },
            bulk: self.bulk.clone(),
            watcher: Arc::clone(&self.watcher),
            pool: Arc::clone(&self.pool),
            piece,
            _share: share,
        })
    }

    /// It has come to nothing before it was started: no bytes go, and those that come go nowhere.
    fn abandon(&self) {
        let all = self.queue.groups.cut().count();
        match &self.bytes {
            Bytes::ToHost => self.bulk.cancel(self.number, 0),
            Bytes::Coming(_) => {
                self.bulk.grant(self.number, all);
                self.bulk.done(self.number, false);
            }
            Bytes::Asked(ask) => {
                self.bulk.grant(self.number, all);
                if let Some(ask) = take(ask) {
                    self.watcher.helpers().run(ask);
                }
            }
        }
    }
}

fn take(ask: &Mutex<Option<Reached>>) -> Option<Reached> {
    ask.lock().take()
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
        if !later.turn.has_come() {
            return Step::ForDevice;
        }
        let share = match &later.bytes {
            Bytes::Coming(_) => None,
            Bytes::ToHost | Bytes::Asked(_) => {
                match later.ticket.turn(later.queue.groups.staging(), &later.watcher) {
                    None => return Step::ForBytes,
                    share => share,
                }
            }
        };
        let started = Started::default();
        let say = Say { started: Arc::clone(&started), later: Arc::clone(later) };
        if let Phase::Asked(target) = std::mem::replace(&mut self.phase, Phase::Starting(started)) {
            later.watcher.helpers().run(move || {
                if let Err(error) = say.later.start(&target, share, &say) {
                    say.later.failing.tell(error);
                }
            });
        }
        Step::Moved
    }

    fn end(&self) -> Step {
        self.later.let_on();
        Step::Ended
    }
}

impl Watched for Waiting {
    fn step(&mut self) -> Step {
        match &mut self.phase {
            Phase::Asked(_) if self.gave_up => {
                self.later.abandon();
                self.end()
            }
            Phase::Asked(_) => self.begin(),
            Phase::Starting(started) => {
                let result = started.lock().take();
                match result {
                    None => Step::ForDevice,
                    Some(Ok(moving)) => {
                        self.phase = Phase::Moving(moving);
                        Step::Moved
                    }
                    Some(Err(())) => {
                        self.later.abandon();
                        self.end()
                    }
                }
            }
            Phase::Moving(moving) => {
                if self.gave_up {
                    moving.give_up();
                }
                let step = moving.step();
                if step == Step::Ended {
                    return self.end();
                }
                if moving.is_copied() {
                    self.later.let_on();
                }
                step
            }
        }
    }

    fn alive(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.later.queue.alive(&self.later.pool)
    }

    fn give_up(&mut self) {
        self.gave_up = true;
    }
}

/// Queues a copy to the host.
pub(super) fn copy_out_later(
    place: &Place<'_>,
    number: u64,
    cut: Cut,
    src: &Target,
) -> Result<Arc<dyn Copied>, Failed> {
    let later: Arc<dyn Copied> = queue(place, number, Groups::new(cut), src, Bytes::ToHost)?;
    Ok(later)
}

/// Queues a copy to the device.
pub(super) fn copy_in_later(
    place: &Place<'_>,
    number: u64,
    cut: Cut,
    dst: &Target,
    coming: Coming,
) -> Result<(), Failed> {
    let groups = Groups::new(cut);
    let bytes = match coming {
        Coming::Now => {
            let stream = place.pool.own_stream(place.table, true).map_err(Failed::NotStarted)?;
            let own = Place { stream: stream.get(), ..*place };
            let copy = In::new(own.transfer(number, groups, None).map_err(Failed::NotStarted)?);
            place
                .bulk()
                .receive(number, cut, Arc::clone(&copy) as Arc<dyn Sink>)
                .map_err(Failed::Violation)?;
            Bytes::Coming(copy)
        }
        Coming::Asked(ask) => {
            place.bulk().expect(number, cut).map_err(Failed::Violation)?;
            Bytes::Asked(Mutex::new(Some(ask)))
        }
    };
    let comes = matches!(bytes, Bytes::Coming(_));
    match queue(place, number, groups, dst, bytes) {
        Err(Failed::NotStarted(error)) if comes => {
            // They go on coming, and go nowhere.
            place.bulk().grant(number, cut.count());
            place.bulk().done(number, false);
            Err(Failed::BrokeOff(error))
        }
        queued => queued.map(drop),
    }
}

/// Queues what such a copy needs of its stream.
fn queue(
    place: &Place<'_>,
    number: u64,
    groups: Groups,
    target: &Target,
    bytes: Bytes,
) -> Result<Arc<Later>, Failed> {
    if !groups.fit() {
        return Err(Failed::NotStarted(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
    let ticket = place.pool.account().ticket();
    let line = place.pool.line(place).map_err(Failed::NotStarted)?;
    let turn = line.queue(place).map_err(Failed::NotStarted)?;
    let what = What {
        to_device: !matches!(bytes, Bytes::ToHost),
        way: "lanes",
        bytes: groups.cut().len(),
    };
    let later = Arc::new(Later {
        number,
        bytes,
        queue: place.queue(groups, line.view()),
        turn,
        ticket,
        bulk: place.bulk().clone(),
        watcher: Arc::clone(place.watcher),
        pool: Arc::clone(place.pool),
        copied: AtomicBool::new(false),
        failing: Failing { replier: place.replier.clone(), ctx: place.ctx },
    });
    let waiting =
        Waiting { later: Arc::clone(&later), phase: Phase::Asked(*target), gave_up: false };
    place.watcher.add(Box::new(waiting), what);
    Ok(later)
}
