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
use outboard_session::chunks::Cut;
use outboard_session::groups::Groups;
use parking_lot::Mutex;

use super::account::{Class, Share, Ticket};
use super::deferred::DeferredCopy;
use super::incoming::{Emptying, In, Reached};
use super::line::Turn;
use super::outgoing::Copied;
use super::registered::RegisteredMemory;
use super::starting::{self, OwnStream, Progress, Stage, StartReport, StartsLater};
use super::transfer::{CopySite, DeviceSide, Failed};
use super::unstaged;
use super::watch::{CopyDescription, Step, Watched};
use crate::io::Sink;

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
    own: DeferredCopy,
    bytes: Bytes,
    turn: Turn,
    ticket: Ticket,
    /// Its memory, if an adapter knows it.
    registered: Option<Arc<RegisteredMemory>>,
    copied: AtomicBool,
}

/// The part of the watcher.
struct Waiting {
    later: Arc<Later>,
    progress: Progress,
    gave_up: bool,
}

impl Later {
    /// Lets the stream go on.
    fn release_stream(&self) {
        if !self.copied.swap(true, Ordering::AcqRel) {
            self.turn.end();
        }
    }

    /// It has come to nothing before it was started: no bytes go, and those that come go nowhere.
    fn abandon(&self) {
        let DeferredCopy { number, groups, bulk, watcher, .. } = &self.own;
        let (number, all) = (*number, groups.cut().count());
        match &self.bytes {
            Bytes::ToHost => bulk.cancel(number, 0),
            Bytes::Coming(_) => {
                bulk.grant(number, all);
                bulk.done(number, false);
            }
            Bytes::Asked(ask) => {
                bulk.grant(number, all);
                if let Some(ask) = take(ask) {
                    watcher.helpers().run(ask);
                }
            }
        }
    }

    /// The memory between which and the client's an adapter moves its bytes.
    fn unstaged(&self) -> Option<&Arc<RegisteredMemory>> {
        self.registered.as_ref().filter(|_| self.own.bulk.is_lent(self.own.number))
    }
}

impl StartsLater for Later {
    fn own(&self) -> &DeferredCopy {
        &self.own
    }

    fn start(
        &self,
        target: &DeviceSide,
        share: Option<Share>,
        report: &StartReport,
    ) -> Result<(), CUresult> {
        let own = &self.own;
        let shared = |to_device| own.shared_stream(to_device).map(OwnStream::Shared);
        // What has no share is not staged.
        let unstaged = self.registered.as_ref().filter(|_| share.is_none());
        match (&self.bytes, unstaged) {
            (Bytes::ToHost, Some(memory)) => unstaged::copy_out(own, memory, target, report),
            (Bytes::Asked(ask), Some(memory)) => {
                let ask = || take(ask).into_iter().for_each(|ask| ask());
                unstaged::copy_in(own, memory, target, report, ask)
            }
            (Bytes::ToHost, None) => starting::copy_out(own, shared(false)?, share, target, report),
            (Bytes::Coming(copy), _) => {
                report.moves(Emptying::new(Arc::clone(copy), None, None));
                copy.queue(target, false)
            }
            (Bytes::Asked(ask), None) => {
                let ask = || take(ask).into_iter().for_each(|ask| ask());
                starting::copy_in(own, shared(true)?, share, target, report, ask)
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
        if !later.turn.is_reached() {
            return Step::ForDevice;
        }
        let share = match &later.bytes {
            Bytes::Coming(_) => None,
            Bytes::ToHost | Bytes::Asked(_) if later.unstaged().is_some() => None,
            Bytes::ToHost | Bytes::Asked(_) => {
                match later.ticket.try_reserve(later.own.groups.staging(), &later.own.watcher) {
                    None => return Step::ForBytes,
                    share => share,
                }
            }
        };
        self.progress.start(&self.later, share)
    }

    fn end(&self) -> Step {
        self.later.release_stream();
        Step::Ended
    }
}

impl Watched for Waiting {
    fn step(&mut self) -> Step {
        let come_to_nothing = match self.progress.stage() {
            Stage::Waiting if self.gave_up => true,
            Stage::Waiting => return self.begin(),
            Stage::Starting => return Step::ForDevice,
            Stage::Failed => true,
            Stage::Moving(moving) => {
                if self.gave_up {
                    moving.give_up();
                }
                let step = moving.step();
                if step != Step::Ended {
                    if moving.is_copied() {
                        self.later.release_stream();
                    }
                    return step;
                }
                false
            }
        };
        if come_to_nothing {
            self.later.abandon();
        }
        self.end()
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.later.own.liveness_check()
    }

    fn give_up(&mut self) {
        self.gave_up = true;
    }
}

/// Queues a copy to the host.
pub(super) fn copy_out_later(
    site: &CopySite<'_>,
    number: u64,
    cut: Cut,
    src: &DeviceSide,
) -> Result<Arc<dyn Copied>, Failed> {
    let later: Arc<dyn Copied> = queue(site, number, Groups::new(cut), src, Bytes::ToHost)?;
    Ok(later)
}

/// Queues a copy to the device.
pub(super) fn copy_in_later(
    site: &CopySite<'_>,
    number: u64,
    cut: Cut,
    dst: &DeviceSide,
    coming: Coming,
) -> Result<(), Failed> {
    let groups = Groups::new(cut);
    let bytes = match coming {
        Coming::Now => {
            let stream =
                site.pool.shared_copy_stream(site.table, true).map_err(Failed::NotStarted)?;
            let own = CopySite { stream: stream.get(), ..*site };
            let copy = In::new(own.transfer(number, groups, None).map_err(Failed::NotStarted)?);
            site.bulk
                .receive(number, cut, Arc::clone(&copy) as Arc<dyn Sink>)
                .map_err(Failed::Violation)?;
            Bytes::Coming(copy)
        }
        Coming::Asked(ask) => {
            site.bulk.expect(number, cut).map_err(Failed::Violation)?;
            Bytes::Asked(Mutex::new(Some(ask)))
        }
    };
    let comes = matches!(bytes, Bytes::Coming(_));
    match queue(site, number, groups, dst, bytes) {
        Err(Failed::NotStarted(error)) if comes => {
            // They go on coming, and go nowhere.
            site.bulk.grant(number, cut.count());
            site.bulk.done(number, false);
            Err(Failed::BrokeOff(error))
        }
        queued => queued.map(drop),
    }
}

/// Queues what such a copy needs of its stream.
fn queue(
    site: &CopySite<'_>,
    number: u64,
    groups: Groups,
    target: &DeviceSide,
    bytes: Bytes,
) -> Result<Arc<Later>, Failed> {
    if !groups.fit() {
        return Err(Failed::NotStarted(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
    let ticket = site.pool.account().ticket(Class::Leaving);
    // Before its stream stands still: this waits while memory is freed, which waits for streams.
    let progress = Progress::Waiting(site.watcher.unqueued().add(*target));
    let line = site.pool.line(site).map_err(Failed::NotStarted)?;
    let turn = line.queue(site).map_err(Failed::NotStarted)?;
    let what = CopyDescription {
        to_device: !matches!(bytes, Bytes::ToHost),
        way: "lanes",
        bytes: groups.cut().len(),
    };
    let own = DeferredCopy::new(site, number, groups, line.view());
    let registered = site.registered.map(Arc::clone);
    let copied = AtomicBool::new(false);
    let later = Arc::new(Later { own, bytes, turn, ticket, registered, copied });
    let waiting = Waiting { later: Arc::clone(&later), progress, gave_up: false };
    site.watcher.add(Box::new(waiting), what);
    Ok(later)
}
