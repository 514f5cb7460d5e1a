//! Frames on lanes, taken in as a lane's reader does, with memory at stake: for the fuzz target.

use std::sync::Arc;

use outboard_session::chunks::Cut;
use outboard_wire::lane::{LaneHeader, LaneKind};

use super::downloads::{Early, Room};
use super::host_bytes::HostBytes;
use super::table::{Outcome, Table};

/// Bytes of the transfers: two chunks and a rest.
const BYTES: usize = (2 << 16) + 1000;
const AROUND: usize = 64;
const KEPT: u8 = 0x22;
const SENT: u8 = 0x33;

/// Takes in frames with an upload, a download and another one behind it under way. Panics if it
/// reaches what it must not.
pub(crate) fn lanes(data: &[u8]) {
    let Ok(cut) = Cut::new(BYTES as u64, 1 << 16) else { return };
    let mut memory = vec![KEPT; AROUND + BYTES + AROUND];
    let mut table = Table::default();
    let [up, taken, down, last]: [Arc<Outcome>; 4] = Default::default();
    let to = HostBytes::from(memory.as_mut_ptr().wrapping_add(AROUND));
    let Some(upload) = table.open_upload(cut, &up, &taken) else { return };
    let first = table.open_download(cut, to, Vec::new(), &down);
    table.open_download(cut, to, vec![first], &last);
    let source = vec![SENT; BYTES];
    for (step, frame) in data.chunks_exact(LaneHeader::SIZE).enumerate() {
        if step == 2 {
            table.start_upload(upload, HostBytes::from(source.as_ptr()), false);
        }
        if let Some(job) = table.next_job(None) {
            assert!(job.index < cut.count() && job.len <= cut.chunk());
            let mut scratch = Vec::new();
            // SAFETY: the table knows the upload, whose bytes are there.
            assert!(
                unsafe { job.from.read(job.len as usize, &mut scratch) }
                    .iter()
                    .all(|byte| *byte == SENT)
            );
            table.job_written(&job, step % 2 == 0);
        }
        let Some(Ok(header)) = frame.first_chunk().map(LaneHeader::decode) else { continue };
        let (transfer, index) = (header.transfer % 4, header.index);
        match header.kind {
            LaneKind::Chunk => match table.downloads.begin_chunk(transfer, index, header.len) {
                Some(Ok(Some(Room::Here(place)))) => {
                    assert!(down.get().is_none() || transfer != first, "bytes for what has ended");
                    assert!(
                        down.get().is_some() || transfer == first,
                        "bytes for memory of another"
                    );
                    // SAFETY: the memory is there.
                    unsafe { place.write(&vec![SENT; header.len as usize]) };
                    table.downloads.end_chunk(transfer, index, step % 3 != 0);
                }
                Some(Ok(Some(Room::Aside))) => {
                    let early =
                        table.downloads.put_aside(transfer, index, vec![SENT; header.len as usize]);
                    assert!(early.is_none() && down.get().is_none());
                }
                Some(Ok(None) | Err(_)) | None => break,
            },
            LaneKind::Grant => table.grant(transfer, index),
            LaneKind::Done => table.release(transfer, index == 0),
            LaneKind::Cancelled => table.downloads.cancel(transfer, index),
            LaneKind::Written => {
                assert!(table.downloads.written(transfer, index, header.len).is_none());
                break;
            }
            LaneKind::Answer
            | LaneKind::Acknowledge
            | LaneKind::Reached
            | LaneKind::Lend
            | LaneKind::Readable
            | LaneKind::Unstaged => break,
        }
        for Early { transfer, index, to, bytes } in table.downloads.take_free() {
            assert!(down.get().is_some() && last.get().is_none());
            // SAFETY: the memory is there.
            unsafe { to.write(&bytes) };
            table.downloads.end_chunk(transfer, index, true);
        }
        let _ = (table.take_measured(), table.known_to_be_done(1 + step as u64 % 2));
    }
    table.lose();
    assert!(memory[..AROUND].iter().chain(&memory[AROUND + BYTES..]).all(|byte| *byte == KEPT));
}
