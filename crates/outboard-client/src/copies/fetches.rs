//! The transfers of a copy to the host.

use std::collections::VecDeque;
use std::ops::Range;

use outboard_front::backend::{ContextId, CopyMode, HostPtr, Result, StreamId};
use outboard_front::profile;
use outboard_wire::messages as msg;

use super::under_way::Aside;
use crate::link::Ticket;
use crate::link::bulk::Place;
use crate::session::Session;

/// The transfers of one copy to the host. While the bytes of one come, the device copies the next. Dropped, it waits: the memory is the program's.
pub(super) struct Fetches<'a> {
    session: &'a Session,
    ctx: ContextId,
    stream: StreamId,
    mode: CopyMode,
    under_way: VecDeque<Ticket>,
    /// An earlier copy to the same memory is under way, and this one is not waited for.
    overtakes: bool,
}

/// A transfer that is about to be announced.
pub(super) struct Fetch {
    pub(super) ticket: Ticket,
    host: Range<HostPtr>,
    aside: Option<Aside>,
}

impl<'a> Fetches<'a> {
    /// For a copy to the memory at `host`.
    pub(super) fn new(
        session: &'a Session,
        ctx: ContextId,
        stream: StreamId,
        mode: CopyMode,
        host: &Range<HostPtr>,
    ) -> Fetches<'a> {
        let overtakes = mode == CopyMode::Pinned && session.copies.is_download_under_way(host);
        Fetches { session, ctx, stream, mode, under_way: VecDeque::new(), overtakes }
    }

    /// Opens a transfer of `len` bytes to `place`, which lies in `host`.
    ///
    /// # Safety
    /// As of [`Link::download`].
    pub(super) unsafe fn open(&self, place: Place, host: Range<HostPtr>, len: u64, chunk: u32) -> Result<Fetch> {
        let mut aside = self.overtakes.then(|| Aside::new(place, len));
        let to = aside.as_mut().map_or(place, Aside::first);
        // SAFETY: by the contract above; what is put aside lives as long as its ticket.
        let ticket = unsafe { self.session.link().download(to, len, chunk) }?;
        Ok(Fetch { ticket, host, aside })
    }

    /// Announces a transfer.
    pub(super) fn start(&mut self, message: &impl msg::Message, fetch: Fetch) -> Result<()> {
        let Fetch { ticket, host, aside } = fetch;
        if self.mode == CopyMode::Pinned {
            // Known before it is posted: another thread may read at once that the device has done it.
            let order = (self.session.progress().outstanding(), self.ctx, self.stream);
            let queued = self.session.copies.download(host, ticket, aside, order);
            queued.is(self.session.post_counted(self.ctx, self.stream, message)?);
            return Ok(());
        }
        self.session.post_to(self.ctx, self.stream, message)?;
        self.under_way.push_back(ticket);
        self.session.link().flush()?;
        if self.under_way.len() > 1 { self.wait() } else { Ok(()) }
    }

    /// Waits for the bytes of those under way.
    pub(super) fn finish(mut self) -> Result<()> {
        while !self.under_way.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits for the first one.
    fn wait(&mut self) -> Result<()> {
        match self.under_way.pop_front().map(|ticket| profile::waited(|| ticket.wait())) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.session.cause(self.ctx, self.stream, error.into())),
        }
    }
}

impl Drop for Fetches<'_> {
    fn drop(&mut self) {
        for ticket in &self.under_way {
            let _ = ticket.wait();
        }
    }
}
