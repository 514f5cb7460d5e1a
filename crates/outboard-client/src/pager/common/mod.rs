//! Memory that kernels of several servers use: page-locked and managed memory, once a second server
//! needs it. Decision 49 has the rule; [`region`] carries it out for one range.
//!
//! Each server has the memory at the same addresses, and this process has all servers' bytes
//! together. A range is here instead of in a server's own pager. The pagers of the servers that
//! have a part in it call this where they call their own regions: before and after work, waits and
//! functions of the program.
//!
//! One lock orders all of it. Who holds it may take a pager's lock, and not the other way around.

mod ending;
mod marks;
mod memory;
mod mirror;
mod region;
mod taking;
#[cfg(test)]
mod tests;
mod touches;
mod work;

use std::collections::BTreeMap;
use std::ops::Range;

use outboard_front::backend::{ContextId, ServerId, UnifiedPtr};
use parking_lot::{Mutex, MutexGuard};

use super::Pager;
use super::fault::Service;
use super::moved::Moved;
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

impl State {
    fn region(&self, address: UnifiedPtr) -> Option<&Region> {
        let (_, region) = self.regions.range(..=address).next_back()?;
        region.range().contains(&address).then_some(region)
    }

    fn publish(&self, service: &'static Service, more: Option<Range<UnifiedPtr>>) {
        let regions = self.regions.values().filter(|region| region.memory.is_protectable());
        let ranges = regions.map(Region::range).chain(more);
        service.publish(ranges.map(|range| (range.start, range.end)));
    }
}
