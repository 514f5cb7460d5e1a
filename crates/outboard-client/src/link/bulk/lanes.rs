//! The lanes' threads: one that reads and one that writes for each. The one that reads also
//! connects, at first and after a loss.

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outboard_transport::{PEER_CHECK, Stream};
use outboard_wire::handshake::resume::Point;
use outboard_wire::lane::{LaneHeader, LaneKind, Lent};

use super::super::error::{ConnectError, LinkError};
use super::super::locks::lock;
use super::super::refusals::Refusals;
use super::super::shared::Shared;
use super::lane::{Body, Lane, Writing};
use super::reading::{has_come, read};
use super::table::{Job, Outcome, Table};

/// Pauses between attempts to connect: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Begins with as many lanes as are wanted by now, beside those that were begun with before. Each
/// is opened by the thread that reads from it, so that none waits for another.
pub(super) fn begin(shared: &Arc<Shared>) {
    let bulk = &shared.bulk;
    let numbers = {
        let wanted = lock(&bulk.count).wanted();
        let mut opening = lock(&bulk.opening);
        let begun = opening.begun;
        opening.begun = begun.max(wanted);
        begun..opening.begun
    };
    for number in numbers {
        let lane = Arc::clone(shared);
        let started =
            outboard_threads::start(&format!("outboard-in{number}"), move || run(&lane, number));
        if let Err(error) = started {
            failed(shared, &error);
        }
    }
}

/// Opens the lanes, the first time; returns when one is there.
pub(super) fn open(shared: &Arc<Shared>) -> Result<(), LinkError> {
    let bulk = &shared.bulk;
    if bulk.open_lanes().next().is_none() {
        begin(shared);
        let mut opening = lock(&bulk.opening);
        while bulk.open_lanes().next().is_none() && !shared.is_lost() {
            opening = bulk.opened.wait(opening).unwrap_or_else(PoisonError::into_inner);
        }
    }
    if shared.is_lost() { Err(shared.lost()) } else { Ok(()) }
}

/// Opens a lane and reads from it until the link is lost.
fn run(shared: &Arc<Shared>, number: usize) {
    match dial(shared, number) {
        Ok(()) => {}
        Err(error) if may_be_open(&error) => {
            // What the worker sends there, it sends nowhere else.
            return shared.lose(&format!(
                "a connection for bulk data broke off while it was opened: {error}"
            ));
        }
        Err(error) => return failed(shared, &error),
    }
    let Some(lane) = shared.bulk.lanes[number].get() else { return };
    while !shared.is_lost() {
        let stream = lane.stream();
        let Err(error) = read(shared, lane, &*stream) else { return };
        drop(stream);
        if shared.is_lost() {
            return;
        }
        if !shared.bulk.is_resumable() || error.kind() == io::ErrorKind::InvalidData {
            return shared.lose_to(&error);
        }
        if let Err(again) = go_on(shared, number, lane) {
            return shared.lose(&format!(
                "a connection for bulk data is lost ({error}), and there is no other: {again}"
            ));
        }
    }
}

/// Connects, and again if the link can go on after a loss, until it is time to give up.
fn connect(
    shared: &Shared,
    number: usize,
    mut point: impl FnMut() -> Point,
) -> Result<(Arc<dyn Stream>, Option<Point>), ConnectError> {
    let bulk = &shared.bulk;
    let none = || ConnectError::Local(io::Error::other("this link has no lanes"));
    let dial = bulk.dial.as_ref().ok_or_else(none)?;
    let deadline = Instant::now() + bulk.grace.unwrap_or_default();
    let (mut pause, longest) = PAUSES;
    let mut refusals = Refusals::default();
    loop {
        let point = bulk.is_resumable().then(|| Point { lane: number as u32, ..point() });
        let error = match dial(point) {
            Ok(connected) => return Ok(connected),
            Err(error) => error,
        };
        if refusals.is_final(&error) || shared.is_lost() || Instant::now() + pause >= deadline {
            return Err(error);
        }
        let opening = lock(&bulk.opening);
        drop(bulk.opened.wait_timeout(opening, pause));
        pause = (pause * 2).min(longest);
    }
}

