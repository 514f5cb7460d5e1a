//! Copies to the host whose bytes come on lanes.

use std::collections::VecDeque;
use std::ops::Range;

use outboard_front::backend::{ContextId, CopyMode, HostPtr, Result};
use outboard_front::profile;
use outboard_wire::messages as msg;

use super::description::{HostCopy, Sizes};
use super::under_way::{Aside, Earlier, Transfer};
use super::{chunk_of_rows, pieces};
use crate::link::Ticket;
use crate::link::bulk::{Direction, HostBytes};
use crate::session::Session;

/// The transfers of one copy that is waited for. While the bytes of one come, the device copies the
/// next. Dropped, it waits: the memory is the program's.
struct Awaited(VecDeque<Ticket>);

impl Drop for Awaited {
    fn drop(&mut self) {
        for ticket in &self.0 {
            let _ = ticket.wait();
        }
    }
}

impl Session {
    /// Announces the transfers of a copy, and waits for their bytes unless the program does so
    /// itself. If they may be `staged`, those that find room in shared memory do not go on lanes.
    ///
    /// # Safety
    /// The program's memory is writable as `copy.mode` says.
    pub(super) unsafe fn copy_down(
        &self,
        ctx: ContextId,
        copy: &HostCopy,
        sizes: Sizes,
        staged: bool,
    ) -> Result<()> {
        let HostCopy { device: src, extent, stream, .. } = *copy;
        let mut awaited = Awaited(VecDeque::new());
        for piece in pieces(sizes.bytes, extent.width) {
            let (from, bytes) = (piece.start, piece.end - piece.start);
            let is_asynchronous = copy.mode == CopyMode::Pinned;
            let chunk = self.link().chunk(Direction::Down, bytes, is_asynchronous);
            let chunk = chunk_of_rows(chunk, extent.width);
            let (place, host) = (copy.place().at(from), copy.host_range(sizes, from, bytes));
            if copy.mode == CopyMode::Pinned {
                // SAFETY: by the contract above.
                if staged && unsafe { self.copy_in_background(ctx, copy, sizes, piece) }? {
                    continue;
                }
                // SAFETY: by the contract above; page-locked memory stays until `finish_copies`.
                unsafe { self.fetch(ctx, copy, (place, host), (from, bytes, chunk)) }?;
                continue;
            }
            // SAFETY: by the contract above; what is awaited has ended when this returns.
            let ticket = unsafe { self.link().download(place, bytes, chunk, Vec::new()) }?;
            let (transfer, chunk) = (ticket.number(), ticket.chunk());
            // It ends with the link if this fails.
            awaited.0.push_back(ticket);
            let message = msg::CopyBoxOutBulk { src, extent, stream, from, bytes, transfer, chunk };
            self.send_counted(ctx, stream, &message)?;
            if awaited.0.len() > 1 {
                self.come(ctx, copy, &mut awaited)?;
            }
        }
        while !awaited.0.is_empty() {
            self.come(ctx, copy, &mut awaited)?;
        }
        Ok(())
    }

    /// Waits for the first transfer.
    fn come(&self, ctx: ContextId, copy: &HostCopy, awaited: &mut Awaited) -> Result<()> {
        match awaited.0.pop_front().map(|ticket| profile::waited(|| ticket.wait())) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.cause(ctx, copy.stream, error.into())),
        }
    }

    /// Announces a transfer whose bytes come in the background.
    ///
    /// # Safety
    /// The memory at `place`, which lies in `host`, is writable until `finish_copies`.
    unsafe fn fetch(
        &self,
        ctx: ContextId,
        copy: &HostCopy,
        (place, host): (HostBytes, Range<HostPtr>),
        (from, bytes, chunk): (u64, u64, u32),
    ) -> Result<()> {
        let HostCopy { device: src, extent, stream, .. } = *copy;
        let Earlier { on_lanes, staged, elsewhere } =
            self.copies.earlier_downloads(&host, ctx, stream);
        let aside = elsewhere || !staged.is_empty();
        let mut aside = aside.then(|| Aside::new(place, bytes));
        let to = aside.as_mut().map_or(place, Aside::first);
        // SAFETY: by the contract above; what is put aside lives as long as its ticket.
        let ticket = unsafe { self.link().download(to, bytes, chunk, on_lanes) }?;
        let (transfer, chunk) = (ticket.number(), ticket.chunk());
        // Known before it is posted: another thread may read at once that the device has done it.
        let order = (self.progress().outstanding(), ctx, stream);
        let queued = self.copies.download(host, Transfer::Lanes(ticket), aside, order);
        let message = msg::CopyBoxOutBulk { src, extent, stream, from, bytes, transfer, chunk };
        queued.is(self.post_counted(ctx, stream, &message)?);
        Ok(())
    }
}
