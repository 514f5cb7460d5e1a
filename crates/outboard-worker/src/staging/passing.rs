//! Copies between devices of two servers whose workers share memory: one device writes the bytes
//! there, and the other one reads them. No thread moves a byte or a flag.
//!
//! As in [`super::peer`], one of the halves leads, and the other one's stream is busy as long as
//! the copy lasts. Each half is queued whole when it is announced, or starts later, in a stream of
//! the worker's own: the leader when its stream comes to it, and the other one when the leader has
//! begun. The memory is there in any case: copies of one queue, each of which is over before the
//! next one begins, have the same.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_session::groups::{Flag, Groups};

use super::deferred::ExclusiveStream;
use super::memory::ReservedOperations;
use super::part::{Part, Work};
use super::peer::{MAX_OPERATIONS_AHEAD, PeerCopy};
use super::place::Place;
use super::transfer::{CopySite, DeviceSide};
use super::watch::CopyDescription;
use super::watching::{ToStart, Watching};

/// How such a copy is divided, on both servers alike.
pub(crate) fn groups(copy: &PeerCopy) -> Groups {
    Groups::passing(copy.cut)
}

/// Queues the part of a copy whose source is here, or whose destination is.
pub(crate) fn pass(
    site: &CopySite<'_>,
    copy: PeerCopy,
    place: Place,
    target: &DeviceSide,
    to_device: bool,
) -> Result<(), CUresult> {
    let PeerCopy { number, cut, leads, half } = copy;
    let what = CopyDescription { to_device, way: "peer memory", bytes: cut.len() };
    let made = begin(site, leads, &place).and_then(|ahead| {
        let part = Part::new(site, number, &place, work(to_device, leads))?;
        Ok((ahead, part))
    });
    let (ahead, mut part) = match made {
        Ok(made) => made,
        Err(error) => {
            place.abandon(site.replier);
            return Err(error);
        }
    };
    let failures = part.own.failures.clone();
    let (mut held, mut turn, mut to_start) = (None, None, None);
    let queued = match ahead {
        Ahead::InStream(operations) => {
            held = Some(operations);
            part.queue(target)
        }
        Ahead::Beside(stream, operations) => {
            held = Some(operations);
            part.queue_beside(stream, target)
        }
        Ahead::Not => {
            // Before the stream stands still: as of other copies that start later.
            let target = site.watcher.unqueued().add(*target);
            let line = site.pool.line(site);
            let queued = line.and_then(|line| line.queue(site)).map(|own| turn = Some(own));
            to_start = Some(ToStart { target, at_its_turn: leads });
            queued
        }
    };
    let mut watching = Watching::new(Arc::new(part), place);
    (watching.half, watching.reports) = (Some(half), leads);
    (watching.held, watching.turn, watching.to_start) = (held, turn, to_start);
    watching.destination = to_device.then_some(*target);
    if let Err(error) = queued {
        failures.report(error);
        watching.abandon();
    }
    watching.watch(site, what);
    Ok(())
}

/// How a half is queued when it is announced.
enum Ahead {
    InStream(ReservedOperations),
    Beside(Arc<ExclusiveStream>, ReservedOperations),
    Not,
}

fn begin(site: &CopySite<'_>, leads: bool, place: &Place) -> Result<Ahead, CUresult> {
    // Beside the groups, the last wait and its mark.
    let operations = place.groups().operations() + 2;
    if operations > MAX_OPERATIONS_AHEAD {
        return Ok(Ahead::Not);
    }
    if leads {
        let held = site.pool.reserve(site.stream, operations);
        return Ok(held.map_or(Ahead::Not, Ahead::InStream));
    }
    let Some(stream) = place.stream_beside(site)? else { return Ok(Ahead::Not) };
    let held = site.pool.reserve(stream.get(), operations);
    Ok(held.map_or(Ahead::Not, |held| Ahead::Beside(stream, held)))
}

fn work(to_device: bool, leads: bool) -> Work {
    match (to_device, leads) {
        (true, true) => Box::new(|queue, target, begun| {
            queue.copy_in(target, &[queue.mark(Flag::Reached, 1), begun])?;
            Ok(None)
        }),
        (true, false) => Box::new(|queue, target, begun| {
            queue.copy_in(target, &[begun])?;
            Ok(None)
        }),
        (false, true) => Box::new(|queue, target, _| {
            queue.copy_out(target)?;
            // The stream goes on when the bytes are where they belong.
            let (slot, round) = queue.groups.slot_and_round(queue.groups.count() - 1);
            Ok(Some(queue.wait(Flag::Free(slot), round)))
        }),
        (false, false) => Box::new(|queue, target, _| {
            queue.queue(&[queue.wait(Flag::Reached, 1)])?;
            queue.copy_out(target)?;
            Ok(None)
        }),
    }
}
