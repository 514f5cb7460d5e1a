//! The lanes and their threads: one that reads and one that writes for each.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use outboard_transport::lane::{read_header, write_frame};
use outboard_transport::{Stream, read_exact};
use outboard_wire::lane::{LaneHeader, LaneKind};

use super::super::LinkError;
use super::super::shared::{Shared, lock, try_lock};
use super::super::thread;
use super::table::{Job, Outcome, Table};

/// One connection for bulk data.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) stream: Arc<dyn Stream>,
    /// Held by the one thread that writes, with room to pack rows in.
    write: Mutex<Vec<u8>>,
}

/// How far opening the lanes has come.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// Lanes that were begun with.
    begun: usize,
    /// Of these, the ones that could not be opened.
    failed: usize,
}

/// Begins with as many lanes as are wanted by now, beside those that were begun with before. Each is opened by the thread that reads from it, so
/// that none waits for another.
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
        let started = thread::start(format!("outboard-in{number}"), move || match dial(&lane, number) {
            Ok(()) => end_with(&lane, read(&lane, number)),
            Err(error) => failed(&lane, &error),
        });
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

fn dial(shared: &Arc<Shared>, number: usize) -> io::Result<()> {
    let bulk = &shared.bulk;
    let dial = bulk.dial.as_ref().ok_or_else(|| io::Error::other("this link has none"))?;
    let lane = Lane { stream: dial()?, write: Mutex::default() };
    let stream = Arc::clone(&lane.stream);
    // Only this thread has this number, so the place is empty.
    let _ = bulk.lanes[number].set(lane);
    if shared.is_lost() {
        // The link was lost while the lane was not there to be told.
        let _ = stream.shutdown();
    }
    let writer = Arc::clone(shared);
    let started = thread::start(format!("outboard-out{number}"), move || end_with(&writer, write(&writer, number)));
    if let Err(error) = started {
        // The worker may use the lane already.
        shared.lose(&format!("a thread for bulk data cannot be started: {error}"));
    }
    drop(lock(&bulk.opening));
    bulk.opened.notify_all();
    Ok(())
}

/// A lane cannot be opened. The others do its work, unless there is none: large copies cannot be done any more then, and there is no other way to
/// do them.
fn failed(shared: &Shared, error: &io::Error) {
    let bulk = &shared.bulk;
    let mut opening = lock(&bulk.opening);
    opening.failed += 1;
    let all = opening.failed == opening.begun;
    drop(opening);
    if all {
        shared.lose(&format!("no connection for bulk data can be opened: {error}"));
    }
}

fn end_with(shared: &Shared, result: io::Result<()>) {
    if let Err(error) = result {
        shared.lose_to(&error);
    }
}

/// Writes whatever chunk's turn it is, on one lane, until the link is lost.
fn write(shared: &Shared, number: usize) -> io::Result<()> {
    let bulk = &shared.bulk;
    loop {
        // A look at what is there; the chunk itself is taken once this lane is free to carry it.
        let look = |table: &mut Table| (table.is_lost() || table.has_job()).then(|| table.is_lost());
        let (table, is_lost) = bulk.work.wait(&bulk.table, shared.config.lane_spin, look);
        drop(table);
        let Some(lane) = bulk.lanes[number].get().filter(|_| !is_lost) else { return Ok(()) };
        let job = {
            let writing = lock(&lane.write);
            let job = lock(&bulk.table).next_job(None);
            job.map(|job| (job, lane, writing))
        };
        if let Some((job, lane, writing)) = job {
            carry(shared, &job, lane, writing)?;
        }
    }
}

/// Writes one chunk on a lane that the caller has the right to write to.
fn carry(shared: &Shared, job: &Job, lane: &Lane, mut writing: MutexGuard<'_, Vec<u8>>) -> io::Result<()> {
    let header = LaneHeader { kind: LaneKind::Chunk, transfer: job.transfer, index: job.index, len: job.len };
    // SAFETY: whoever started the upload promised that its bytes are valid for reads until it has ended, and the
    // table does not end it before `job_done` below.
    let bytes = unsafe { job.from.read(job.len as usize, &mut writing) };
    let result = write_frame(&*lane.stream, &header, bytes);
    drop(writing);
    shared.counters.bulk_sent.add(job.len.into());
    let ended = lock(&shared.bulk.table).job_done(job);
    if ended {
        shared.bulk.changed.notify_all();
    }
    result
}

