//! Copies to the device whose bytes go on lanes.

use std::ops::Range;

use outboard_front::backend::{ContextId, CopyMode, HostPtr, Result};
use outboard_front::profile;
use outboard_wire::messages as msg;

use super::description::{HostCopy, Sizes};
use super::under_way::Transfer;
use super::{chunk_of_rows, pieces};
use crate::link::bulk::{Direction, HostBytes};
use crate::link::{Sent, Upload};
use crate::session::Session;

/// One transfer of a copy, which is about to be announced.
struct Piece<'a> {
    upload: Upload<'a>,
    place: HostBytes,
    host: Range<HostPtr>,
    /// The first of its packed bytes, and how many they are.
    from: u64,
    bytes: u64,
}

impl Session {
    /// Whether work queued before a copy may still write its source and the client must not wait
    /// for that work.
    pub(super) fn source_is_written_before(&self, host: &Range<HostPtr>, mode: CopyMode) -> bool {
        mode == CopyMode::Pinned
            && (self.functions.are_waiting()
                || self.holds.are_any(self.progress())
                || self.copies.is_download_under_way(host))
    }

    /// Waits for what may still write the source of a copy whose bytes are read now, and not when
    /// the stream comes to it.
    pub(super) fn settle_source(
        &self,
        ctx: ContextId,
        copy: &HostCopy,
        host: &Range<HostPtr>,
    ) -> Result<()> {
        let may_be_written = || self.functions.are_waiting() || self.holds.are_any(self.progress());
        if copy.mode == CopyMode::Synchronous && may_be_written() {
            // One of the functions, or another server, may write what is copied.
            self.wait(ctx, &msg::StreamSynchronize { stream: copy.stream })?;
        }
        profile::stalled(|| self.copies.wait_for_downloads(host));
        Ok(())
    }

    /// Announces the transfers of a copy and sends their bytes; if they come `late`, when the
    /// worker asks for them. If they may be `staged`, those that find room in shared memory do not
    /// go on lanes.
    ///
    /// # Safety
    /// The program's memory is readable as `copy.mode` says.
    pub(super) unsafe fn copy_up(
        &self,
        ctx: ContextId,
        copy: &HostCopy,
        sizes: Sizes,
        (staged, late): (bool, bool),
    ) -> Result<()> {
        let (mut last, mut is_queued) = (None, false);
        for piece in pieces(sizes.bytes, copy.extent.width) {
            // SAFETY: by the contract above.
            if staged && unsafe { self.copy_in_background(ctx, copy, sizes, piece.clone()) }? {
                continue;
            }
            let (from, bytes) = (piece.start, piece.end - piece.start);
            let is_asynchronous = copy.mode == CopyMode::Pinned;
            let chunk = self.link().chunk(Direction::Up, bytes, is_asynchronous);
            let chunk = chunk_of_rows(chunk, copy.extent.width);
            let (place, host) = (copy.place().at(from), copy.host_range(sizes, from, bytes));
            let upload = match self.link().needs_no_staging(&place, bytes) {
                true => None,
                false => self.link().upload(bytes, chunk)?,
            };
            is_queued |= upload.is_none();
            let piece = |upload| Piece { upload, place, host, from, bytes };
            match upload {
                Some(upload) if late => {
                    // SAFETY: by the contract above; page-locked memory stays until
                    // `finish_copies`.
                    unsafe { self.send_late(ctx, copy, piece(upload), false) }?;
                }
                Some(upload) => {
                    // SAFETY: as above; other memory stays until this returns.
                    last = unsafe { self.send(ctx, copy, piece(upload)) }?;
                }
                None => {
                    let upload = self.link().upload_queued(bytes, chunk)?;
                    // SAFETY: as above.
                    unsafe { self.send_late(ctx, copy, piece(upload), true) }?;
                }
            }
        }
        if is_queued && copy.mode != CopyMode::Pinned {
            // The bytes are read when the stream comes to them.
            let done = self.wait(ctx, &msg::StreamSynchronize { stream: copy.stream });
            self.copies.wait_for_all(&copy.host.range(sizes.span));
            done?;
        }
        self.taken(ctx, copy, last)
    }

    /// Sends the bytes of a transfer now. The caller waits for the result when all of the copy has
    /// been sent.
    ///
    /// # Safety
    /// As of [`Session::copy_up`].
    unsafe fn send(
        &self,
        ctx: ContextId,
        copy: &HostCopy,
        piece: Piece<'_>,
    ) -> Result<Option<Sent>> {
        let Piece { upload, place, host, from, bytes } = piece;
        let (transfer, chunk) = (upload.number(), upload.chunk());
        let HostCopy { device: dst, extent, stream, mode, .. } = *copy;
        let message =
            msg::CopyBoxInBulk { dst, extent, stream, from, bytes, transfer, chunk, late: false };
        let seq = match mode {
            CopyMode::Pinned => self.post_counted(ctx, stream, &message),
            // This thread sends the bytes, too.
            CopyMode::Synchronous | CopyMode::Pageable => self.send_counted(ctx, stream, &message),
        }?;
        match mode {
            CopyMode::Pinned => {
                let order = (self.progress().outstanding(), ctx, stream);
                // SAFETY: by the contract above.
                let ticket = unsafe { upload.send_in_background(place) };
                self.copies.upload(host, Transfer::Lanes(ticket), order).is(seq);
                Ok(None)
            }
            CopyMode::Synchronous => {
                // SAFETY: by the contract above; what is returned is dropped when the device has
                // the bytes, or after a failure.
                Ok(Some(profile::stalled(|| unsafe { upload.send_and_keep(place) })?))
            }
            CopyMode::Pageable => {
                // SAFETY: by the contract above.
                let sent = profile::stalled(|| unsafe { upload.send(place) })?;
                // The device need not have them.
                drop(sent);
                Ok(None)
            }
        }
    }

    /// Waits until the device has taken the last transfer of a synchronous copy. Those before it
    /// are in the same stream.
    fn taken(&self, ctx: ContextId, copy: &HostCopy, last: Option<Sent>) -> Result<()> {
        match last.map(|last| profile::waited(|| last.wait())) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.cause(ctx, copy.stream, error.into())),
        }
    }

    /// Sends the bytes of a transfer when the worker asks for them; `queued` if it has no staging
    /// memory.
    ///
    /// # Safety
    /// As of [`Session::copy_up`].
    unsafe fn send_late(
        &self,
        ctx: ContextId,
        copy: &HostCopy,
        piece: Piece<'_>,
        queued: bool,
    ) -> Result<()> {
        let HostCopy { device: dst, extent, stream, .. } = *copy;
        let Piece { upload, place, host, from, bytes } = piece;
        let (transfer, chunk, expected) = (upload.number(), upload.chunk(), self.link().expect()?);
        // SAFETY: by the contract above.
        let (ticket, later) = unsafe { upload.later(place) };
        let order = (self.progress().outstanding(), ctx, stream);
        // Known before it is posted: another thread may read at once that the worker asks.
        let upload = self.copies.upload(host, Transfer::Lanes(ticket), order);
        self.late.add(upload, later, expected);
        let seq = if queued {
            self.post_counted(
                ctx,
                stream,
                &msg::CopyBoxInQueued { dst, extent, stream, from, bytes, transfer, chunk },
            )
        } else {
            let message = msg::CopyBoxInBulk {
                dst,
                extent,
                stream,
                from,
                bytes,
                transfer,
                chunk,
                late: true,
            };
            self.post_counted(ctx, stream, &message)
        }?;
        self.late.queued(transfer, seq);
        Ok(())
    }
}