fn dial(shared: &Arc<Shared>, number: usize) -> Result<(), ConnectError> {
    let bulk = &shared.bulk;
    let mut attempt = 0;
    let point = || {
        attempt += 1;
        Point { attempt, ..Point::default() }
    };
    let (stream, _) = connect(shared, number, point)?;
    // Only this thread has this number, so the place is empty.
    let _ = bulk.lanes[number].set(Lane::new(Arc::clone(&stream), attempt, bulk.is_resumable()));
    if shared.is_lost() {
        // The link was lost while the lane was not there to be told.
        let _ = stream.shutdown();
    }
    let writer = Arc::clone(shared);
    let started =
        outboard_threads::start(&format!("outboard-out{number}"), move || write(&writer, number));
    if let Err(error) = started {
        // The worker may use the lane already.
        shared.lose(&format!("a thread for bulk data cannot be started: {error}"));
    }
    drop(lock(&bulk.opening));
    bulk.opened.notify_all();
    Ok(())
}

/// The lane's connection is gone: resumes over another connection.
fn go_on(shared: &Shared, number: usize, lane: &Lane) -> io::Result<()> {
    lane.down();
    // What the adapter has not written comes again on lanes, and what it has not read goes there.
    shared.bulk.lending.end();
    // Another lane now has the work that this lane's writer was woken for.
    shared.bulk.tell_all();
    let (stream, point) =
        connect(shared, number, || lane.next_attempt()).map_err(io::Error::other)?;
    let received = point.map_or(0, |point| point.received);
    let gone = lane.go_on(stream, received)?;
    has_come(shared, gone);
    if shared.is_lost() {
        lane.down();
    }
    shared.bulk.tell_all();
    Ok(())
}

/// Whether the worker may have a lane that could not be opened: it was asked for, and not declined.
fn may_be_open(error: &ConnectError) -> bool {
    matches!(error, ConnectError::BrokenOff { .. } | ConnectError::Handshake { .. })
}

/// A lane cannot be opened. The others do its work, unless there is none: large copies cannot be
/// done any more then, and there is no other way to do them.
fn failed(shared: &Shared, error: &dyn std::error::Error) {
    let bulk = &shared.bulk;
    let mut opening = lock(&bulk.opening);
    opening.failed += 1;
    let all = opening.failed == opening.begun;
    drop(opening);
    if all {
        shared.lose(&format!("no connection for bulk data can be opened: {error}"));
    }
}

/// Writes whatever chunk's turn it is, on one lane, until the link is lost.
fn write(shared: &Shared, number: usize) {
    let bulk = &shared.bulk;
    let Some(lane) = bulk.lanes[number].get() else { return };
    loop {
        // A look at what is there; the chunk itself is taken once this lane is free to carry it.
        let look = |table: &mut Table| {
            let may = lane.needs_its_writer() || lane.is_up() && table.has_job();
            (table.is_lost() || may).then(|| table.is_lost())
        };
        let (table, is_lost) = bulk.work.wait(&bulk.table, shared.config.lane_spin, look);
        drop(table);
        if is_lost {
            return;
        }
        let mut writing = lock(&lane.write);
        if lane.needs_its_writer() {
            catch_up(shared, lane, &mut writing);
        } else if lane.is_up() {
            let job = lock(&bulk.table).next_job(None);
            if let Some(job) = job {
                carry(shared, &job, lane, writing);
                continue;
            }
        }
        drop(writing);
        lane.settle(|| bulk.tell_all());
    }
}

/// Sends again what a new connection begins with, and tells what has been received.
fn catch_up(shared: &Shared, lane: &Lane, writing: &mut Writing) {
    while lane.is_up()
        && let Some((header, body)) = lane.next_again()
    {
        match body {
            Body::Owned(bytes) => lane.write(writing, &header, &bytes),
            Body::Job(job) => {
                if !lock(&shared.bulk.table).begin_again(&job) {
                    if !shared.is_lost() {
                        shared.lose("the server has lost bytes that it said it had");
                    }
                    return;
                }
                let mut scratch = std::mem::take(&mut writing.scratch);
                // SAFETY: as in `carry`; the table knows the upload, so it has not ended.
                lane.write(writing, &header, unsafe {
                    job.from.read(job.len as usize, &mut scratch)
                });
                writing.scratch = scratch;
                if lock(&shared.bulk.table).job_written(&job, false) {
                    shared.bulk.changed.tell_all();
                }
            }
        }
    }
    lane.caught_up(writing);
}

