//! A range of memory that kernels of several servers use, and the rule by which its bytes move.
//!
//! The program's pages are where all meet. What a server has is its mirror, with a *twin*: what it
//! had when it was last asked or told. Bytes that differ from the twin are new: on the server,
//! those that its kernels have written; here, those that the program or other servers' kernels
//! have. Each word moves on its own, so that several sides may write to different words of a page.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use outboard_front::backend::{ContextId, Result, ServerId, UnifiedPtr};

use super::memory::Memory;
use super::mirror::{Mirror, bytes};
use crate::pager::glimpse::{GLIMPSE, GLIMPSES};
use crate::pager::pages::{Access, page_bytes};
use crate::pager::region::{Ahead, MOST_OPENED, Opens};
use crate::pager::store::Kind;

/// Servers with work that no wait has covered yet.
pub(super) type Working = BTreeSet<ServerId>;

/// A range of whole pages, or less than one.
pub(super) struct Region {
    pub(super) base: UnifiedPtr,
    bytes: usize,
    pub(super) memory: Memory,
    /// What the program may do with each page.
    access: Vec<Access>,
    pub(super) mirrors: Vec<Mirror>,
    /// The context that the memory is of.
    pub(super) owner: ContextId,
    /// What was opened on servers: this region and those beside it.
    pub(super) whole: Range<UnifiedPtr>,
    ahead: Ahead,
    seed: u64,
    /// When it is to be looked at, while servers work.
    pub(super) due: Option<Instant>,
}

impl Region {
    /// A region that no server has yet. Of whole pages none is open.
    pub(super) fn new(
        base: UnifiedPtr,
        bytes: usize,
        memory: Memory,
        (owner, whole): (ContextId, Range<UnifiedPtr>),
        seed: u64,
    ) -> Region {
        let closed = if memory.is_protectable() { Access::None } else { Access::Write };
        let access = vec![closed; bytes.div_ceil(page_bytes() as usize)];
        let (mirrors, ahead, due) = (Vec::new(), Ahead::default(), None);
        Region { base, bytes, memory, access, mirrors, owner, whole, ahead, seed, due }
    }

