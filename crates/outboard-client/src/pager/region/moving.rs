//! How a region's bytes come from the device and go there.

use std::ops::Range;
use std::time::Instant;

use outboard_abi::CUresult;
use outboard_front::backend::{Result, UnifiedPtr};

use super::{PageState, Region, bytes};
use crate::pager::difference::{Stretch, stretches};
use crate::pager::moved::Moved;
use crate::pager::pages::page_bytes;
use crate::pager::store::{Kind, Store};

/// The most bytes of mapped memory that are sent in one message.
const PIECE: usize = 1 << 20;

impl Region {
    /// Brings the device's bytes of pages that the program cannot touch meanwhile.
    pub(super) fn fetch(
        &mut self,
        store: &dyn Store,
        pages: &Range<usize>,
        moved: &mut Moved,
    ) -> Result<()> {
        let seed = self.quiet.seed();
        for span in self.spans_of(&bytes(pages)) {
            let (at, len) =
                (span.start.since(self.base) as usize, span.end.since(span.start) as usize);
            // SAFETY: the library's view has these bytes.
            let differs =
                unsafe { store.fetch(self.home, span.start, self.memory.inner(at), len, seed) }?;
            if differs {
                self.quiet.written();
                self.differed = true;
            }
            if differs || seed.is_none() {
                moved.fetched += len as u64;
            }
            self.quiet.asked(!differs);
        }
        Ok(())
    }

    /// Brings all pages at these addresses that the device may have changed.
    pub(in crate::pager) fn bring(
        &mut self,
        store: &dyn Store,
        addresses: &Range<UnifiedPtr>,
        moved: &mut Moved,
    ) -> Result<()> {
        let wanted = self.pages(addresses);
        let mut outcome = Ok(());
        for run in self.runs(|state| state == PageState::Stale) {
            let run = run.start.max(wanted.start)..run.end.min(wanted.end);
            if !run.is_empty() {
                outcome = outcome.and(self.open(store, &run, false, moved));
            }
        }
        outcome
    }

    /// A wait begins: stale pages that are to come with its answer, and how often each has come in
    /// vain.
    pub(in crate::pager) fn likely(&mut self) -> impl Iterator<Item = (usize, u32)> {
        let states = &self.states;
        self.along.likely().iter().copied().filter(|(page, _)| states[*page] == PageState::Stale)
    }

    /// The device's bytes of stale pages have come along with an answer. If pages have changed
    /// meanwhile, they are `late`, and of no use.
    pub(in crate::pager) fn came(
        &mut self,
        address: UnifiedPtr,
        data: &[u8],
        late: bool,
        moved: &mut Moved,
    ) {
        let pages = self.pages(&address.range(data.len() as u64));
        self.along.came(&pages);
        moved.fetched += data.len() as u64;
        if late
            || bytes(&pages).len() != data.len()
            || self.states[pages.clone()].iter().any(|state| *state != PageState::Stale)
        {
            return;
        }
        // SAFETY: the library's view has these pages, which the program cannot touch now.
        unsafe {
            self.memory
                .inner(bytes(&pages).start)
                .copy_from_nonoverlapping(data.as_ptr(), data.len())
        };
        self.quiet.written();
        self.count(&pages, PageState::Kept);
    }

    /// The number and the sum of all bytes, if they are at most `room` and the wait that begins is
    /// to compare them.
    pub(in crate::pager) fn compares(&mut self, room: usize) -> Option<(usize, u64)> {
        let bytes = self.states.len() * page_bytes() as usize;
        if bytes > room || !self.quiet.compares() || self.has_open_pages() {
            return None;
        }
        // SAFETY: the library's view has these bytes, and the program cannot write to them now.
        let here = unsafe { std::slice::from_raw_parts(self.memory.inner(0).cast_const(), bytes) };
        Some((bytes, self.quiet.sum(here)))
    }

