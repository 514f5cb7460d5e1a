//! Memory that the program and the device both use, though they are on different machines.
//!
//! Such memory has the same addresses on both sides. In this process its pages are protected, so
//! that the pager notices what the program touches: it sends pages that the program has written
//! before the next work is queued, and fetches pages that the device may have written when the
//! program touches them after a wait for that work. Nothing else moves. Decision 9 has the reasons.
//!
//! Threads of the program call the pager when they queue work and after waits
//! ([`Pager::before_work`], [`Pager::after_wait`]); a thread of the pager handles their touches.
//! One lock orders them all. A thread that holds it accesses tracked memory only through the
//! library's own view, which is never protected.

mod along;
mod common;
mod difference;
mod fault;
mod glimpse;
mod inner;
mod moved;
mod open;
mod pages;
mod region;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod touch;
mod tracking;
mod watch;
mod work;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result, ServerId, StreamId, UnifiedPtr};
use outboard_transport::reserved::Reserved;
use outboard_wire::limits::MAX_COMPARED;
use outboard_wire::window::Window;
use parking_lot::{Mutex, MutexGuard};

use fault::Service;
use glimpse::{GLIMPSE, GLIMPSES};
use inner::Inner;
use region::Region;

pub(crate) use along::{Brought, Wait};
pub(crate) use common::{Common, Lent, Part};
pub(crate) use moved::Moved;
#[cfg(test)]
pub(crate) use pages::PAGE;
pub(crate) use pages::page_bytes;
pub(crate) use store::{Home, Kind, Store};
pub(crate) use tracking::Tracked;
pub(crate) use work::Done;

/// A stream: its context's name and its own.
pub(crate) type StreamName = (ContextId, StreamId);

/// The server's kernels use tracked memory.
const OWN: u8 = 1;
/// Other servers' kernels do.
const OTHERS: u8 = 2;

/// The pagers of all servers that have been connected to.
static PAGERS: Mutex<Vec<&'static Pager>> = Mutex::new(Vec::new());

/// What kernels of several of the process's servers use.
pub(crate) static COMMON: Common = Common::new();

/// The pager of one of a process's servers.
pub(crate) struct Pager {
    store: OnceLock<Box<dyn Store>>,
    inner: Mutex<Inner>,
    service: Service,
    /// The addresses of the server's devices, at which nothing else of this process is to lie.
    reserved: Reserved,
    /// Whether any memory is tracked: [`OWN`] and [`OTHERS`].
    active: AtomicU8,
    /// Whether there is work that no wait has covered yet.
    busy: AtomicBool,
    /// How many threads are queuing work.
    queuing: AtomicU32,
    /// Whether the server has a part in what is common.
    has_common: AtomicBool,
    /// The server, once it has had such a part.
    server: OnceLock<ServerId>,
}

impl std::fmt::Debug for Pager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pager")
    }
}

impl Pager {
    pub(crate) const fn new() -> Pager {
        Pager {
            store: OnceLock::new(),
            inner: Mutex::new(Inner::new()),
            service: Service::new(),
            reserved: Reserved::new(),
            active: AtomicU8::new(0),
            busy: AtomicBool::new(false),
            queuing: AtomicU32::new(0),
            has_common: AtomicBool::new(false),
            server: OnceLock::new(),
        }
    }

    /// Keeps the addresses of a window from everything but memory that the program and its devices
    /// share. Where the system does not let it have so many, that they are seldom used otherwise
    /// must do.
    pub(crate) fn keep(&self, window: Window) {
        let _ = self.reserved.reserve(window.range());
    }

    /// Where the device's bytes are to be had; told once, before any memory is tracked.
    pub(crate) fn connect(&'static self, store: Box<dyn Store>) {
        let _ = self.store.set(store);
        let mut pagers = PAGERS.lock();
        if !pagers.iter().any(|pager| std::ptr::eq(*pager, self)) {
            pagers.push(self);
        }
        drop(pagers);
        tell_all();
        self.lock().seed = outboard_transport::random().map_or(0, u64::from_le_bytes);
    }

