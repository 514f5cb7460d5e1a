//! One range of tracked memory: the state of its pages, and how they change.

mod ahead;
mod along;
mod moving;
mod quiet;

use std::io;
use std::ops::Range;
use std::time::Instant;

use outboard_front::backend::{Result, UnifiedPtr};
use outboard_transport::reserved::Reserved;

use super::moved::Moved;
use super::pages::{Access, Own, Shared, page_bytes};
use super::store::{Home, Kind, Store};

pub(in crate::pager) use ahead::{Ahead, MOST as MOST_OPENED, Opens};
use along::Along;
pub(in crate::pager) use along::MOST as MOST_ALONG;
use quiet::Quiet;

/// Whose bytes of a page are current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageState {
    /// The program has it for itself, and touches are not noticed: so is memory that no kernel has
    /// been able to use yet.
    Fresh,
    /// The program has written to it since the device got it.
    Dirty,
    /// Both sides have the same bytes. Writes are noticed.
    Clean,
    /// Both sides have the same bytes, or had them when the device's present work was queued, or
    /// when a wait ended whose answer brought the page. Touches are noticed.
    Kept,
    /// The device may have other bytes. Touches are noticed.
    Stale,
}

impl PageState {
    fn access(self) -> Access {
        match self {
            PageState::Fresh => Access::New,
            PageState::Dirty => Access::Write,
            PageState::Clean => Access::Read,
            PageState::Kept | PageState::Stale => Access::None,
        }
    }
}

/// A range of whole pages.
#[derive(Debug)]
pub(in crate::pager) struct Region {
    base: UnifiedPtr,
    pub(in crate::pager) home: Home,
    memory: Shared,
    /// Mapped memory: what the device had when a page became dirty.
    twin: Option<Own>,
    states: Vec<PageState>,
    /// Pages that are fresh or dirty.
    unsent: usize,
    /// Pages that are clean or kept.
    same: usize,
    /// Pages that are kept.
    kept: usize,
    /// The bytes that are the program's, ascending; others in the pages are left alone.
    spans: Vec<Range<UnifiedPtr>>,
    ahead: Ahead,
    along: Along,
    quiet: Quiet,
    /// The bytes fetched from the device differed from those here; [`Region::take_differed`] takes
    /// that.
    differed: bool,
    /// The wait with whose answer pages of this region are to come, unless any page changes before.
    pub(in crate::pager) coming: Option<u64>,
    /// When it is to be closed again, mapped memory that was opened while the device worked.
    pub(in crate::pager) due: Option<Instant>,
}

impl Region {
    /// Managed memory at addresses that are reserved, or that nothing has: all of it the program's
    /// for now (`fresh`), or all of it the device's.
    pub(in crate::pager) fn managed(
        home: Home,
        base: UnifiedPtr,
        bytes: usize,
        spans: Vec<Range<UnifiedPtr>>,
        fresh: bool,
        reserved: &'static Reserved,
    ) -> io::Result<Region> {
        let memory = Shared::new_at(base.host(), bytes, reserved)?;
        let mut region = Region::new(home, base, bytes, memory, PageState::Fresh, spans);
        if !fresh {
            region.set(&(0..bytes / page_bytes() as usize), PageState::Stale)?;
        }
        Ok(region)
    }

    /// Memory of the program that kernels may use from now on. Its bytes are copied to `self`'s
    /// pages; [`Region::show`] puts those there.
    ///
    /// # Safety
    /// The whole pages are readable.
    pub(in crate::pager) unsafe fn mapped(
        home: Home,
        base: UnifiedPtr,
        bytes: usize,
        seed: u64,
    ) -> io::Result<Region> {
        // SAFETY: by the contract above.
        let memory = unsafe { Shared::copy_of(base.host(), bytes) }?;
        let spans = std::iter::once(base.range(bytes as u64)).collect();
        let mut region = Region::new(home, base, bytes, memory, PageState::Dirty, spans);
        region.twin = Some(Own::zeroed(bytes)?);
        region.quiet = Quiet::new(seed);
        Ok(region)
    }

    /// Puts the pages in the place of the program's own.
    ///
    /// # Safety
    /// Nobody has written to the program's pages since they were copied.
    pub(in crate::pager) unsafe fn show(&mut self) -> io::Result<()> {
        // SAFETY: by the contract above.
        unsafe { self.memory.show() }
    }

    fn new(
        home: Home,
        base: UnifiedPtr,
        bytes: usize,
        memory: Shared,
        state: PageState,
        spans: Vec<Range<UnifiedPtr>>,
    ) -> Region {
        let pages = bytes / page_bytes() as usize;
        let (ahead, along, quiet) = (Ahead::default(), Along::default(), Quiet::new(0));
        let (states, unsent) = (vec![state; pages], pages);
        let (twin, same, kept, differed, coming, due) = (None, 0, 0, false, None, None);
        Region {
            base,
            home,
            memory,
            twin,
            states,
            unsent,
            same,
            kept,
            spans,
            ahead,
            along,
            quiet,
            differed,
            coming,
            due,
        }
    }