    /// The wait that compared is over. If pages have changed meanwhile, what it found is `late`,
    /// and of no use.
    pub(in crate::pager) fn compared(&mut self, same: bool, late: bool) {
        self.quiet.compared(same);
        if same && !late {
            self.count(&(0..self.states.len()), PageState::Kept);
            self.quiet.trust();
        }
    }

    /// The device has had, until now, what is in pages that are not stale.
    pub(in crate::pager) fn trust(&mut self) {
        self.quiet.trust();
    }

    /// The device has changed something else: what it is taken to have left alone may be older.
    pub(in crate::pager) fn distrust(&mut self, store: &dyn Store, moved: &mut Moved) {
        if self.quiet.distrust() {
            // The next call reports bytes that cannot be sent now.
            let _ = self.flush(store, moved);
            self.invalidate();
        }
    }

    /// Whether the device had something new when it was asked since this was asked last.
    pub(in crate::pager) fn take_differed(&mut self) -> bool {
        std::mem::take(&mut self.differed)
    }

    /// When pages that are kept while the device works are to be fetched again.
    pub(in crate::pager) fn kept_until(&self) -> Option<Instant> {
        self.quiet.trusted().filter(|_| self.kept > 0)
    }

    /// The address of a page.
    pub(in crate::pager) fn address(&self, page: usize) -> UnifiedPtr {
        self.base.offset(page as u64 * page_bytes())
    }

    /// Sends the device the bytes that the program has written. Managed pages stay known to be the
    /// same on both sides; mapped ones are fetched anew when they are touched, since kernels may
    /// write to them at any time. Whether anything was sent.
    pub(in crate::pager) fn flush(&mut self, store: &dyn Store, moved: &mut Moved) -> Result<bool> {
        let before = moved.pushed;
        if self.home.kind == Kind::Mapped {
            self.begin_anew();
            self.due = self.quiet.trusted();
        }
        let unsent = self.runs(|state| matches!(state, PageState::Fresh | PageState::Dirty));
        // Later writes fault again, so that no write is lost.
        let all = 0..self.states.len();
        self.memory.close(&bytes(&all)).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        let mut outcome = Ok(());
        for run in &unsent {
            outcome = outcome.and(match self.home.kind {
                Kind::Managed => self.push(store, run, moved),
                Kind::Mapped => self.patch(store, run, moved),
            });
        }
        let after = match self.home.kind {
            Kind::Managed => PageState::Kept,
            Kind::Mapped if self.due.is_some() => PageState::Kept,
            Kind::Mapped => PageState::Stale,
        };
        for run in self.runs(|state| state != PageState::Stale) {
            self.count(&run, after);
        }
        outcome.map(|()| moved.pushed != before)
    }

    fn push(&self, store: &dyn Store, run: &Range<usize>, moved: &mut Moved) -> Result<()> {
        // What was never touched has never been written; other dirty pages have.
        for piece in self.memory.touched(&bytes(run)) {
            for span in self.spans_of(&piece) {
                let (at, len) =
                    (span.start.since(self.base) as usize, span.end.since(span.start) as usize);
                // SAFETY: the library's view has these bytes.
                unsafe { store.push(self.home, span.start, self.memory.inner(at), len) }?;
                moved.pushed += len as u64;
            }
        }
        Ok(())
    }

    fn patch(&self, store: &dyn Store, run: &Range<usize>, moved: &mut Moved) -> Result<()> {
        let Some(twin) = &self.twin else { return Ok(()) };
        let Range { start, end } = bytes(run);
        // SAFETY: both views have these bytes; the program cannot write to them now.
        let (new, old) = unsafe {
            let slice = |from: *mut u8| std::slice::from_raw_parts(from.cast_const(), end - start);
            (slice(self.memory.inner(start)), slice(twin.at(start)))
        };
        for Stretch { from, mask, data } in stretches(old, new, PIECE) {
            store.patch(self.home, self.base.offset((start + from) as u64), &mask, data)?;
            moved.pushed += data.len() as u64;
        }
        Ok(())
    }
}
