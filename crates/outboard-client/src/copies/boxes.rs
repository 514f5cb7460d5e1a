//! Copies of boxes: host memory in rows travels packed, and only the bytes of the box.

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, CopyMode, HostPtr, Result, StreamId};
use outboard_wire::Reader;
use outboard_wire::boxes::{Extent, Layout, Region};
use outboard_wire::limits::MAX_INLINE;
use outboard_wire::messages as msg;

use super::fetches::Fetches;
use super::staged::HostCopy;
use super::{chunk_of_rows, pieces, range};
use crate::link::bulk::Direction::{self, Down, Up};
use crate::link::bulk::Place;
use crate::session::Session;

/// Rows of a box in the program's memory.
#[derive(Clone, Copy)]
pub(crate) struct HostBox {
    pub(crate) address: HostPtr,
    pub(crate) layout: Layout,
}

impl Session {
    /// A chunk size for a part of a box, of `bytes`.
    fn rows(&self, direction: Direction, bytes: u64, extent: Extent) -> u32 {
        chunk_of_rows(self.link().chunk(direction, bytes), extent.width)
    }

    /// Copies a box to the device.
    ///
    /// # Safety
    /// As of `BoxCopies::copy_box`.
    pub(crate) unsafe fn copy_box_in(
        &self,
        ctx: ContextId,
        dst: Region,
        src: HostBox,
        extent: Extent,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        let (total, span) = sizes(extent, src.layout)?;
        let address = src.address.pointer::<u8>();
        let host = range(address, span);
        let late = self.source_comes_late(&host, mode);
        if !late {
            self.settle_source(ctx, &host, stream, mode)?;
        }
        if !late && total <= MAX_INLINE as u64 {
            let mut data = Vec::with_capacity(total as usize);
            for (offset, bytes) in extent.rows(src.layout) {
                // SAFETY: by the contract above, within the span of the box.
                data.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(address.add(offset as usize).cast_const(), bytes as usize)
                });
            }
            return self.post_to(ctx, stream, &msg::CopyBoxIn { dst, extent, stream, data: &data });
        }
        let place = Place::rows(address, extent, src.layout);
        let copy = HostCopy { direction: Up, device: dst, extent, host: place, stream, mode };
        // SAFETY: by the contract above.
        if let Some(copied) = unsafe { self.copy_staged(ctx, &copy) } {
            return copied;
        }
        let mut last = None;
        for piece in pieces(total, extent.width) {
            let (from, bytes) = (piece.start, piece.end - piece.start);
            let expected = if late { Some(self.link().expect()?) } else { None };
            let upload = self.link().upload(bytes, self.rows(Up, bytes, extent))?;
            let (transfer, chunk) = (upload.number(), upload.chunk());
            let message = msg::CopyBoxInBulk { dst, extent, stream, from, bytes, transfer, chunk, late };
            if let Some(expected) = expected {
                // SAFETY: by the contract above; page-locked memory stays until `finish_copies`.
                unsafe { self.send_late((ctx, stream), upload, place.at(from), host.clone(), expected) };
                self.late.queued(transfer, self.post_counted(ctx, stream, &message)?);
                continue;
            }
            let seq = self.post_counted(ctx, stream, &message)?;
            // SAFETY: by the contract above; page-locked memory stays until `finish_copies`.
            last = unsafe { self.send((ctx, stream, seq), upload, place.at(from), host.clone(), mode)? };
        }
        self.taken(ctx, stream, last)
    }

    /// Copies a box to the host.
    ///
    /// # Safety
    /// As of `BoxCopies::copy_box`.
    pub(crate) unsafe fn copy_box_out(
        &self,
        ctx: ContextId,
        dst: HostBox,
        src: Region,
        extent: Extent,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        let (total, span) = sizes(extent, dst.layout)?;
        let address = dst.address.pointer::<u8>();
        if total <= MAX_INLINE as u64 && mode != CopyMode::Pinned {
            let (seq, payload) = self.wait(ctx, &msg::CopyBoxOut { src, extent, stream })?;
            self.progress().stream_done(ctx, stream, seq);
            let reply: msg::CopyBoxOutReply<'_> =
                Reader::new(&payload).get().map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
            if reply.data.len() as u64 != total {
                return Err(CUresult::CUDA_ERROR_UNKNOWN);
            }
            for ((offset, bytes), row) in extent.rows(dst.layout).zip(reply.data.chunks(extent.width as usize)) {
                // SAFETY: by the contract above, within the span of the box; rows of the answer have its width.
                unsafe { core::ptr::copy_nonoverlapping(row.as_ptr(), address.add(offset as usize), bytes as usize) };
            }
            return Ok(());
        }
        let place = Place::rows(address, extent, dst.layout);
        let copy = HostCopy { direction: Down, device: src, extent, host: place, stream, mode };
        // SAFETY: by the contract above.
        if let Some(copied) = unsafe { self.copy_staged(ctx, &copy) } {
            return copied;
        }
        let mut fetches = Fetches::new(self, ctx, stream, mode, &range(address, span));
        for piece in pieces(total, extent.width) {
            let (from, bytes) = (piece.start, piece.end - piece.start);
            // SAFETY: by the contract above; page-locked memory stays until `finish_copies`.
            let fetch =
                unsafe { fetches.open(place.at(from), range(address, span), bytes, self.rows(Down, bytes, extent)) }?;
            let (transfer, chunk) = (fetch.ticket.number(), fetch.ticket.chunk());
            let message = msg::CopyBoxOutBulk { src, extent, stream, from, bytes, transfer, chunk };
            fetches.start(&message, fetch)?;
        }
        fetches.finish()
    }
}

/// Bytes of a box, and from its first to behind its last byte.
fn sizes(extent: Extent, layout: Layout) -> Result<(u64, u64)> {
    extent.bytes().zip(layout.span(extent)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::bulk::suggested_chunk;
    use outboard_session::chunks::Cut;
    use proptest::prelude::*;

    proptest! {
        /// Whatever its rows, a box can be cut, and chunks of whole rows are not tiny.
        #[test]
        fn every_box_can_be_cut(bytes in 65_537u64..(128 << 20), width in 1u64..(64 << 20)) {
            let suggested = suggested_chunk(bytes);
            let chunk = chunk_of_rows(suggested, width);
            prop_assert!(Cut::new(bytes, chunk).is_ok());
            prop_assert!(u64::from(chunk).is_multiple_of(width) || chunk == suggested);
        }
    }
}