/// Writes one chunk on a lane that the caller has the right to write to.
fn carry(shared: &Shared, job: &Job, lane: &Lane, mut writing: MutexGuard<'_, Writing>) {
    let header = LaneHeader {
        kind: LaneKind::Chunk,
        transfer: job.transfer,
        index: job.index,
        len: job.len,
    };
    let mut scratch = std::mem::take(&mut writing.scratch);
    // SAFETY: whoever started the upload promised that its bytes are valid for reads until it has
    // ended, and the table does not end it before `job_written` below.
    let bytes = unsafe { job.from.read(job.len as usize, &mut scratch) };
    let kept = shared.bulk.is_resumable();
    if kept && job.copied {
        let bytes: Arc<[u8]> = bytes.into();
        if lane.put(&header, Body::Owned(Arc::clone(&bytes))) {
            lane.write(&mut writing, &header, &bytes);
        }
    } else if !kept || lane.put(&header, Body::Job(*job)) {
        let place = shared.bulk.lending.place(&job.from, job.len.into()).filter(|_| kept);
        match place {
            Some(place) => {
                let readable = LaneHeader { kind: LaneKind::Readable, ..header };
                lane.write(&mut writing, &readable, &place.encode());
            }
            None => lane.write(&mut writing, &header, bytes),
        }
    }
    writing.scratch = scratch;
    drop(writing);
    shared.counters.bulk_sent.add(job.len.into());
    if lock(&shared.bulk.table).job_written(job, job.copied || !kept) {
        shared.bulk.changed.tell_all();
    }
    lane.settle(|| shared.bulk.tell_all());
}

/// Writes chunks of one upload on whatever lanes are free, until all have been written.
pub(super) fn help_with(shared: &Shared, transfer: u64, outcome: &Outcome) {
    let bulk = &shared.bulk;
    // With more than one chunk, the other lanes are worth waking.
    if lock(&bulk.table).has_more_than_one(transfer) {
        bulk.work.ring_all();
    }
    loop {
        let free = bulk.open_lanes().find_map(|lane| Some((lane, lane.try_write()?)));
        if free.is_none() {
            // No other thread ends this upload once it is done, and this thread may be asleep by
            // then.
            bulk.work.ring_all();
        }
        let mut table = lock(&bulk.table);
        if outcome.get().is_some() || table.is_written(transfer) {
            drop(table);
            if let Some((lane, writing)) = free {
                drop(writing);
                lane.settle(|| bulk.tell_all());
            }
            return;
        }
        let mut owed = None;
        let job = free.and_then(|(lane, writing)| {
            let job = table.next_job(Some(transfer));
            if job.is_none() {
                drop(writing);
                owed = Some(lane);
                return None;
            }
            job.map(|job| (job, lane, writing))
        });
        match job {
            Some((job, lane, writing)) => {
                drop(table);
                carry(shared, &job, lane, writing);
            }
            None if owed.is_some_and(Lane::owes) => {
                drop(table);
                owed.into_iter().for_each(|lane| lane.settle(|| bulk.tell_all()));
            }
            None => {
                // Every change is told under or after this lock, so none is missed.
                let (table, timed_out) = bulk.changed.wait_timeout(table, PEER_CHECK);
                drop(table);
                if timed_out {
                    shared.check_for_life(PEER_CHECK);
                }
            }
        }
    }
}

/// Writes the answer to a request. The lanes are open.
pub(super) fn answer(shared: &Shared, request: u64, status: u32, body: &[u8]) -> io::Result<()> {
    let header = LaneHeader {
        kind: LaneKind::Answer,
        transfer: request,
        index: status,
        len: body.len() as u32,
    };
    say(shared, &header, body)
}

/// Tells the worker where an adapter may write the bytes of a transfer. The lanes are open.
pub(super) fn lend(shared: &Shared, transfer: u64, lent: &Lent) {
    let header = LaneHeader { kind: LaneKind::Lend, transfer, index: 0, len: 0 };
    // Otherwise they come on lanes.
    let _ = say(shared, &header, &lent.encode());
}

/// Writes a frame on the first lane that is free.
fn say(shared: &Shared, header: &LaneHeader, body: &[u8]) -> io::Result<()> {
    let bulk = &shared.bulk;
    let free = bulk.open_lanes().find_map(|lane| Some((lane, lane.try_write()?)));
    let (lane, mut writing) = match free {
        Some(free) => free,
        None => bulk
            .open_lanes()
            .next()
            .map(|lane| (lane, lock(&lane.write)))
            .ok_or(io::ErrorKind::NotConnected)?,
    };
    if lane.keeps_too_much() {
        let why = "the server does not say that it has what it was sent";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    if !bulk.is_resumable() || lane.put(header, Body::Owned(body.into())) {
        lane.write(&mut writing, header, body);
    }
    drop(writing);
    lane.settle(|| bulk.tell_all());
    Ok(())
}
