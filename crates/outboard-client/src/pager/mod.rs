//! Memory that the program and the device both use, though they are on different machines.
//!
//! Such memory has the same addresses on both sides. On this one its pages are protected, so that what the program touches is noticed:
//! what it has written goes to the device before the next work is queued, and what the device may have written comes when the program
//! touches it, after it has waited for that work. Nothing else moves. See decision 9 for the reasons.
//!
//! Threads of the program come here with what they queue and wait for ([`Pager::before_work`], [`Pager::after_wait`]); their touches are
//! seen to by a thread of the pager. One lock orders them all. Who holds it reads and writes tracked memory by the library's own view
//! only, which is never protected.

mod difference;
mod edge;
mod fault;
mod inner;
mod pages;
mod region;
mod store;
mod table;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result};

use edge::Edge;
use inner::Inner;
use region::Region;

pub(crate) use pages::PAGE;
pub(crate) use region::Moved;
pub(crate) use store::{Home, Kind, Store};

/// A stream: its context's name and its own.
pub(crate) type StreamName = (u32, u64);

/// While the device works, a page of mapped memory that the program has touched is left open for this long: then what was written is sent,
/// and the next touch brings what the device has written meanwhile.
const GLIMPSE: Duration = Duration::from_millis(1);

/// The pager of a process.
pub(crate) struct Pager {
    store: OnceLock<Box<dyn Store>>,
    inner: Mutex<Inner>,
    /// Whether any memory is tracked.
    active: AtomicBool,
}

/// What a program has waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Done {
    /// All work of a context.
    Context(ContextId),
    /// The work of a stream.
    Stream(StreamName),
    /// What came before an event's record.
    Event(u64),
}

impl Pager {
    pub(crate) const fn new() -> Pager {
        Pager { store: OnceLock::new(), inner: Mutex::new(Inner::new()), active: AtomicBool::new(false) }
    }

    /// Where the device's bytes are to be had; told once, before any memory is tracked.
    pub(crate) fn connect(&self, store: Box<dyn Store>) {
        let _ = self.store.set(store);
    }

    /// Whether any memory is tracked.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Whether there is work that nobody has waited for yet.
    pub(crate) fn is_busy(&self) -> bool {
        !self.lock().outstanding.is_empty()
    }

    /// What moved so far.
    pub(crate) fn moved(&self) -> Moved {
        self.lock().moved
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self) -> Result<&dyn Store> {
        self.store.get().map(|store| &**store).ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }

