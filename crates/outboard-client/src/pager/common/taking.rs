//! How memory becomes common, and ends to be.

use std::ops::Range;
use std::os::fd::OwnedFd;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result, ServerId, UnifiedPtr};

use super::memory::Memory;
use super::mirror::Mirror;
use super::region::Region;
use super::{Common, State};
use crate::pager::Pager;
use crate::pager::open::Open;
use crate::pager::pages::{self, Access, Shared, page_bytes};
use crate::pager::store::{Home, Kind};

/// A server that is to have a part in memory.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) server: ServerId,
    pub(crate) pager: &'static Pager,
    /// The context in which it was given the memory.
    pub(crate) ctx: ContextId,
}

/// Pages of the program that some servers have themselves, as a file.
pub(crate) struct Lent {
    pub(crate) file: OwnedFd,
    /// Where in the file the page of the first byte is.
    pub(crate) offset: u64,
    /// Those servers.
    pub(crate) to: Vec<Part>,
}

fn out_of_memory<E>(_: E) -> CUresult {
    CUresult::CUDA_ERROR_OUT_OF_MEMORY
}

/// The whole pages of a range, and what is before and behind them.
fn parts(range: &Range<UnifiedPtr>) -> (Range<UnifiedPtr>, Vec<Range<UnifiedPtr>>) {
    let (first, last) =
        (range.start.next_multiple_of(page_bytes()), range.end.previous_multiple_of(page_bytes()));
    if first >= last {
        return (range.start..range.start, vec![range.clone()]);
    }
    let edges = [range.start..first, last..range.end];
    (first..last, edges.into_iter().filter(|edge| edge.start < edge.end).collect())
}

/// The program's pages, closed, with what it has there.
///
/// # Safety
/// They are readable and writable, and touches of them wait for this thread.
unsafe fn pages_of(pages: &Range<UnifiedPtr>) -> std::io::Result<Shared> {
    let (address, bytes) = (pages.start.host(), pages.end.since(pages.start) as usize);
    let made = pages::protect(address, bytes, Access::Read).and_then(|()| {
        // SAFETY: by the contract above; the pages cannot be written to now.
        unsafe {
            let mut memory = Shared::copy_of(address, bytes)?;
            memory.show()?;
            memory.close(&(0..bytes))?;
            Ok(memory)
        }
    });
    made.inspect_err(|_| {
        let _ = pages::protect(address, bytes, Access::Write);
    })
}

impl Common {
    /// Takes in what a server's pager has at these addresses. The server keeps its part.
    pub(crate) fn take_over(
        &'static self,
        from: Part,
        whole: &Range<UnifiedPtr>,
        owner: ContextId,
    ) -> Result<()> {
        let mut state = self.lock();
        self.start(&mut state)?;
        // Touches from now on wait for this thread.
        state.publish(&self.service, Some(whole.clone()));
        let store = from.pager.shared_store()?;
        let seed = from.pager.seed();
        // What the server is known to have done from now on is told here, too.
        state.has_part(from);
        let released = from.pager.release(whole);
        for (base, home, memory, stale) in released.regions {
            let bytes = memory.bytes();
            let mut region =
                Region::new(base, bytes, Memory::Pages(memory), (owner, whole.clone()), seed);
            let known = (&region.memory, bytes);
            let mirror = Mirror::of_known(from.server, home, store, known, stale);
            region.mirrors.push(mirror.map_err(out_of_memory)?);
            state.regions.insert(base, region);
        }
        for Open { home, address, twin, .. } in released.opens {
            // Of several servers, what lies on whole pages is protected.
            let (middle, edges) = parts(&address.range(twin.len() as u64));
            for part in std::iter::once(middle.clone()).chain(edges) {
                let bytes = part.end.since(part.start) as usize;
                if bytes == 0 {
                    continue;
                }
                let memory = if part == middle {
                    // SAFETY: page-locked memory stays until it is freed or unregistered.
                    Memory::Pages(unsafe { pages_of(&part) }.map_err(out_of_memory)?)
                } else {
                    Memory::Part(part.start.host())
                };
                let of = (owner, whole.clone());
                let mut region = Region::new(part.start, bytes, memory, of, seed);
                let at = part.start.since(address) as usize;
                let twin = &twin[at..at + bytes];
                let mirror = Mirror::of_twin(from.server, home, store, twin);
                region.mirrors.push(mirror.map_err(out_of_memory)?);
                state.regions.insert(part.start, region);
            }
        }
        state.publish(&self.service, None);
        from.pager.publish();
        if released.is_busy {
            state.working.insert(from.server);
        }
        Ok(())
    }

