//! Memory that kernels of several servers use: page-locked and managed memory, once a second server
//! needs it. Decision 49 has the rule; [`region`] carries it out for one range.
//!
//! Each server has the memory at the same addresses, and this process has all servers' bytes
//! together. A range is here instead of in a server's own pager. The pagers of the servers that
//! have a part in it call this where they call their own regions: before and after work, waits and
//! functions of the program.
//!
//! One lock orders all of it. Who holds it may take a pager's lock, and not the other way around.

mod marks;
mod memory;
mod mirror;
mod region;
mod taking;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result, ServerId, UnifiedPtr};
use parking_lot::{Mutex, MutexGuard};

use super::fault::{self, Service};
use super::moved::Moved;
use super::{Pager, Store};
use crate::speech;
use region::{Region, Working};

pub(crate) use taking::{Lent, Part};

/// The memory of a process that kernels of several servers use.
pub(crate) struct Common {
    state: Mutex<State>,
    service: Service,
}

struct State {
    is_served: bool,
    regions: BTreeMap<UnifiedPtr, Region>,
    /// The pagers of the servers that have a part in any of it.
    pagers: BTreeMap<ServerId, &'static Pager>,
    working: Working,
    /// Of memory that is not here any more.
    moved: BTreeMap<ServerId, Moved>,
    faults: BTreeMap<ServerId, u64>,
}