    pub(super) fn range(&self) -> Range<UnifiedPtr> {
        self.base.range(self.bytes as u64)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    fn all(&self) -> Range<usize> {
        0..self.access.len()
    }

    pub(super) fn mirror(&self, server: ServerId) -> Option<&Mirror> {
        self.mirrors.iter().find(|mirror| mirror.server == server)
    }

    /// How many of these servers have it.
    pub(super) fn workers(&self, working: &Working) -> usize {
        self.mirrors.iter().filter(|mirror| working.contains(&mirror.server)).count()
    }

    /// Closes what the program has open: the next touch of a page is noticed. What it may have
    /// written is newer than what any server has.
    pub(super) fn close(&mut self) {
        let all = self.all();
        for page in all.clone().filter(|page| self.access[*page] == Access::Write) {
            self.mirrors.iter_mut().for_each(|mirror| mirror.falls_behind(&(page..page + 1)));
        }
        if self.memory.is_protectable() && self.access.iter().any(|access| *access != Access::None)
        {
            self.ahead.begin_anew();
            // Later writes are noticed, so that none is lost. If the system refuses, pages stay
            // open, and count as written.
            if self.memory.close(&bytes(&all, self.bytes)).is_ok() {
                self.access.fill(Access::None);
            }
        }
    }

    /// Work of these servers may have written to any page.
    pub(super) fn may_have_changed(&mut self, servers: &Working) {
        let all = self.all();
        let mut same = false;
        for mirror in self.mirrors.iter_mut().filter(|mirror| servers.contains(&mirror.server)) {
            match mirror.is_same() {
                true => same = true,
                false => mirror.newer.set(&all, true),
            }
        }
        if same {
            self.mirrors.iter_mut().for_each(|mirror| mirror.falls_behind(&all));
        }
    }

    /// Has the program's pages hold what servers have written: those pages of which they may have
    /// newer bytes, and all pages of those that work. Servers that cannot be asked, which are
    /// returned, have the memory no more.
    pub(super) fn gather(
        &mut self,
        but: Option<ServerId>,
        pages: &Range<usize>,
        working: Option<&Working>,
    ) -> Vec<ServerId> {
        let (base, seed) = (self.base, self.seed);
        let (mut lost, mut changed, mut same) = (Vec::new(), Vec::new(), false);
        for (place, mirror) in self.mirrors.iter_mut().enumerate() {
            let works = working.is_some_and(|working| working.contains(&mirror.server));
            same |= works && mirror.is_same();
            if but == Some(mirror.server) || mirror.is_same() {
                continue;
            }
            let runs = if works {
                std::iter::once(pages.clone()).collect()
            } else {
                mirror.newer.runs(pages)
            };
            for run in runs {
                match mirror.bring(base, (&self.memory, self.bytes), &run, seed) {
                    Ok(new) => changed.extend(new.into_iter().map(|page| (place, page))),
                    Err(_) => {
                        lost.push(mirror.server);
                        break;
                    }
                }
            }
        }
        if same {
            self.mirrors.iter_mut().for_each(|mirror| mirror.falls_behind(pages));
        }
        for (from, page) in changed {
            for (place, mirror) in self.mirrors.iter_mut().enumerate() {
                if place != from {
                    mirror.falls_behind(&(page..page + 1));
                }
            }
        }
        self.mirrors.retain(|mirror| !lost.contains(&mirror.server));
        lost
    }

    /// As [`Region::gather`], of all pages.
    pub(super) fn gather_all(
        &mut self,
        but: Option<ServerId>,
        working: Option<&Working>,
    ) -> Vec<ServerId> {
        let all = self.all();
        self.gather(but, &all, working)
    }

    /// Sends a server what it lacks, which may have work that runs.
    pub(super) fn give(&mut self, to: ServerId, works: bool) -> Result<()> {
        let (all, base) = (self.all(), self.base);
        let Some(mirror) = self.mirrors.iter_mut().find(|mirror| mirror.server == to) else {
            return Ok(());
        };
        for run in mirror.older.runs(&all) {
            mirror.give(base, (&self.memory, self.bytes), &run, works)?;
        }
        Ok(())
    }

    /// As [`Region::give`]; returns when the server has it.
    pub(super) fn give_and_settle(&mut self, to: ServerId, works: bool) -> Result<()> {
        self.give(to, works)?;
        let base = self.base;
        let mirror = self.mirrors.iter_mut().find(|mirror| mirror.server == to);
        mirror.map_or(Ok(()), |mirror| mirror.settle(base))
    }

    /// Before work of a server: it has what the program has written, and what other servers had
    /// when they were last waited for.
    pub(super) fn prepare(&mut self, server: ServerId, works: bool) -> Result<Vec<ServerId>> {
        self.close();
        let lost = self.gather_all(Some(server), None);
        // Bytes of mapped memory come before the work; those of managed memory have a stream of
        // their own.
        let is_managed =
            self.mirror(server).is_some_and(|mirror| mirror.home.kind == Kind::Managed);
        match is_managed {
            true => self.give_and_settle(server, works)?,
            false => self.give(server, works)?,
        }
        Ok(lost)
    }

    /// A touch of the page at an address was noticed. Afterwards it can be repeated.
    pub(super) fn touch(
        &mut self,
        address: UnifiedPtr,
        write: bool,
        working: &Working,
    ) -> Vec<ServerId> {
        let page = (address.since(self.base) / page_bytes()) as usize;
        let access = self.access[page];
        let write = write || (access == Access::Read && !self.memory.tells_writes());
        if access.allows(write) {
            let _ = self.memory.change(&bytes(&(page..page + 1), self.bytes), access, access);
            return Vec::new();
        }
        let done = |access: Access| access.allows(write);
        let begun = Instant::now();
        let (what, all) = (if write { Opens::Compared } else { Opens::Read }, self.access.len());
        let walked = self.access[..page]
            .iter()
            .rev()
            .take(MOST_OPENED)
            .take_while(|access| done(**access))
            .count();
        let from = self.ahead.first(what, page, all);
        let end = (page + self.ahead.pages(what, walked, all)).min(all);
        let end = (page..end).find(|at| self.access[*at] != access).unwrap_or(end);
        let start =
            (from..page).rev().find(|at| self.access[*at] != access).map_or(from, |at| at + 1);
        self.ahead.opened(end - start);
        let mut lost = self.gather(None, &(start..end), Some(working));
        let now = if write { Access::Write } else { Access::Read };
        if self.memory.change(&bytes(&(start..end), self.bytes), access, now).is_ok() {
            self.access[start..end].fill(now);
        } else {
            // The system refuses finer protections: one for the whole region then.
            lost.extend(self.gather_all(None, Some(working)));
            let all = self.all();
            if self.memory.change(&bytes(&all, self.bytes), Access::None, Access::Write).is_ok() {
                self.access.fill(Access::Write);
            }
        }
        if self.workers(working) > 0 {
            self.look_again(begun.elapsed());
        }
        lost
    }

    /// Looks at the region again after a while, the longer the more it `took` to look.
    pub(super) fn look_again(&mut self, took: Duration) {
        let due = Instant::now() + GLIMPSE.max(GLIMPSES * took);
        self.due = Some(self.due.map_or(due, |before| before.max(due)));
    }

    /// Has servers that work see what the program and other servers have written since they began.
    pub(super) fn exchange(&mut self, working: &Working) -> Vec<ServerId> {
        self.close();
        // What a server writes while it works concerns those that work beside it.
        let all = (self.workers(working) > 1).then_some(working);
        let mut lost = self.gather_all(None, all);
        for server in working {
            if self.give(*server, true).is_err() {
                lost.push(*server);
            }
        }
        self.mirrors.retain(|mirror| !lost.contains(&mirror.server));
        lost
    }
}
