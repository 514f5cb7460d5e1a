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
use super::table::{Job, Outcome};

/// One connection for bulk data.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) stream: Arc<dyn Stream>,
    /// Held by the one thread that writes, with room to pack rows in.
    write: Mutex<Vec<u8>>,
}

/// Opens the lanes, the first time.
pub(super) fn open(shared: &Arc<Shared>) -> Result<(), LinkError> {
    let bulk = &shared.bulk;
    if bulk.lanes.get().is_some() {
        return Ok(());
    }
    let _opening = lock(&bulk.opening);
    if bulk.lanes.get().is_some() {
        return Ok(());
    }
    if let Err(error) = dial_and_start(shared) {
        // Large copies cannot be done any more, and there is no other way to do them.
        shared.lose(&format!("a connection for bulk data cannot be opened: {error}"));
        return Err(shared.lost());
    }
    if shared.is_lost() {
        // The link was lost while the lanes were not there to be told.
        bulk.lose();
        return Err(shared.lost());
    }
    Ok(())
}

fn dial_and_start(shared: &Arc<Shared>) -> io::Result<()> {
    let bulk = &shared.bulk;
    let dial = bulk.dial.as_ref().ok_or_else(|| io::Error::other("this link has none"))?;
    let lanes: Vec<Lane> =
        (0..bulk.wanted).map(|_| Ok(Lane { stream: dial()?, write: Mutex::default() })).collect::<io::Result<_>>()?;
    let count = lanes.len();
    // Only one thread gets here, so the place is empty.
    let _ = bulk.lanes.set(lanes);
    for number in 0..count {
        let reader = Arc::clone(shared);
        thread::start(format!("outboard-in{number}"), move || end_with(&reader, read(&reader, number)))?;
        let writer = Arc::clone(shared);
        thread::start(format!("outboard-out{number}"), move || end_with(&writer, write(&writer, number)))?;
    }
    Ok(())
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
        let job = {
            let mut table = lock(&bulk.table);
            loop {
                if table.is_lost() {
                    return Ok(());
                }
                // A look at what is there; the chunk itself is taken once this lane is free to carry it.
                if table.has_job() {
                    break;
                }
                table = bulk.work.wait(table).unwrap_or_else(PoisonError::into_inner);
            }
            drop(table);
            let lane = &bulk.opened()[number];
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
    lock(&shared.bulk.table).job_done(job);
    shared.bulk.changed.notify_all();
    result
}

/// Writes chunks of one upload on whatever lanes are free, until it has ended.
pub(super) fn help_with(shared: &Shared, transfer: u64, outcome: &Outcome) {
    let bulk = &shared.bulk;
    let lanes = bulk.opened();
    // With more than one chunk, the other lanes are worth waking.
    if lock(&bulk.table).has_more_than_one(transfer) {
        bulk.work.notify_all();
    }
    while outcome.get().is_none() {
        let free = lanes.iter().find_map(|lane| Some((lane, try_lock(&lane.write)?)));
        if free.is_none() {
            // Whoever holds the lanes may not care for this upload once done, and this thread may be asleep by then.
            bulk.work.notify_all();
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
    let lanes = shared.bulk.opened();
    let free = lanes.iter().find_map(|lane| Some((lane, try_lock(&lane.write)?)));
    let (lane, writing) = match free {
        Some(free) => free,
        None => lanes.first().map(|lane| (lane, lock(&lane.write))).ok_or(io::ErrorKind::NotConnected)?,
    };
    let header = LaneHeader { kind: LaneKind::Answer, transfer: request, index: status, len: body.len() as u32 };
    let result = write_frame(&*lane.stream, &header, body);
    drop(writing);
    result
}

/// Reads what the worker sends on one lane, until the link is lost.
fn read(shared: &Shared, number: usize) -> io::Result<()> {
    let bulk = &shared.bulk;
    let stream = &*bulk.opened()[number].stream;
    let mut scratch = Vec::new();
    loop {
        let mut since = None;
        let header = read_header(stream, || {
            bulk.eager.load(Ordering::Relaxed) && since.get_or_insert_with(Instant::now).elapsed() < shared.config.spin
        })?;
        match header.kind {
            LaneKind::Chunk => {
                receive(shared, stream, &header, &mut scratch)?;
                shared.counters.bulk_received.add(header.len.into());
            }
            LaneKind::Grant => {
                lock(&bulk.table).grant(header.transfer, header.index);
                bulk.work.notify_one();
            }
            LaneKind::Done => lock(&bulk.table).release(header.transfer),
            LaneKind::Cancelled => lock(&bulk.table).cancel_download(header.transfer, header.index),
            LaneKind::Answer => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a server answers no requests on lanes"));
            }
        }
        bulk.set_eager(&lock(&bulk.table));
        bulk.changed.notify_all();
    }
}

/// Reads one chunk to where it belongs.
fn receive(shared: &Shared, stream: &dyn Stream, header: &LaneHeader, scratch: &mut Vec<u8>) -> io::Result<()> {
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
    lock(&bulk.table).end_chunk(header.transfer, result.is_ok());
    result
}
