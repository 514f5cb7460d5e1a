//! What comes on a lane.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use outboard_transport::lane::read_numbered;
use outboard_transport::{Stream, read_exact_unless_silent};
use outboard_wire::lane::{LaneHeader, LaneKind};

use super::super::shared::{Shared, lock};
use super::lane::{Body, Lane};
use super::lanes::begin;

/// When a download of more bytes has come, the worker is told at once, so that it has its memory back.
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
        shared.bulk.changed.notify_all();
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
                // A worker has only so much memory for a download. If each of many lanes kept a little to itself, it could wait for that for ever.
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
            LaneKind::Chunk => {
                let ended = receive(shared, stream, &header, &mut scratch)?;
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
                lock(&bulk.table).cancel_download(header.transfer, header.index);
                true
            }
            LaneKind::Acknowledge if bulk.is_resumable() => continue,
            LaneKind::Answer | LaneKind::Acknowledge => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a server says no such thing on lanes"));
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

/// Reads one chunk to where it belongs. Whether that ends its download.
fn receive(shared: &Shared, stream: &dyn Stream, header: &LaneHeader, scratch: &mut Vec<u8>) -> io::Result<bool> {
    let bulk = &shared.bulk;
    let place = lock(&bulk.table).begin_chunk(header.transfer, header.index, header.len);
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let place = place
        .ok_or_else(|| invalid("bytes came for a transfer that is not known".to_owned()))?
        .map_err(|error| invalid(error.to_string()))?;
    let read = |to: &mut [u8]| read_exact_unless_silent(stream, to, shared.config.silence);
    // Whoever opened the download promised that its memory is valid for writes and otherwise left alone until
    // it has ended. The table has checked that the chunk lies within it, gives each chunk to one thread only, and
    // does not end the download before `end_chunk` below.
    let result = match place.contiguous() {
        // SAFETY: as above.
        Some(address) => read(unsafe { std::slice::from_raw_parts_mut(address, header.len as usize) }),
        None => {
            scratch.resize(header.len as usize, 0);
            // SAFETY: as above.
            read(scratch).map(|()| unsafe { place.write(scratch) })
        }
    };
    let ended = lock(&bulk.table).end_chunk(header.transfer, header.index, result.is_ok());
    result.map(|()| ended)
}