    pub(in crate::pager) fn range(&self) -> Range<UnifiedPtr> {
        self.base.range(self.states.len() as u64 * page_bytes())
    }

    /// The bytes at these addresses are the program's too.
    pub(in crate::pager) fn add_span(&mut self, span: Range<UnifiedPtr>) {
        self.spans.push(span);
        self.spans.sort_by_key(|span| span.start);
    }

    /// The program has noticed nothing of the pages at these addresses: they begin anew.
    pub(in crate::pager) fn refresh(&mut self, addresses: &Range<UnifiedPtr>) {
        self.remove_span(addresses);
        let pages = self.pages(addresses);
        self.memory.clear(&bytes(&pages));
        let _ = self.set(&pages, PageState::Fresh);
    }

    /// The bytes at these addresses are not the program's any more.
    pub(in crate::pager) fn remove_span(&mut self, span: &Range<UnifiedPtr>) {
        self.spans.retain(|other| other.start < span.start || other.start >= span.end);
    }

    /// The span that holds an address, or at least that address.
    fn span_of(&self, address: UnifiedPtr) -> Range<UnifiedPtr> {
        let behind = self.spans.partition_point(|span| span.start <= address);
        let span =
            behind.checked_sub(1).map(|index| &self.spans[index]).filter(|span| address < span.end);
        span.cloned().unwrap_or(address.range(1))
    }

    /// The pages that hold any of these addresses.
    fn pages(&self, addresses: &Range<UnifiedPtr>) -> Range<usize> {
        let range = self.range();
        let (start, end) = (addresses.start.max(range.start), addresses.end.min(range.end));
        if start >= end {
            return 0..0;
        }
        (start.since(self.base) / page_bytes()) as usize
            ..end.since(self.base).div_ceil(page_bytes()) as usize
    }

    /// Puts pages in a state. Fails when the system has no room for so many different protections.
    fn set(&mut self, pages: &Range<usize>, state: PageState) -> io::Result<()> {
        let (states, to) = (&self.states[pages.clone()], state.access());
        if to == Access::None && states.iter().any(|old| old.access() != to) {
            self.memory.close(&bytes(pages))?;
        } else {
            let mut at = pages.start;
            for run in states.chunk_by(|one, next| one.access() == next.access()) {
                let (from, end) = (run[0].access(), at + run.len());
                if from != to {
                    self.memory.change(&bytes(&(at..end)), from, to)?;
                }
                at = end;
            }
        }
        self.count(pages, state);
        Ok(())
    }

    fn count(&mut self, pages: &Range<usize>, state: PageState) {
        let classes = |state: PageState| {
            let unsent = matches!(state, PageState::Fresh | PageState::Dirty);
            [unsent, matches!(state, PageState::Clean | PageState::Kept), state == PageState::Kept]
                .map(usize::from)
        };
        let new = classes(state);
        self.coming = None;
        if new[0] > 0 {
            self.quiet.written();
        }
        for old in &mut self.states[pages.clone()] {
            let was = classes(*old);
            self.unsent = self.unsent + new[0] - was[0];
            self.same = self.same + new[1] - was[1];
            self.kept = self.kept + new[2] - was[2];
            *old = state;
        }
    }

    /// A touch of the page at `address` was noticed. Afterwards it can be repeated.
    pub(in crate::pager) fn fault(
        &mut self,
        store: &dyn Store,
        address: UnifiedPtr,
        write: bool,
        moved: &mut Moved,
    ) -> Result<()> {
        moved.faults += 1;
        let page = (address.since(self.base) / page_bytes()) as usize;
        let write = write || (self.states[page] == PageState::Clean && !self.memory.tells_writes());
        let done = |state: PageState| state.access().allows(write);
        let access = self.states[page].access();
        if access.allows(write) {
            // Another thread was here before, or the system has taken the page out of the
            // program's view, and only it.
            let _ = self.memory.change(&bytes(&(page..page + 1)), access, access);
            return Ok(());
        }
        // Never beyond the allocation: another may be the device's to write to while this one is
        // the program's.
        let limits = self.pages(&self.span_of(address));
        let limit = limits.end.max(page + 1);
        let what = match &self.twin {
            Some(_) if self.states[page] == PageState::Kept && self.quiet.seed().is_none() => {
                Opens::Known
            }
            _ if !write => Opens::Read,
            Some(_) => Opens::Compared,
            None => Opens::Sent,
        };
        let walked = self.states[..page]
            .iter()
            .rev()
            .take(MOST_OPENED)
            .take_while(|state| done(**state))
            .count();
        let end = (page + self.ahead.pages(what, walked, self.states.len())).min(limit);
        // As far as the neighbours are as this page is.
        let state = self.states[page];
        let end = (page..end).find(|at| self.states[*at] != state).unwrap_or(end);
        let first = self.ahead.first(what, page, self.states.len()).max(limits.start).min(page);
        let start =
            (first..page).rev().find(|at| self.states[*at] != state).map_or(first, |at| at + 1);
        self.ahead.opened(end - start);
        self.quiet.touched();
        match state {
            PageState::Stale => self.along.fetched(&(start..end)),
            PageState::Kept => self.along.touched(&(start..end)),
            _ => {}
        }
        self.open(store, &(start..end), write, moved)?;
        if state == PageState::Stale && self.unsent + self.same == self.states.len() {
            self.quiet.trust();
        }
        Ok(())
    }

