//! The transfers of a copy to the device.

use std::ops::Range;

use outboard_front::backend::{ContextId, CopyMode, HostPtr, Result, StreamId};
use outboard_front::profile;
use outboard_wire::messages as msg;

use crate::link::bulk::Place;
use crate::link::{Expectation, Sent, Upload};
use crate::session::Session;

impl Session {
    /// Whether something queued before a copy may still write its source, which nobody may wait for.
    pub(super) fn source_comes_late(&self, host: &Range<HostPtr>, mode: CopyMode) -> bool {
        mode == CopyMode::Pinned && (self.functions.are_waiting() || self.copies.is_download_under_way(host))
    }

    /// Waits for what may still write the source of a copy whose bytes are read now, and not when the stream comes to it.
    pub(super) fn settle_source(
        &self,
        ctx: ContextId,
        host: &Range<HostPtr>,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        if mode == CopyMode::Synchronous && self.functions.are_waiting() {
            // One of the functions may write what is copied.
            self.wait(ctx, &msg::StreamSynchronize { stream })?;
        }
        profile::stalled(|| self.copies.wait_for_downloads(host));
        Ok(())
    }

    /// Sends the bytes of a transfer that has been announced by command `seq`. What is returned is to be waited for when all of the copy has been sent.
    ///
    /// # Safety
    /// The bytes are readable until this returns and what it returns is dropped, or until `finish_copies` if they are page-locked.
    pub(super) unsafe fn send(
        &self,
        (ctx, stream, seq): (ContextId, StreamId, u64),
        upload: Upload<'_>,
        from: Place,
        host: Range<HostPtr>,
        mode: CopyMode,
    ) -> Result<Option<Sent>> {
        if mode == CopyMode::Pinned {
            let order = (self.progress().outstanding(), ctx, stream);
            // SAFETY: by the contract above.
            self.copies.upload(host, unsafe { upload.send_in_background(from) }, order).is(seq);
            return Ok(None);
        }
        if mode == CopyMode::Synchronous {
            // SAFETY: by the contract above; what is returned is dropped when the device has the bytes, or after a failure.
            let sent = profile::stalled(|| unsafe { upload.send_and_keep(from) })?;
            return Ok(Some(sent));
        }
        // SAFETY: by the contract above.
        let sent = profile::stalled(|| unsafe { upload.send(from) })?;
        // The device need not have them.
        drop(sent);
        Ok(None)
    }

    /// Waits until the device has taken the last transfer of a copy, if somebody waits for it. Those before it are in the same stream.
    pub(super) fn taken(&self, ctx: ContextId, stream: StreamId, last: Option<Sent>) -> Result<()> {
        match last.map(|last| profile::waited(|| last.wait())) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.cause(ctx, stream, error.into())),
        }
    }

    /// Sends the bytes at `from` when the worker asks for them; the command that announces the transfer must follow, and then `late.queued`.
    ///
    /// # Safety
    /// The bytes are readable until the transfer has ended.
    pub(super) unsafe fn send_late(
        &self,
        (ctx, stream): (ContextId, StreamId),
        upload: Upload<'_>,
        from: Place,
        host: Range<HostPtr>,
        expected: Expectation,
    ) {
        // SAFETY: by the contract above.
        let (ticket, later) = unsafe { upload.later(from) };
        let queued = self.copies.upload(host, ticket, (self.progress().outstanding(), ctx, stream));
        self.late.add(queued, later, expected);
    }
}