    /// Whether any memory is tracked that the server's kernels use.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) & OWN != 0
    }

    /// Whether any memory is tracked, for whichever server.
    #[inline]
    pub(crate) fn is_any_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) != 0
    }

    fn set_active(&self, which: u8, now: bool) -> bool {
        let before = match now {
            true => self.active.fetch_or(which, Ordering::Relaxed),
            false => self.active.fetch_and(!which, Ordering::Relaxed),
        };
        (before & which != 0) != now
    }

    /// Whether there is work that no wait has covered yet. Takes no lock: whoever reads for others
    /// may ask.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Work has been queued, or waited for.
    fn note_busy(&self, inner: &Inner) {
        self.busy.store(!inner.outstanding.is_empty(), Ordering::Release);
    }

    /// What moved so far.
    pub(crate) fn moved(&self) -> Moved {
        let own = self.lock().moved;
        let common = self.server.get().map(|server| COMMON.moved(*server)).unwrap_or_default();
        Moved {
            faults: own.faults + common.faults,
            fetched: own.fetched + common.fetched,
            pushed: own.pushed + common.pushed,
        }
    }

    /// The server, if it has a part in what is common.
    fn common(&self) -> Option<ServerId> {
        if self.has_common.load(Ordering::Acquire) { self.server.get().copied() } else { None }
    }

    /// The server has a part in what is common, or none any more.
    fn has_common(&self, server: Option<ServerId>) {
        if let Some(server) = server {
            let _ = self.server.set(server);
        }
        let mut inner = self.lock();
        self.has_common.store(server.is_some(), Ordering::Release);
        self.note_active(&mut inner);
    }

    /// Memory has begun or ceased to be tracked.
    fn note_active(&self, inner: &mut Inner) {
        let active = self.has_common.load(Ordering::Acquire)
            || !inner.regions.is_empty()
            || !inner.opens.is_empty();
        if !active {
            inner.clear();
            self.note_busy(inner);
        }
        if self.set_active(OWN, active) {
            tell_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    fn store(&self) -> Result<&dyn Store> {
        self.store.get().map(|store| &**store).ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }

    /// As [`Pager::store`], for who looks after some of the server's memory.
    fn shared_store(&'static self) -> Result<&'static dyn Store> {
        self.store()
    }

    /// Starts the pager's thread, if it does not run yet.
    fn start(&'static self, inner: &mut Inner) -> Result<()> {
        if inner.service.is_none() {
            self.service
                .start(
                    move |address, write| self.open(address, write),
                    move || self.close_in_time().into_iter().chain(self.look_in_time()).min(),
                )
                .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            inner.service = Some(&self.service);
        }
        if self.set_active(OWN, true) {
            tell_all();
        }
        Ok(())
    }

    /// Opens the page at an address, on the pager's thread. If it is not tracked any more, its
    /// thread finds that out by itself.
    fn open(&self, address: UnifiedPtr, write: bool) {
        let Ok(store) = self.store() else { return };
        let mut inner = self.lock();
        let busy = !inner.outstanding.is_empty();
        let Inner { regions, moved, .. } = &mut *inner;
        let region = regions.range_mut(..=address).next_back().map(|(_, region)| region);
        let Some(region) = region.filter(|region| region.range().contains(&address)) else {
            return;
        };
        let started = Instant::now();
        // A failure is one of the context or the connection, which the program's next call reports.
        let _ = region.fault(store, address, write, moved);
        let differed = region.take_differed();
        if busy && region.home.kind == Kind::Mapped {
            let now = Instant::now();
            region.due = region.due.max(Some(now + GLIMPSE.max(GLIMPSES * (now - started))));
            if differed {
                // The program learns from it how far the device has come: what is taken to be as it
                // was may have changed before.
                regions.values_mut().for_each(|region| region.distrust(store, moved));
            }
        }
    }

    /// Has running kernels and the program see what the other has written to memory that stays
    /// accessible, on the pager's thread; when to call again.
    fn look_in_time(&self) -> Option<Duration> {
        let store = self.store().ok()?;
        let mut inner = self.lock();
        let now = Instant::now();
        let due = inner.looks.due()?;
        if due > now {
            return Some(due - now);
        }
        if inner.outstanding.is_empty() || inner.opens.is_empty() {
            inner.looks.found_nothing();
            return inner.looks.due().map(|due| due.saturating_duration_since(now));
        }
        // What cannot be sent now is reported by the program's next call.
        let sent = inner.flush_opens(store).unwrap_or(false);
        let mut question = Wait::question(inner.seed);
        inner.opens.expect(&mut question, false, &mut { MAX_COMPARED });
        let ctx = inner.opens.first().map(|(home, _)| home.ctx)?;
        // Threads queue work meanwhile.
        drop(inner);
        let same = store.compare(ctx, question.seed(), question.known());
        let mut inner = self.lock();
        let Inner { opens, looks, moved, outstanding, .. } = &mut *inner;
        // Once a wait has ended, it is what brings bytes.
        let came = match same {
            Ok(same) if !outstanding.is_empty() => opens.take_look(store, (&question, same), moved),
            _ => false,
        };
        looks.looked(now.elapsed(), sent || came);
        looks.due().map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Closes mapped memory that has been open long enough while the device works, on the pager's
    /// thread; when to call again.
    fn close_in_time(&self) -> Option<Duration> {
        let store = self.store().ok()?;
        let mut inner = self.lock();
        let now = Instant::now();
        let is_due = |region: &Region| region.due.is_some_and(|due| due <= now);
        if inner.regions.values().any(is_due) {
            if !inner.outstanding.is_empty() {
                let _ = inner.flush(store, is_due);
            }
            inner
                .regions
                .values_mut()
                .filter(|region| is_due(region))
                .for_each(|region| region.due = region.kept_until());
        }
        inner
            .regions
            .values()
            .filter_map(|region| region.due)
            .min()
            .map(|due| due.saturating_duration_since(now))
    }
}

/// Tells each pager whether others have anything tracked.
fn tell_all() {
    let pagers = PAGERS.lock();
    for (place, pager) in pagers.iter().enumerate() {
        let others = pagers.iter().enumerate().filter(|(other, _)| *other != place);
        pager.set_active(OTHERS, others.into_iter().any(|(_, other)| other.is_active()));
    }
}