/// What a server is to give up once no lock is held.
struct ToClose {
    mirrors: Vec<(&'static dyn Store, super::Home, Range<UnifiedPtr>)>,
}

impl ToClose {
    fn close(self) {
        for (store, home, whole) in self.mirrors {
            store.close(home, whole.start, whole.end.since(whole.start));
        }
    }
}

/// Says that what a lost server's kernels have written is lost.
fn say_lost(servers: Vec<ServerId>) {
    for server in servers {
        speech::say(format_args!(
            "server {} of the program's list (counted from 1) cannot be asked for memory that \
             kernels of several servers use: what its kernels have written there since the last \
             wait is lost",
            server.place() + 1
        ));
    }
}

impl Common {
    pub(crate) const fn new() -> Common {
        Common {
            state: Mutex::new(State {
                is_served: false,
                regions: BTreeMap::new(),
                pagers: BTreeMap::new(),
                working: Working::new(),
                moved: BTreeMap::new(),
                faults: BTreeMap::new(),
            }),
            service: Service::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether kernels of a server may use the memory at an address, which is here.
    pub(crate) fn has(&self, server: ServerId, address: UnifiedPtr) -> bool {
        let state = self.lock();
        state.region(address).is_some_and(|region| region.mirror(server).is_some())
    }

    /// The context that the memory at an address is of, if it is here.
    pub(crate) fn owner(&self, address: UnifiedPtr) -> Option<ContextId> {
        self.lock().region(address).map(|region| region.owner)
    }

    /// All of what an address is part of, if it is here.
    pub(crate) fn whole(&self, address: UnifiedPtr) -> Option<Range<UnifiedPtr>> {
        self.lock().region(address).map(|region| region.whole.clone())
    }

    /// The ranges of a server's that share an address with this one.
    pub(super) fn of_server(
        &self,
        server: ServerId,
        range: &Range<UnifiedPtr>,
    ) -> Vec<Range<UnifiedPtr>> {
        let state = self.lock();
        let regions = state.regions.range(..range.end).rev().map(|(_, region)| region);
        regions
            .take_while(|region| region.range().end > range.start)
            .filter(|region| region.mirror(server).is_some())
            .map(Region::range)
            .collect()
    }

    /// What moved between this process and a server.
    pub(super) fn moved(&self, server: ServerId) -> Moved {
        let state = self.lock();
        let mut moved = state.moved.get(&server).copied().unwrap_or_default();
        moved.faults += state.faults.get(&server).copied().unwrap_or(0);
        for mirror in state.regions.values().filter_map(|region| region.mirror(server)) {
            moved.fetched += mirror.moved.fetched;
            moved.pushed += mirror.moved.pushed;
        }
        moved
    }
}

/// The hooks around work and waits of a server.
impl Common {
    /// Work of a server that may use any of its memory is about to be queued.
    pub(super) fn before_work(&self, server: ServerId) -> Result<()> {
        let mut state = self.lock();
        let State { regions, working, .. } = &mut *state;
        let mut outcome = Ok(());
        let mut armed = false;
        for region in regions.values_mut().filter(|region| region.mirror(server).is_some()) {
            if !armed {
                let _ = fault::arm();
                armed = true;
            }
            match region.prepare(server, working) {
                Ok(lost) => say_lost(lost),
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// The work is queued.
    pub(super) fn after_work(&self, server: ServerId) {
        let mut state = self.lock();
        let State { regions, working, .. } = &mut *state;
        working.insert(server);
        let mut rings = false;
        for region in regions.values_mut() {
            if region.mirror(server).is_some()
                && region.workers(working) > 1
                && region.due.is_none()
            {
                region.look_again(Duration::ZERO);
                rings = true;
            }
        }
        if rings {
            self.service.ring();
        }
    }

    /// The program is about to wait for a server: kernels that poll memory see what the program has
    /// written there.
    pub(super) fn before_wait(&self) {
        let mut state = self.lock();
        let State { regions, working, .. } = &mut *state;
        if working.is_empty() {
            return;
        }
        for region in regions.values_mut().filter(|region| region.workers(working) > 0) {
            region.close();
            for server in working.iter() {
                // The next call of the program in this server's contexts reports it.
                let _ = region.give(*server, working);
            }
        }
    }

    /// The program has waited for a server, which may still have work.
    pub(super) fn after_wait(&self, server: ServerId, is_busy: bool) {
        let mut state = self.lock();
        if !state.working.contains(&server) {
            return;
        }
        state.changed();
        if !is_busy {
            state.working.remove(&server);
        }
        // Kernels that still run may wait for what those have written that are done.
        let State { regions, working, .. } = &mut *state;
        let due = |region: &&mut Region| region.workers(working) > 0 && region.mirrors.len() > 1;
        if look_again(regions.values_mut().filter(due)) {
            self.service.ring();
        }
    }

    /// A stream of a server is about to call a function of the program.
    pub(super) fn before_function(&self) {
        self.lock().changed();
    }

    /// Such a function has returned: what it has written is there for what the stream does next.
    pub(super) fn after_function(&self, server: ServerId) {
        let mut state = self.lock();
        let State { regions, working, .. } = &mut *state;
        for region in regions.values_mut().filter(|region| region.mirror(server).is_some()) {
            // Failures are the context's, which the program's next call reports.
            let _ = region.prepare(server, working).map(say_lost);
        }
    }

    /// Work of a server that waits for another one's is about to go on: it has what all servers'
    /// kernels have written so far.
    pub(crate) fn hand_on(&self, to: ServerId) {
        let mut state = self.lock();
        let State { regions, working, .. } = &mut *state;
        for region in regions.values_mut().filter(|region| region.mirror(to).is_some()) {
            region.close();
            say_lost(region.gather_all(Some(to), Some(working)));
            // It goes on by word that may overtake what is sent. A failure is one that the next
            // call of the program in this server's contexts reports.
            let _ = region.give_and_settle(to, working);
        }
    }
}

/// Has regions be looked at soon; whether there are any that would not be anyway.
fn look_again<'a>(regions: impl Iterator<Item = &'a mut Region>) -> bool {
    let mut rings = false;
    for region in regions.filter(|region| region.due.is_none()) {
        region.look_again(Duration::ZERO);
        rings = true;
    }
    rings
}

impl State {
    fn region(&self, address: UnifiedPtr) -> Option<&Region> {
        let (_, region) = self.regions.range(..=address).next_back()?;
        region.range().contains(&address).then_some(region)
    }

    /// Servers may have written to any page: the program gets that when it touches the page.
    fn changed(&mut self) {
        let State { regions, working, .. } = self;
        let _ = fault::arm();
        for region in regions.values_mut().filter(|region| region.workers(working) > 0) {
            region.close();
            region.may_have_changed(working);
            if !region.memory.is_protectable() {
                say_lost(region.gather_all(None, None));
            }
        }
    }

    fn publish(&self, service: &'static Service, more: Option<Range<UnifiedPtr>>) {
        let regions = self.regions.values().filter(|region| region.memory.is_protectable());
        let ranges = regions.map(Region::range).chain(more);
        service.publish(ranges.map(|range| (range.start, range.end)));
    }
}

/// The thread that answers touches.
impl Common {
    fn start(&'static self, state: &mut State) -> Result<()> {
        if !state.is_served {
            self.service
                .start(move |address, write| self.open(address, write), move || self.look_in_time())
                .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            state.is_served = true;
        }
        fault::arm().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// Opens the page at an address. If it is not here any more, its thread finds that out by
    /// itself.
    fn open(&self, address: UnifiedPtr, write: bool) {
        let mut state = self.lock();
        let State { regions, working, faults, .. } = &mut *state;
        let region = regions.range_mut(..=address).next_back().map(|(_, region)| region);
        let Some(region) = region.filter(|region| region.range().contains(&address)) else {
            return;
        };
        if let Some(mirror) = region.mirrors.first() {
            *faults.entry(mirror.server).or_default() += 1;
        }
        say_lost(region.touch(address, write, working));
    }

    /// Looks at regions whose time has come; when to call again.
    fn look_in_time(&self) -> Option<Duration> {
        let mut state = self.lock();
        let State { regions, working, .. } = &mut *state;
        let now = Instant::now();
        for region in regions.values_mut() {
            if region.due.is_some_and(|due| due <= now) {
                region.due = None;
                if region.workers(working) > 0 {
                    let begun = Instant::now();
                    say_lost(region.exchange(working));
                    if region.workers(working) > 1 {
                        region.look_again(begun.elapsed());
                    }
                }
            }
        }
        let next = regions.values().filter_map(|region| region.due).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}
