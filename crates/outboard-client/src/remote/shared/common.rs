//! Memory that was made for another server's device, and kernels of this one are given.

use std::ops::Range;
use std::os::fd::AsFd;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, HostPtr, Result, UnifiedPtr};
use outboard_wire::messages as msg;
use parking_lot::Mutex;
use rustix::io::dup;

use super::mapped::extent;
use crate::host::Pinned;
use crate::mapped_file::MappedFile;
use crate::pager::{COMMON, Lent, Part, Tracked};
use crate::remote::Remote;
use crate::session::Session;

/// The servers that the process has connected to.
static REMOTES: Mutex<Vec<&'static Remote>> = Mutex::new(Vec::new());

impl Remote {
    /// Has kernels of this server in `ctx` use memory of another one's context `of`: page-locked
    /// memory, or managed memory.
    pub(crate) fn take_part_in(
        &'static self,
        ctx: ContextId,
        (owner, of): (&'static Remote, ContextId),
        address: UnifiedPtr,
    ) -> Result<()> {
        if self.has_part(address) {
            return Ok(());
        }
        // Streams that wait for other servers without this process's knowing what for would go on
        // before it has handed on what those write.
        let session = self.session()?;
        for (ctx, stream) in session.holds.waiting(session.progress()) {
            self.stream_synchronize(ctx, stream)?;
        }
        let _one_at_a_time = owner.mapping.lock();
        if self.has_part(address) {
            return Ok(());
        }
        if let Some(whole) = owner.pager.managed_region(address).or_else(|| COMMON.whole(address))
            && owner.host.find(address.host()).is_none()
        {
            self.open_mapped(ctx, &whole)?;
            let made = match COMMON.whole(address) {
                Some(_) => Ok(()),
                None => COMMON.take_over(owner.part(of), &whole, of),
            };
            return self.join(ctx, &whole, made);
        }
        let (base, pinned) =
            owner.host.find(address.host()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let whole = extent(base, &pinned);
        // Copies under way reach the memory as it is now.
        self.finish_copies_everywhere(base, pinned.bytes)?;
        if pinned.shared && self.take_file(ctx, owner, base, &pinned) {
            return Ok(());
        }
        self.open_mapped(ctx, &whole)?;
        let made = match pinned.mapped {
            _ if COMMON.whole(address).is_some() => Ok(()),
            // SAFETY: page-locked memory stays until it is freed or unregistered, which
            // `unmap_host` comes before.
            None => unsafe { COMMON.take_in(&whole, of) },
            Some(there) if pinned.shared => owner.lend(there, of, base, &pinned),
            Some(there) => COMMON.take_over(owner.part(there), &whole, of),
        };
        self.join(ctx, &whole, made)
    }

    /// Has a part in memory that has been opened and `made` common, or gives it up again.
    fn join(
        &'static self,
        ctx: ContextId,
        whole: &Range<UnifiedPtr>,
        made: Result<()>,
    ) -> Result<()> {
        made.and_then(|()| COMMON.add(whole, self.part(ctx))).inspect_err(|_| {
            let bytes = whole.end.since(whole.start);
            self.close_mapped(ctx, (whole.start, bytes), true);
        })
    }

    /// Whether kernels use memory that the program sees.
    pub(crate) fn tracks_memory(&self) -> bool {
        self.pager.is_active()
    }

    /// Whether kernels may be writing to memory that the program sees.
    pub(crate) fn has_pages_to_take_in(&self) -> bool {
        self.pager.is_active() && self.pager.is_busy()
    }

    /// What kernels have written is there for the program.
    pub(crate) fn take_in_pages(&self) {
        if self.pager.is_active() {
            self.pager.take_in();
        }
    }

    /// What the program and other servers' kernels have written is there for this server's.
    pub(crate) fn hand_on_pages(&self) {
        if self.pager.is_active() {
            self.pager.hand_on();
        }
    }

    fn has_part(&self, address: UnifiedPtr) -> bool {
        let has_it = self.host.find(address.host());
        has_it.is_some_and(|(_, pinned)| pinned.mapped.is_some())
            || (self.pager.is_active() && COMMON.has(self.server, address))
    }

    /// How much of the program's memory the program and the device both use. What other servers'
    /// kernels use becomes this one's, too: bytes that this process puts there or takes from there
    /// by itself could wait for pages that their servers have.
    pub(in crate::remote) fn tracked_on_host(
        &'static self,
        ctx: ContextId,
        host: HostPtr,
        bytes: u64,
    ) -> Result<Tracked> {
        if !self.pager.is_any_active() {
            return Ok(Tracked::None);
        }
        let tracked = self.tracked(host.unified(), bytes);
        if tracked != Tracked::None {
            return Ok(tracked);
        }
        let Some((owner, of)) = self.owner_of(host) else { return Ok(Tracked::None) };
        self.take_part_in(ctx, (owner, of), host.unified())?;
        Ok(self.tracked(host.unified(), bytes))
    }

    /// The server and the context to which page-locked memory belongs that other servers' kernels
    /// use.
    fn owner_of(&self, host: HostPtr) -> Option<(&'static Remote, ContextId)> {
        let remotes = REMOTES.lock();
        let others = remotes.iter().copied().filter(|other| other.server != self.server);
        let common = COMMON.owner(host.unified());
        others
            .filter_map(|other| {
                let (_, pinned) = other.host.find(host)?;
                let of = pinned.mapped.or(common)?;
                (!pinned.is_borrowed && (common.is_some() || !pinned.shared)).then_some((other, of))
            })
            .next()
    }

    /// Waits until no copy of any server reads or writes this page-locked memory, and has no adapter
    /// do so from here on: it would not see which pages are protected.
    pub(super) fn finish_copies_everywhere(&self, base: HostPtr, bytes: u64) -> Result<()> {
        let finish = |session: &Session| {
            session.finish_copies(base.pointer(), bytes as usize);
            session.link().lend_no_more(base.pointer());
        };
        finish(self.session()?);
        let others: Vec<_> =
            REMOTES.lock().iter().copied().filter(|other| other.server != self.server).collect();
        others.iter().filter_map(|other| other.session().ok()).for_each(|session| finish(session));
        Ok(())
    }

    /// Other servers may be asked for what this one has.
    pub(in crate::remote) fn is_there(&'static self) {
        let mut remotes = REMOTES.lock();
        if !remotes.iter().any(|other| std::ptr::eq(*other, self)) {
            remotes.push(self);
        }
    }

    /// This server, as one that has a part in memory by a context.
    pub(super) fn part(&'static self, ctx: ContextId) -> Part {
        Part { server: self.server, pager: &self.pager, ctx }
    }

    /// Has the worker have pages at these addresses.
    pub(super) fn open_mapped(&self, ctx: ContextId, whole: &Range<UnifiedPtr>) -> Result<()> {
        let bytes = whole.end.since(whole.start);
        self.call_idle(ctx, &msg::MappedOpen { address: whole.start, bytes }, |_| ())
    }

    /// Where the pages are that the worker of this server has of the program's memory.
    fn file_of(&self, base: HostPtr, pinned: &Pinned) -> Option<MappedFile> {
        let session = self.session().ok()?;
        if let Some(offset) = self.host.offset_in_file(base) {
            let file = dup(session.link().memory()?.pinned()).ok()?;
            return Some(MappedFile { file, offset, is_whole: false });
        }
        MappedFile::at(base.0..base.0 + pinned.bytes)
    }

    /// Has the worker use the pages themselves that the owner's has, if it is on this machine, too,
    /// and could read them anyway.
    fn take_file(
        &'static self,
        ctx: ContextId,
        owner: &'static Remote,
        base: HostPtr,
        pinned: &Pinned,
    ) -> bool {
        let Ok(session) = self.session() else { return false };
        let link = session.link();
        if !link.shares_files() {
            return false;
        }
        let Some(mapped) = owner.file_of(base, pinned) else { return false };
        let Ok(number) = link.give_file(mapped.file.as_fd()) else { return false };
        let (address, offset) = (base.unified(), mapped.offset);
        let whole = extent(base, pinned);
        let bytes = whole.end.since(whole.start);
        if self.call_idle(ctx, &msg::MappedFile { address, bytes, number, offset }, |_| ()).is_err()
        {
            return false;
        }
        self.host.borrow(ctx, base, bytes);
        self.host.set_shared(base, ctx);
        owner.lent.lock().entry(base).or_default().push(self);
        // Others that have pages of their own must be told what this one's kernels write.
        COMMON.whole(address).is_none_or(|whole| COMMON.add_same(&whole, self.part(ctx)).is_ok())
    }

    /// Memory whose pages this server and perhaps others have themselves becomes common with one
    /// that has pages of its own.
    fn lend(
        &'static self,
        there: ContextId,
        of: ContextId,
        base: HostPtr,
        pinned: &Pinned,
    ) -> Result<()> {
        let whole = extent(base, pinned);
        let mapped = self.file_of(base, pinned).ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        let mut to = vec![self.part(there)];
        for other in self.lent.lock().get(&base).into_iter().flatten() {
            // One that has given it up has no such entry any more.
            let found = other.host.find(base).and_then(|(_, pinned)| pinned.mapped);
            to.extend(found.map(|ctx| other.part(ctx)));
        }
        for part in &to {
            // What they have queued so far may use the memory, and nothing has counted it.
            part.pager.suspect_work(part.ctx);
        }
        COMMON.take_lent(&whole, of, Lent { file: mapped.file, offset: mapped.offset, to })
    }

    /// Page-locked memory of this server goes: other servers do not have it any more. If it is to be
    /// kept, the program has what their kernels have written.
    pub(super) fn end_common(&self, base: HostPtr, pinned: &Pinned, keep: bool) {
        COMMON.remove(&extent(base, pinned), keep);
        let lent = self.lent.lock().remove(&base);
        lent.into_iter().flatten().for_each(|other| other.unmap_host(base, true));
    }
}