    /// Starts the pager's thread, if it does not run yet.
    fn start(&'static self, inner: &mut Inner) -> Result<()> {
        if !inner.started {
            fault::start(move |address, write| self.open(address, write), move || self.close_in_time())
                .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            inner.started = true;
        }
        fault::arm().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        self.active.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Tracks managed memory of `home`: whole pages that nothing on this machine has. `Ok(false)` if something has them. With `fresh`,
    /// the device has zeros there; without, it has what its module says. Only `span` is the program's, and what [`Pager::allocate`] adds.
    pub(crate) fn add_managed(
        &'static self,
        home: ContextId,
        base: u64,
        bytes: usize,
        fresh: bool,
        span: Option<Range<u64>>,
    ) -> Result<bool> {
        let mut inner = self.lock();
        self.start(&mut inner)?;
        let home = Home { kind: Kind::Managed, ctx: home };
        let Ok(region) = Region::managed(home, base, bytes, span.into_iter().collect(), fresh) else {
            return Ok(false);
        };
        if fresh {
            // The zeros must be there before work that uses the memory.
            *inner.sent.entry(home.ctx).or_default() += 1;
        }
        inner.regions.insert(base, region);
        inner.publish();
        Ok(true)
    }

    /// Tracks a managed variable of a module, which may share pages with others of them.
    pub(crate) fn add_variable(&'static self, home: ContextId, variable: Range<u64>) -> Result<()> {
        let mut at = variable.start & !(PAGE - 1);
        while at < variable.end {
            // The pages up to the next region, or those of the one that is here.
            let (end, known) = {
                let mut inner = self.lock();
                let next = inner.regions.range(at + 1..).next().map_or(u64::MAX, |(base, _)| *base);
                match inner.region(at) {
                    Some(region) => {
                        let range = region.range();
                        region.add_span(variable.start.max(range.start)..variable.end.min(range.end));
                        (range.end, true)
                    }
                    None => (variable.end.next_multiple_of(PAGE).min(next), false),
                }
            };
            let span = variable.start.max(at)..variable.end.min(end);
            if !known && !self.add_managed(home, at, (end - at) as usize, false, Some(span))? {
                return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            }
            at = end;
        }
        Ok(())
    }

    /// Tracks memory of the program, which the device has under the same addresses, zeroed. `in_children` leaves it to forked children.
    ///
    /// # Safety
    /// The memory is readable and writable until [`Pager::remove`].
    pub(crate) unsafe fn add_mapped(&'static self, ctx: ContextId, range: Range<u64>, in_children: bool) -> Result<()> {
        let home = Home { kind: Kind::Mapped, ctx };
        let (first, last) = (range.start.next_multiple_of(PAGE), range.end & !(PAGE - 1));
        let mut inner = self.lock();
        self.start(&mut inner)?;
        let mut edge = |start: u64, end: u64| {
            if start < end {
                inner.edges.push(Edge::new(home, start, (end - start) as usize));
            }
        };
        if first >= last {
            edge(range.start, range.end);
            return Ok(());
        }
        edge(range.start, first);
        edge(last, range.end);
        let bytes = (last - first) as usize;
        // Writes that come while the pages are copied wait, by the pager's lock, until the new pages are there.
        inner.publish_with(Some((first, last)));
        let made = pages::protect(first, bytes, pages::Access::Read).and_then(|()| {
            // SAFETY: by the contract above; the pages cannot be written to now.
            unsafe {
                let mut region = Region::mapped(home, first, bytes)?;
                region.show(in_children)?;
                Ok(region)
            }
        });
        match made {
            Ok(region) => {
                inner.regions.insert(first, region);
                inner.publish();
                Ok(())
            }
            Err(_) => {
                let _ = pages::protect(first, bytes, pages::Access::Write);
                inner.edges.retain(|edge| edge.address < range.start || edge.address >= range.end);
                inner.publish();
                Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
            }
        }
    }

    /// Stops tracking the memory at these addresses, whole regions of it. Managed memory is gone then; what stands in the place of
    /// mapped memory is the caller's to say, who gets the bytes of a range if they are wanted, up to date.
    pub(crate) fn remove(&self, range: &Range<u64>, keep: bool) {
        let Ok(store) = self.store() else { return };
        let mut inner = self.lock();
        let Inner { regions, edges, moved, .. } = &mut *inner;
        edges.retain(|edge| edge.address < range.start || edge.address >= range.end);
        let bases: Vec<u64> = regions.range(range.start..range.end).map(|(base, _)| *base).collect();
        for base in bases {
            let Some(mut region) = regions.remove(&base) else { continue };
            if keep {
                // A failure leaves the bytes as they are: the next call of the program reports it.
                let _ = region.bring(store, range, moved);
                region.give_back();
            }
        }
        inner.publish();
        self.active.store(!inner.regions.is_empty() || !inner.edges.is_empty(), Ordering::Relaxed);
    }

    /// Forgets the memory of a context that has ended; the ranges that were mapped memory.
    pub(crate) fn remove_context(&self, ctx: ContextId) -> Vec<Range<u64>> {
        let mut inner = self.lock();
        let of_it = |region: &&Region| region.home.ctx == ctx;
        let ranges: Vec<_> =
            inner.regions.values().filter(of_it).map(|region| (region.range(), region.home.kind)).collect();
        inner.edges.retain(|edge| edge.home.ctx != ctx);
        inner.outstanding.retain(|stream, _| stream.0 != ctx.0);
        inner.sent.remove(&ctx);
        drop(inner);
        for (range, kind) in &ranges {
            self.remove(range, *kind == Kind::Mapped);
        }
        ranges.into_iter().filter(|(_, kind)| *kind == Kind::Mapped).map(|(range, _)| range).collect()
    }

    /// Whether all, or any, of these addresses are tracked.
    pub(crate) fn tracks(&self, range: &Range<u64>) -> Tracked {
        if !self.is_active() {
            return Tracked::None;
        }
        let mut inner = self.lock();
        let mut covered: Vec<Range<u64>> = inner.edges.iter().map(|edge| edge.address..edge.end()).collect();
        covered.extend(inner.regions.range(..range.end).next_back().map(|(_, region)| region.range()));
        covered.extend(inner.region(range.start).map(|region| region.range()));
        covered.retain(|part| part.start < range.end && range.start < part.end);
        covered.sort_by_key(|part| part.start);
        covered.dedup();
        let mut at = range.start;
        for part in &covered {
            if part.start > at {
                break;
            }
            at = at.max(part.end);
        }
        match covered.is_empty() {
            true => Tracked::None,
            false if at >= range.end => Tracked::All,
            false => Tracked::Some,
        }
    }

    /// Memory at these addresses, in a region that is there, is allocated.
    pub(crate) fn allocate(&self, range: Range<u64>) {
        if let Some(region) = self.lock().region(range.start) {
            region.add_span(range);
        }
    }

    /// Memory at these addresses, in a region that stays, has been freed and is as good as new.
    pub(crate) fn refresh(&self, range: &Range<u64>) {
        if let Some(region) = self.lock().region(range.start) {
            region.refresh(range);
        }
    }

    /// Work that may use any tracked memory is about to be queued in a stream: it will see what the program has written so far.
    pub(crate) fn before_work(&self, ctx: ContextId, stream: u64) -> Result<()> {
        let store = self.store()?;
        let mut inner = self.lock();
        inner.flush(store, |_| true)?;
        inner.join(store, ctx, stream)
    }

    /// That work is queued. Who waits for it in another thread does so after this.
    pub(crate) fn after_work(&self, ctx: ContextId, stream: u64) {
        let mut inner = self.lock();
        inner.work += 1;
        let number = inner.work;
        inner.outstanding.insert((ctx.0, stream), number);
    }

    /// The program is about to wait: kernels that wait for what it has written to mapped memory must see it. The number of the latest work
    /// that the wait may be for.
    pub(crate) fn before_wait(&self) -> u64 {
        let Ok(store) = self.store() else { return 0 };
        let mut inner = self.lock();
        if !inner.outstanding.is_empty() {
            let _ = inner.flush(store, |region| region.home.kind == Kind::Mapped);
        }
        inner.work
    }

    /// The program has waited for work up to number `latest`: what that has written is there for it from now on.
    pub(crate) fn after_wait(&self, done: Done, latest: u64) {
        let Ok(store) = self.store() else { return };
        let mut inner = self.lock();
        if inner.outstanding.is_empty() {
            return;
        }
        // Protections are only of use with our handler in place.
        let _ = fault::arm();
        let _ = inner.flush(store, |region| region.home.kind == Kind::Mapped);
        inner.invalidate(store);
        inner.finish(done, latest);
        let Inner { wanted, regions, moved, outstanding, .. } = &mut *inner;
        wanted.retain(|(stream, range)| {
            if outstanding.contains_key(stream) {
                return true;
            }
            for region in regions.values_mut() {
                let _ = region.bring(store, range, moved);
            }
            false
        });
    }

    /// A stream is about to call a function of the program: what the stream has done so far is there for it.
    pub(crate) fn before_function(&self) {
        let Ok(store) = self.store() else { return };
        let mut inner = self.lock();
        let _ = fault::arm();
        let _ = inner.flush(store, |region| region.home.kind == Kind::Mapped);
        inner.invalidate(store);
    }

    /// Such a function has returned: what it has written is there for what the stream does next.
    pub(crate) fn after_function(&self) {
        let Ok(store) = self.store() else { return };
        let mut inner = self.lock();
        let before = inner.sent.clone();
        // Failures are the context's, which the program's next call reports.
        let _ = inner.flush(store, |_| true);
        for (home, count) in &inner.sent {
            if before.get(home) != Some(count) {
                let _ = store.settle(*home);
            }
        }
    }

    /// An event is recorded in a stream.
    pub(crate) fn recorded(&self, event: u64, ctx: ContextId, stream: u64) {
        let mut inner = self.lock();
        let latest = inner.outstanding.get(&(ctx.0, stream)).copied().unwrap_or(0);
        inner.events.insert(event, ((ctx.0, stream), latest));
    }

    /// A stream or an event is gone.
    pub(crate) fn forget(&self, name: u64) {
        let mut inner = self.lock();
        inner.events.remove(&name);
        inner.joined.retain(|((_, stream), _), _| *stream != name);
    }

    /// Once the stream's work is done, the memory at these addresses is wanted on this side.
    pub(crate) fn want(&self, ctx: ContextId, stream: u64, range: Range<u64>) {
        let mut inner = self.lock();
        inner.work += 1;
        let number = inner.work;
        inner.outstanding.insert((ctx.0, stream), number);
        inner.wanted.push(((ctx.0, stream), range));
    }

    /// Opens the page at an address, on the pager's thread. If it is not tracked any more, its thread finds that out by itself.
    fn open(&self, address: u64, write: bool) {
        let Ok(store) = self.store() else { return };
        let mut inner = self.lock();
        let busy = !inner.outstanding.is_empty();
        let Inner { regions, moved, due, .. } = &mut *inner;
        let region = regions.range_mut(..=address).next_back().map(|(_, region)| region);
        let Some(region) = region.filter(|region| region.range().contains(&address)) else { return };
        // A failure is one of the context or the connection, which the program's next call reports.
        let _ = region.fault(store, address, write, moved);
        if busy && region.home.kind == Kind::Mapped && due.is_none() {
            *due = Some(Instant::now() + GLIMPSE);
        }
    }

    /// Closes mapped memory that has been open long enough while the device works, on the pager's thread; when to call again.
    fn close_in_time(&self) -> Option<Duration> {
        let store = self.store().ok()?;
        let mut inner = self.lock();
        let left = inner.due?.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Some(left);
        }
        inner.due = None;
        if !inner.outstanding.is_empty() {
            let _ = inner.flush(store, |region| region.home.kind == Kind::Mapped);
        }
        None
    }
}

/// How much of a range is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracked {
    /// None of it.
    None,
    /// Part of it.
    Some,
    /// All of it.
    All,
}
