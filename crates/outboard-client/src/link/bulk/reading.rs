//! Reads the frames of a lane.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use outboard_transport::lane::read_numbered;
use outboard_transport::{PEER_CHECK, Stream, read_exact_unless_silent};
use outboard_wire::lane::{LaneHeader, LaneKind};

use super::super::locks::lock;
use super::super::shared::Shared;
use super::downloads::{Early, Room};
use super::lane::{Body, Lane};
use super::lanes::begin;
use super::state::Bulk;

/// When the last download has ended, the client acknowledges at once, so that the worker gets its
/// memory back. While other downloads run, each lane acknowledges now and then.
const LARGE: u64 = 512 << 10;

/// The worker has these frames.
pub(super) fn has_come(shared: &Shared, frames: Vec<Body>) {
    let mut ended = false;
    {
        let mut table = lock(&shared.bulk.table);
        for body in frames {
            if let Body::Job(job) = body {
                ended |= table.job_has_come(&job);
            }
        }
    }
    if ended {
        shared.bulk.changed.tell_all();
    }
}

/// Reads what the worker sends on one lane, until its connection ends.
pub(super) fn read(shared: &Arc<Shared>, lane: &Lane, stream: &dyn Stream) -> io::Result<()> {
    let bulk = &shared.bulk;
    let mut scratch = Vec::new();
    let mut heard = None;
    loop {
        let mut since = None;
        let (header, received) = read_numbered(stream, shared.config.silence, || {
            let eager = bulk.eager.load(Ordering::Relaxed);
            if eager && since.is_none() {
                // A worker has only so much memory for a download. If each of many lanes held back
                // a few acknowledgements, the worker could wait for them without end.
                lane.owe();
                lane.settle(|| bulk.tell_all());
            }
            eager && since.get_or_insert_with(Instant::now).elapsed() < shared.config.lane_spin
        })?;
        if bulk.is_resumable() && heard.replace(received) != Some(received) {
            has_come(shared, lane.acknowledged(received)?);
        }
        let mut large = false;
        let told = match header.kind {
            LaneKind::Chunk | LaneKind::Written => {
                let ended = match header.kind {
                    LaneKind::Written if bulk.is_resumable() => written(bulk, &header)?,
                    _ => receive(shared, stream, &header, &mut scratch)?,
                };
                shared.counters.bulk_received.add(header.len.into());
                large = ended && u64::from(header.len) * u64::from(header.index + 1) > LARGE;
                ended
            }
            LaneKind::Grant => {
                lock(&bulk.table).grant(header.transfer, header.index);
                bulk.tell_one();
                true
            }
            LaneKind::Done => {
                lock(&bulk.table).release(header.transfer, header.index == 0);
                true
            }
            LaneKind::Cancelled => {
                lock(&bulk.table).downloads.cancel(header.transfer, header.index);
                let free = lock(&bulk.table).downloads.take_free();
                place(bulk, free);
                true
            }
            LaneKind::Unstaged => {
                bulk.lending.begin_unstaged();
                false
            }
            LaneKind::Acknowledge if bulk.is_resumable() => continue,
            LaneKind::Answer
            | LaneKind::Acknowledge
            | LaneKind::Reached
            | LaneKind::Lend
            | LaneKind::Readable => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a server says no such thing on lanes",
                ));
            }
        };
        if told {
            let measured = {
                let mut table = lock(&bulk.table);
                bulk.set_eager(&table);
                table.take_measured()
            };
            large &= !bulk.eager.load(Ordering::Relaxed);
            bulk.changed.tell_all();
            if bulk.learn(&measured) {
                begin(shared);
            }
        }
        if bulk.is_resumable() {
            lane.has_received(header.len);
            if large {
                for lane in bulk.open_lanes() {
                    lane.owe();
                    lane.settle(|| bulk.tell_all());
                }
            }
            lane.settle(|| bulk.tell_all());
        }
    }
}

/// Reads one chunk to where it belongs, or puts it aside. Whether that ends a download.
fn receive(
    shared: &Shared,
    stream: &dyn Stream,
    header: &LaneHeader,
    scratch: &mut Vec<u8>,
) -> io::Result<bool> {
    let bulk = &shared.bulk;
    let LaneHeader { transfer, index, len, .. } = *header;
    let read = |to: &mut [u8]| read_exact_unless_silent(stream, to, shared.config.silence);
    // Whoever opened the download promised that its memory is valid for writes and otherwise left
    // alone until it has ended. The table has checked that the chunk lies within it, gives each
    // chunk to one thread only, and does not end the download before `end_chunk` below.
    let result = match room(shared, header)? {
        Room::Aside => {
            let mut bytes = vec![0; len as usize];
            let result = read(&mut bytes);
            if result.is_ok() {
                let free = lock(&bulk.table).downloads.put_aside(transfer, index, bytes);
                return Ok(free.is_some_and(|early| place(bulk, vec![early])));
            }
            result
        }
        Room::Here(to) => match to.contiguous() {
            // SAFETY: as above.
            Some(address) => read(unsafe { std::slice::from_raw_parts_mut(address, len as usize) }),
            None => {
                scratch.resize(len as usize, 0);
                // SAFETY: as above.
                read(scratch).map(|()| unsafe { to.write(scratch) })
            }
        },
    };
    let ended = lock(&bulk.table).downloads.end_chunk(transfer, index, result.is_ok());
    if ended {
        let free = lock(&bulk.table).downloads.take_free();
        place(bulk, free);
    }
    result.map(|()| ended)
}

/// An adapter of the server's has written a chunk. Whether that ends a download.
fn written(bulk: &Bulk, header: &LaneHeader) -> io::Result<bool> {
    let LaneHeader { transfer, index, len, .. } = *header;
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let written = lock(&bulk.table).downloads.written(transfer, index, len);
    let written = written.ok_or_else(|| {
        invalid("bytes were written for a transfer for which no memory is lent".to_owned())
    })?;
    let ended = written.map_err(|error| invalid(error.to_string()))?;
    if ended {
        let free = lock(&bulk.table).downloads.take_free();
        place(bulk, free);
    }
    Ok(ended)
}

/// Where a chunk goes; waits while too much is put aside.
fn room(shared: &Shared, header: &LaneHeader) -> io::Result<Room> {
    let bulk = &shared.bulk;
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut table = lock(&bulk.table);
    loop {
        let begun = table.downloads.begin_chunk(header.transfer, header.index, header.len);
        let begun = begun
            .ok_or_else(|| invalid("bytes came for a transfer that is not known".to_owned()))?;
        if let Some(room) = begun.map_err(|error| invalid(error.to_string()))? {
            return Ok(room);
        }
        table = bulk.changed.wait_timeout(table, PEER_CHECK).0;
    }
}

/// Copies chunks that were put aside to their places, and those that this makes room for. Whether
/// that ends a download.
fn place(bulk: &Bulk, mut chunks: Vec<Early>) -> bool {
    let mut ended = false;
    while !chunks.is_empty() {
        for Early { transfer, index, to, bytes } in chunks {
            // SAFETY: as in `receive`.
            unsafe { to.write(&bytes) };
            ended |= lock(&bulk.table).downloads.end_chunk(transfer, index, true);
        }
        // Lanes may wait for room to put more aside.
        bulk.changed.tell_all();
        chunks = lock(&bulk.table).downloads.take_free();
    }
    ended
}
