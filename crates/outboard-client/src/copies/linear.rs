//! Copies of bytes in one piece.

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, CopyMode, DevicePtr, Result, StreamId};
use outboard_front::profile;
use outboard_wire::Reader;
use outboard_wire::limits::MAX_INLINE;
use outboard_wire::messages as msg;

use super::fetches::Fetches;
use super::staged::HostCopy;
use super::{pieces, range};
use crate::link::bulk::Direction::{Down, Up};
use crate::link::bulk::Place;
use crate::session::Session;

impl Session {
    /// # Safety
    /// As of `Backend::copy_to_device`.
    pub(crate) unsafe fn copy_to_device(
        &self,
        ctx: ContextId,
        dst: DevicePtr,
        src: *const u8,
        bytes: u64,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        let host = range(src, bytes);
        if self.source_comes_late(&host, mode) {
            // SAFETY: by the contract above.
            return unsafe { self.copy_to_device_late(ctx, dst, src, bytes, stream) };
        }
        self.settle_source(ctx, &host, stream, mode)?;
        if bytes <= MAX_INLINE as u64 {
            // SAFETY: by the contract above.
            let data = unsafe { std::slice::from_raw_parts(src, bytes as usize) };
            return self.post_to(ctx, stream, &msg::CopyIn { dst, stream, data });
        }
        let copy = HostCopy::linear(Up, dst, Place::from(src), bytes, stream, mode);
        // SAFETY: by the contract above.
        if let Some(copied) = unsafe { self.copy_staged(ctx, &copy) } {
            return copied;
        }
        let mut last = None;
        for piece in pieces(bytes, 1) {
            let (at, len) = (piece.start, piece.end - piece.start);
            let upload = self.link().upload(len, self.link().chunk(Up, len))?;
            let (transfer, chunk) = (upload.number(), upload.chunk());
            let message = msg::CopyInBulk { dst: dst.offset(at), stream, bytes: len, transfer, chunk };
            let seq = self.post_counted(ctx, stream, &message)?;
            // SAFETY: by the contract above; page-locked memory stays until `finish_copies`.
            unsafe {
                let from = src.add(at as usize);
                last = self.send((ctx, stream, seq), upload, from.into(), range(from, len), mode)?;
            }
        }
        self.taken(ctx, stream, last)
    }

    /// A copy from page-locked memory that something before it in the stream may still write.
    ///
    /// # Safety
    /// As of `Backend::copy_to_device`.
    unsafe fn copy_to_device_late(
        &self,
        ctx: ContextId,
        dst: DevicePtr,
        src: *const u8,
        bytes: u64,
        stream: StreamId,
    ) -> Result<()> {
        for piece in pieces(bytes, 1) {
            let (at, len) = (piece.start, piece.end - piece.start);
            let expected = self.link().expect()?;
            let upload = self.link().upload(len, self.link().chunk(Up, len))?;
            let (transfer, chunk) = (upload.number(), upload.chunk());
            // SAFETY: by the contract above; page-locked memory stays until `finish_copies`.
            let from = unsafe { src.add(at as usize) };
            // SAFETY: as above.
            unsafe { self.send_late((ctx, stream), upload, from.into(), range(from, len), expected) };
            let message = msg::CopyInLate { dst: dst.offset(at), stream, bytes: len, transfer, chunk };
            self.late.queued(transfer, self.post_counted(ctx, stream, &message)?);
        }
        Ok(())
    }

    /// # Safety
    /// As of `Backend::copy_to_host`.
    pub(crate) unsafe fn copy_to_host(
        &self,
        ctx: ContextId,
        dst: *mut u8,
        src: DevicePtr,
        bytes: u64,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        if bytes <= MAX_INLINE as u64 && mode != CopyMode::Pinned {
            let (seq, payload) = self.wait(ctx, &msg::CopyOut { src, stream, bytes: bytes as u32 })?;
            // The answer is what a wait behind the copy would have brought.
            self.progress().stream_done(ctx, stream, seq);
            let reply: msg::CopyOutReply<'_> = Reader::new(&payload).get().map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
            if reply.data.len() as u64 != bytes {
                return Err(CUresult::CUDA_ERROR_UNKNOWN);
            }
            // SAFETY: by the contract above, and the lengths agree.
            unsafe { core::ptr::copy_nonoverlapping(reply.data.as_ptr(), dst, reply.data.len()) };
            return Ok(());
        }
        let copy = HostCopy::linear(Down, src, Place::from(dst), bytes, stream, mode);
        // SAFETY: by the contract above.
        if let Some(copied) = unsafe { self.copy_staged(ctx, &copy) } {
            return copied;
        }
        let mut fetches = Fetches::new(self, ctx, stream, mode, &range(dst, bytes));
        for piece in pieces(bytes, 1) {
            let (at, len) = (piece.start, piece.end - piece.start);
            // SAFETY: `pieces` lie within the copy.
            let to = unsafe { dst.add(at as usize) };
            // SAFETY: by the contract above; page-locked memory stays until `finish_copies`, other memory until `fetches` is gone.
            let fetch = unsafe { fetches.open(Place::from(to), range(to, len), len, self.link().chunk(Down, len)) }?;
            let (transfer, chunk) = (fetch.ticket.number(), fetch.ticket.chunk());
            fetches.start(&msg::CopyOutBulk { src: src.offset(at), stream, bytes: len, transfer, chunk }, fetch)?;
        }
        fetches.finish()
    }

    /// Copies device memory to the host, likewise.
    ///
    /// # Safety
    /// `dst` is writable for `bytes`.
    pub(crate) unsafe fn bring(
        &self,
        ctx: ContextId,
        dst: *mut u8,
        src: DevicePtr,
        bytes: u64,
        stream: StreamId,
    ) -> Result<()> {
        for piece in pieces(bytes, 1) {
            let (at, len) = (piece.start, piece.end - piece.start);
            // SAFETY: by the contract above; the transfer ends before this returns.
            let ticket = unsafe { self.link().download(dst.add(at as usize), len, self.link().chunk(Down, len))? };
            let (transfer, chunk) = (ticket.number(), ticket.chunk());
            self.post_to(ctx, stream, &msg::CopyOutBulk { src: src.offset(at), stream, bytes: len, transfer, chunk })?;
            self.link().flush()?;
            profile::waited(|| ticket.wait())?;
        }
        Ok(())
    }
}