    /// Opens pages of one state for reading, or for writing too.
    fn open(
        &mut self,
        store: &dyn Store,
        pages: &Range<usize>,
        write: bool,
        moved: &mut Moved,
    ) -> Result<()> {
        let outcome = if self.states[pages.start] == PageState::Stale {
            self.fetch(store, pages, moved)
        } else {
            Ok(())
        };
        // Whatever came of it, the thread that touches the page must go on.
        if write {
            self.keep_twin(pages);
        }
        let state = if write { PageState::Dirty } else { PageState::Clean };
        if self.set(pages, state).is_err() {
            return outcome.and(self.open_all(store, moved));
        }
        outcome
    }

    /// The system refuses finer protections: one for the whole region then.
    fn open_all(&mut self, store: &dyn Store, moved: &mut Moved) -> Result<()> {
        let mut outcome = Ok(());
        for run in self.runs(|state| state == PageState::Stale) {
            outcome = outcome.and(self.fetch(store, &run, moved));
        }
        for run in self
            .runs(|state| matches!(state, PageState::Stale | PageState::Clean | PageState::Kept))
        {
            self.keep_twin(&run);
        }
        let all = 0..self.states.len();
        if self.memory.change(&bytes(&all), Access::None, Access::Write).is_ok() {
            for run in self.runs(|state| state != PageState::Fresh) {
                self.count(&run, PageState::Dirty);
            }
        }
        outcome
    }

    /// Remembers what mapped pages hold before the program writes to them.
    fn keep_twin(&mut self, pages: &Range<usize>) {
        let range = bytes(pages);
        if let Some(twin) = &self.twin {
            // SAFETY: both views have these bytes, and neither is the program's.
            unsafe {
                twin.at(range.start)
                    .copy_from_nonoverlapping(self.memory.inner(range.start), range.len())
            };
        }
    }

    /// Runs of pages whose state is `wanted`.
    fn runs(&self, wanted: impl Fn(PageState) -> bool) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (page, state) in self.states.iter().enumerate() {
            match runs.last_mut() {
                _ if !wanted(*state) => {}
                Some(run) if run.end == page => run.end = page + 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// The program's bytes among these pages, as addresses.
    fn spans_of(&self, range: &Range<usize>) -> Vec<Range<UnifiedPtr>> {
        let (start, end) =
            (self.base.offset(range.start as u64), self.base.offset(range.end as u64));
        let clip = |span: &Range<UnifiedPtr>| span.start.max(start)..span.end.min(end);
        self.spans.iter().map(clip).filter(|span| span.start < span.end).collect()
    }

    /// Whether anything would be sent, or for mapped memory, closed.
    pub(in crate::pager) fn has_open_pages(&self) -> bool {
        // What is kept is closed, and stays so while the device is trusted to leave it alone.
        let mapped = || self.same > self.kept || (self.kept > 0 && self.quiet.trusted().is_none());
        self.unsent > 0 || (self.home.kind == Kind::Mapped && mapped())
    }

    /// The device may have written to any page: what is not the program's alone is fetched when it
    /// is touched.
    pub(in crate::pager) fn invalidate(&mut self) {
        self.begin_anew();
        self.quiet.distrust();
        for run in self.runs(|state| matches!(state, PageState::Clean | PageState::Kept)) {
            let _ = self.set(&run, PageState::Stale);
        }
    }

    /// Pages are closed: what was learnt while they were open counts.
    fn begin_anew(&mut self) {
        self.ahead.begin_anew();
        self.quiet.begin_anew();
    }

    /// The program's addresses get pages of its own again, with the bytes that are here.
    pub(in crate::pager) fn give_back(&mut self) {
        let _ = self.memory.give_back();
    }

    /// The region is another's to look after from now on, who gets its pages, all closed, and which
    /// of them the device may have changed. What the program has written is sent before.
    pub(in crate::pager) fn release(
        mut self,
        store: &dyn Store,
        moved: &mut Moved,
    ) -> (Shared, Vec<bool>) {
        // The next call reports bytes that cannot be sent now.
        let _ = self.flush(store, moved);
        let stale = self.states.iter().map(|state| *state == PageState::Stale).collect();
        (self.memory, stale)
    }

    /// Whether [`Region::invalidate`] would change anything.
    pub(in crate::pager) fn has_same_pages(&self) -> bool {
        self.same > 0
    }
}

/// Bytes of pages, from the region's first.
fn bytes(pages: &Range<usize>) -> Range<usize> {
    pages.start * page_bytes() as usize..pages.end * page_bytes() as usize
}