    /// Takes in memory of the program that no server has.
    ///
    /// # Safety
    /// The memory is readable and writable until [`Common::remove`].
    pub(crate) unsafe fn take_in(
        &'static self,
        whole: &Range<UnifiedPtr>,
        owner: ContextId,
    ) -> Result<()> {
        let (middle, edges) = parts(whole);
        let mut state = self.lock();
        self.start(&mut state)?;
        let seed = outboard_transport::random().map_or(0, u64::from_le_bytes);
        let bytes = middle.end.since(middle.start) as usize;
        if bytes > 0 {
            // Writes that come while the pages are copied wait, by the lock, until the new pages
            // are there.
            state.publish(&self.service, Some(middle.clone()));
            // SAFETY: by the contract above.
            match unsafe { pages_of(&middle) } {
                Ok(memory) => {
                    let memory = Memory::Pages(memory);
                    let of = (owner, whole.clone());
                    let region = Region::new(middle.start, bytes, memory, of, seed);
                    state.regions.insert(middle.start, region);
                }
                Err(_) => {
                    state.publish(&self.service, None);
                    return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
                }
            }
            state.publish(&self.service, None);
        }
        state.add_edges(edges, whole, owner, seed);
        Ok(())
    }

    /// Takes in memory of the program whose pages some servers have themselves.
    pub(crate) fn take_lent(
        &'static self,
        whole: &Range<UnifiedPtr>,
        owner: ContextId,
        lent: Lent,
    ) -> Result<()> {
        let mut state = self.lock();
        self.start(&mut state)?;
        let seed = outboard_transport::random().map_or(0, u64::from_le_bytes);
        let (middle, edges) = parts(whole);
        let bytes = middle.end.since(middle.start) as usize;
        if bytes > 0 {
            // The page of the first byte is the one before, if that is not a page's first.
            let before = middle.start.since(whole.start.previous_multiple_of(page_bytes()));
            let (outer, offset) = (middle.start.host(), lent.offset + before);
            let memory = Shared::view_of(outer, bytes, lent.file, offset).map_err(out_of_memory)?;
            state.publish(&self.service, Some(middle.clone()));
            if let Err(error) = memory.close(&(0..bytes)) {
                state.publish(&self.service, None);
                return Err(out_of_memory(error));
            }
            let of = (owner, whole.clone());
            let region = Region::new(middle.start, bytes, Memory::Pages(memory), of, seed);
            state.regions.insert(middle.start, region);
        }
        state.add_edges(edges, whole, owner, seed);
        drop(state);
        lent.to.into_iter().try_for_each(|part| self.add_part(whole, part, true))
    }

    /// A server has the memory now, zeroed.
    pub(crate) fn add(&self, whole: &Range<UnifiedPtr>, part: Part) -> Result<()> {
        self.add_part(whole, part, false)
    }

    /// As [`Common::add`], of a server that has the program's pages themselves.
    pub(crate) fn add_same(&self, whole: &Range<UnifiedPtr>, part: Part) -> Result<()> {
        self.add_part(whole, part, true)
    }

    fn add_part(&self, whole: &Range<UnifiedPtr>, part: Part, has_same: bool) -> Result<()> {
        let store = part.pager.shared_store()?;
        let home = Home { kind: Kind::Mapped, ctx: part.ctx };
        let mut state = self.lock();
        for region in state.regions.range_mut(whole.clone()).map(|(_, region)| region) {
            if region.mirror(part.server).is_some() {
                continue;
            }
            let bytes = region.len();
            let mirror = match has_same {
                true => Mirror::of_same(part.server, home, store, bytes),
                false => {
                    Mirror::of_zeros(part.server, home, store, bytes).map_err(out_of_memory)?
                }
            };
            region.mirrors.push(mirror);
        }
        state.has_part(part);
        if part.pager.is_busy() {
            state.working.insert(part.server);
        }
        Ok(())
    }
}

impl State {
    fn has_part(&mut self, part: Part) {
        self.pagers.insert(part.server, part.pager);
        part.pager.has_common(Some(part.server));
    }

    fn add_edges(
        &mut self,
        edges: Vec<Range<UnifiedPtr>>,
        whole: &Range<UnifiedPtr>,
        owner: ContextId,
        seed: u64,
    ) {
        for edge in edges {
            let bytes = edge.end.since(edge.start) as usize;
            let memory = Memory::Part(edge.start.host());
            let region = Region::new(edge.start, bytes, memory, (owner, whole.clone()), seed);
            self.regions.insert(edge.start, region);
        }
    }
}