/// Writes chunks of one upload on whatever lanes are free, until it has ended.
pub(super) fn help_with(shared: &Shared, transfer: u64, outcome: &Outcome) {
    let bulk = &shared.bulk;
    // With more than one chunk, the other lanes are worth waking.
    if lock(&bulk.table).has_more_than_one(transfer) {
        bulk.work.ring_all();
    }
    while outcome.get().is_none() {
        let free = bulk.open_lanes().find_map(|lane| Some((lane, try_lock(&lane.write)?)));
        if free.is_none() {
            // Whoever holds the lanes may not care for this upload once done, and this thread may be asleep by then.
            bulk.work.ring_all();
        }
        let mut table = lock(&bulk.table);
        if outcome.get().is_some() {
            return;
        }
        let job = free.and_then(|(lane, writing)| table.next_job(Some(transfer)).map(|job| (job, lane, writing)));
        match job {
            Some((job, lane, writing)) => {
                drop(table);
                end_with(shared, carry(shared, &job, lane, writing));
            }
            None => {
                // Every change is told under or after this lock, so none is missed.
                table = bulk.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
                drop(table);
            }
        }
    }
}

/// Writes the answer to a request on the first lane that is free. The lanes are open.
pub(super) fn answer(shared: &Shared, request: u64, status: u32, body: &[u8]) -> io::Result<()> {
    let bulk = &shared.bulk;
    let free = bulk.open_lanes().find_map(|lane| Some((lane, try_lock(&lane.write)?)));
    let (lane, writing) = match free {
        Some(free) => free,
        None => bulk.open_lanes().next().map(|lane| (lane, lock(&lane.write))).ok_or(io::ErrorKind::NotConnected)?,
    };
    let header = LaneHeader { kind: LaneKind::Answer, transfer: request, index: status, len: body.len() as u32 };
    let result = write_frame(&*lane.stream, &header, body);
    drop(writing);
    result
}

/// Reads what the worker sends on one lane, until the link is lost.
fn read(shared: &Arc<Shared>, number: usize) -> io::Result<()> {
    let bulk = &shared.bulk;
    let Some(lane) = bulk.lanes[number].get() else { return Ok(()) };
    let stream = &*lane.stream;
    let mut scratch = Vec::new();
    loop {
        let mut since = None;
        let header = read_header(stream, || {
            bulk.eager.load(Ordering::Relaxed)
                && since.get_or_insert_with(Instant::now).elapsed() < shared.config.lane_spin
        })?;
        let told = match header.kind {
            LaneKind::Chunk => {
                let ended = receive(shared, stream, &header, &mut scratch)?;
                shared.counters.bulk_received.add(header.len.into());
                ended
            }
            LaneKind::Grant => {
                lock(&bulk.table).grant(header.transfer, header.index);
                bulk.work.ring_one();
                true
            }
            LaneKind::Done => {
                lock(&bulk.table).release(header.transfer, header.index == 0);
                true
            }
            LaneKind::Cancelled => {
                lock(&bulk.table).cancel_download(header.transfer, header.index);
                true
            }
            LaneKind::Answer => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a server answers no requests on lanes"));
            }
        };
        if told {
            let measured = {
                let mut table = lock(&bulk.table);
                bulk.set_eager(&table);
                table.take_measured()
            };
            bulk.changed.notify_all();
            if bulk.learn(&measured) {
                begin(shared);
            }
        }
    }
}

/// Reads one chunk to where it belongs. Whether that ends its download.
fn receive(shared: &Shared, stream: &dyn Stream, header: &LaneHeader, scratch: &mut Vec<u8>) -> io::Result<bool> {
    let bulk = &shared.bulk;
    let place = lock(&bulk.table).begin_chunk(header.transfer, header.index, header.len);
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let place = place
        .ok_or_else(|| invalid("bytes came for a transfer that is not known".to_owned()))?
        .map_err(|error| invalid(error.to_string()))?;
    // Whoever opened the download promised that its memory is valid for writes and otherwise left alone until
    // it has ended. The table has checked that the chunk lies within it, gives each chunk to one thread only, and
    // does not end the download before `end_chunk` below.
    let result = match place.contiguous() {
        // SAFETY: as above.
        Some(address) => read_exact(stream, unsafe { std::slice::from_raw_parts_mut(address, header.len as usize) }),
        None => {
            scratch.resize(header.len as usize, 0);
            // SAFETY: as above.
            read_exact(stream, scratch).map(|()| unsafe { place.write(scratch) })
        }
    };
    let ended = lock(&bulk.table).end_chunk(header.transfer, result.is_ok());
    result.map(|()| ended)
}
