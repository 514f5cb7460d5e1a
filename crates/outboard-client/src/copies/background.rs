//! Asynchronous copies through memory that the server's worker shares. Threads of this process
//! continue them beside the program ([`crate::link::staged`]). Flags in that memory show the
//! device's progress, so that a thread that has waited for the stream knows without a message from
//! the worker for which bytes it still has to wait.

use std::ops::Range;

use outboard_front::backend::{ContextId, Result};
use outboard_front::profile;
use outboard_wire::messages as msg;

use super::chunk_of_rows;
use super::description::{HostCopy, Sizes};
use super::under_way::Transfer;
use crate::link::bulk::Direction;
use crate::link::staged::chunk;
use crate::session::Session;

/// Up to so many bytes are copied to shared memory by the thread that makes the call: in less time
/// than another takes to wake up.
const AT_ONCE: u64 = 128 << 10;

impl Session {
    /// Queues one transfer of an asynchronous copy, if it can go through shared memory now. Whether
    /// it could.
    ///
    /// # Safety
    /// The program's memory is valid until `finish_copies`.
    pub(super) unsafe fn copy_in_background(
        &self,
        ctx: ContextId,
        copy: &HostCopy,
        sizes: Sizes,
        piece: Range<u64>,
    ) -> Result<bool> {
        let HostCopy { direction, device, extent, stream, .. } = *copy;
        let (from, bytes) = (piece.start, piece.end - piece.start);
        let chunk = chunk_of_rows(chunk(bytes), extent.width);
        let (place, host) = (copy.place().at(from), copy.host_range(sizes, from, bytes));
        let to_device = direction == Direction::Up;
        let mut behind = Vec::new();
        if !to_device {
            let earlier = self.copies.earlier_downloads(&host, ctx, stream);
            if earlier.elsewhere || !earlier.on_lanes.is_empty() {
                // On lanes, a copy waits for the copies before it.
                return Ok(false);
            }
            behind = earlier.staged;
        }
        // SAFETY: by the contract above.
        let opened = unsafe {
            self.link().stage_in_background(direction, place, (bytes, chunk), (ctx, stream), behind)
        }?;
        let Some(transfer) = opened else { return Ok(false) };
        if to_device && bytes <= AT_ONCE {
            transfer.fill();
        }
        // Known before it is posted: another thread may learn at once that the device has done it.
        let order = (self.progress().outstanding(), ctx, stream);
        let ticket = transfer.ticket().filter(|ticket| !ticket.has_ended()).map(Transfer::Staged);
        let queued = ticket.map(|ticket| match direction {
            Direction::Up => self.copies.upload(host, ticket, order),
            Direction::Down => self.copies.download(host, ticket, None, order),
        });
        let (chunk, at) = (transfer.chunk(), transfer.at());
        let message = msg::CopyStaged { device, extent, to_device, stream, from, bytes, chunk, at };
        let seq = self.post_counted(ctx, stream, &message)?;
        if let Some(queued) = queued {
            queued.is(seq);
        }
        transfer.start();
        if profile::is_on() {
            let (up, down) = if to_device { (bytes, 0) } else { (0, bytes) };
            profile::moved(up, down);
        }
        Ok(true)
    }
}
