//! Events that streams of another server wait for, and the waits of streams here.
//!
//! Where the two workers share memory, one device writes a flag there and the other one waits for
//! it. Otherwise the peer is told.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use outboard_abi::{CUctx_st, CUevent, CUresult};
use outboard_driver::{Table, call};
use outboard_session::chunks::Cut;
use outboard_session::groups::{Flag, Groups};
use outboard_wire::DevicePtr;
use outboard_wire::limits::CHUNK_BYTES;

use super::deferred::ExclusiveStream;
use super::memory::{Piece, Pool};
use super::part::Part;
use super::place::Place;
use super::transfer::{CopySite, DeviceSide, FailureReporter, LOST, Queue, liveness_check};
use super::watch::{CopyDescription, Step, Watched};
use super::watching::Watching;
use crate::io::{Bulk, Half};
use crate::memops::{self, Operation};
use crate::objects::Handle;

/// Has a stream wait until the peer says that what a number stands for has happened.
pub(crate) fn wait_for_peer(site: &CopySite<'_>, number: u64, half: &Half) -> Result<(), CUresult> {
    if half.reached() == Some(true) {
        site.bulk.end(number);
        return Ok(());
    }
    let turn = site.pool.line(site)?.queue(site)?;
    let (bulk, failures) = (site.bulk.clone(), FailureReporter::of(site));
    half.when_reached(move |well| {
        bulk.end(number);
        if !well {
            failures.report(LOST);
        }
        turn.end();
    });
    Ok(())
}

/// How the flags of a signal lie in its place, on both servers alike.
pub(crate) fn signal_groups() -> Option<Groups> {
    Cut::new(1, *CHUNK_BYTES.start() as u32).ok().map(Groups::passing)
}

const WHAT: CopyDescription = CopyDescription { to_device: false, way: "peer memory", bytes: 0 };
/// A signal copies nothing.
const NOTHING: DeviceSide = DeviceSide::Linear(DevicePtr::NULL);

/// Has a stream wait until the peer's device says so.
pub(crate) fn wait_for_flag(
    site: &CopySite<'_>,
    number: u64,
    half: Arc<Half>,
    place: Place,
) -> Result<(), CUresult> {
    let wait = Box::new(|queue: &Queue, _: &DeviceSide, _| Ok(Some(queue.wait(Flag::Reached, 1))));
    let part = match Part::new(site, number, &place, wait) {
        Ok(part) => part,
        Err(error) => {
            place.abandon(site.replier);
            return Err(error);
        }
    };
    let queued = part.queue(&NOTHING);
    let mut watching = Watching::new(Arc::new(part), place);
    (watching.half, watching.reports) = (Some(half), true);
    watching.watch(site, WHAT);
    queued
}

/// Has the device tell the peer's when an event has happened. Gives the place back if this is to be
/// seen to in another way: too much stands still already.
pub(crate) fn raise(
    site: &CopySite<'_>,
    number: u64,
    event: CUevent,
    place: Place,
) -> Result<Option<Place>, CUresult> {
    let event = Handle::new(event);
    let raise = Box::new(move |queue: &Queue, _: &DeviceSide, _| {
        call!(queue.table, cuStreamWaitEvent(queue.stream.get(), event.get(), 0))?;
        Ok(Some(queue.mark(Flag::Reached, 1)))
    });
    let made = ExclusiveStream::for_waiting(site.table, site.pool).and_then(|exclusive| {
        let Some(exclusive) = exclusive else { return Ok(None) };
        Ok(Some((Arc::new(exclusive), Part::new(site, number, &place, raise)?)))
    });
    let (exclusive, mut part) = match made {
        Ok(Some(made)) => made,
        Ok(None) => return Ok(Some(place)),
        Err(error) => {
            place.abandon(site.replier);
            return Err(error);
        }
    };
    let queued = part.queue_apart(exclusive, &NOTHING);
    Watching::new(Arc::new(part), place).watch(site, WHAT);
    queued.map(|()| None)
}

/// Tells the peer when an event has happened. `false` if this is to be seen to in another way: too
/// much stands still already.
pub(crate) fn tell_peer(
    site: &CopySite<'_>,
    number: u64,
    event: CUevent,
) -> Result<bool, CUresult> {
    let Some(stream) = ExclusiveStream::for_waiting(site.table, site.pool)? else {
        return Ok(false);
    };
    let piece = site.pool.take(site.table, 0)?;
    let told = Operation::Write(piece.view().device_flag(HAPPENED), 1);
    call!(site.table, cuStreamWaitEvent(stream.get(), event, 0))?;
    memops::queue(site.table, stream.get(), &[told])?;
    let (bulk, pool) = (site.bulk.clone(), Arc::clone(site.pool));
    let (table, context) = (site.table, Handle::new(site.context));
    let telling = Telling { bulk, number, piece, stream: Some(stream), table, context, pool };
    site.watcher
        .add(Box::new(telling), CopyDescription { to_device: false, way: "peer", bytes: 0 });
    Ok(true)
}

/// The word of a [`Telling`]'s flags that the device writes.
const HAPPENED: usize = 0;

/// An event that a peer is told of.
struct Telling {
    bulk: Bulk,
    number: u64,
    piece: Piece,
    stream: Option<ExclusiveStream>,
    table: &'static Table,
    context: Handle<CUctx_st>,
    pool: Arc<Pool>,
}

impl Watched for Telling {
    fn step(&mut self) -> Step {
        if self.piece.flag(HAPPENED).load(Ordering::Acquire) == 0 && self.stream.is_some() {
            return Step::ForDevice;
        }
        self.bulk.reached(self.number, self.stream.is_some());
        Step::Ended
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        liveness_check(&self.pool, self.table, self.context)
    }

    fn give_up(&mut self) {
        self.piece.leak();
        self.stream.take().into_iter().for_each(|stream| stream.abandon());
    }
}
