//! The memory that a session has, and what it counts for.

use std::sync::Arc;

use outboard_transport::reserved::Reserved;
use outboard_wire::{ContextId, DevicePtr};

use super::allocations::Allocations;
use super::arena::{Arena, Offer};
use super::budget::{Budget, Charge, What};
use super::mapped::Mapped;
use super::opened::Opened;
use super::pools::Pools;
use super::returning::Returning;
use super::shares::Shared;
use super::space::Space;

/// The parts that know of memory.
pub(crate) struct Memory {
    /// What the client may name.
    pub(crate) allocations: Allocations,
    /// Reservations, physical memory and mappings.
    pub(crate) space: Space,
    pub(crate) arena: Arena,
    /// What other sessions may open.
    pub(crate) shared: Shared,
    /// What other sessions have shared.
    pub(crate) opened: Opened,
    /// Memory of the client's program that the device uses, too.
    pub(crate) mapped: Mapped,
    pub(crate) pools: Pools,
    pub(crate) budget: Budget,
    /// What the client has freed and the driver does not have back yet.
    pub(crate) returning: Returning,
}

impl Memory {
    pub(crate) fn new(budget: Budget, addresses: Arc<Reserved>, arena: Option<Offer>) -> Memory {
        let mut space = Space::default();
        if let Some(terms) = arena.map(|offer| offer.terms) {
            space.reserve(DevicePtr(terms.address), terms.bytes);
        }
        Memory {
            allocations: Allocations::default(),
            space,
            arena: Arena::new(arena),
            shared: Shared::default(),
            opened: Opened::default(),
            mapped: Mapped::new(addresses),
            pools: Pools::default(),
            budget,
            returning: Returning::default(),
        }
    }

    /// Memory of a context begins at an address, and counts.
    pub(crate) fn add(&mut self, ctx: ContextId, address: DevicePtr, bytes: u64, charge: Charge) {
        self.budget.keep(ctx, What::At(address), charge);
        self.allocations.insert(address, bytes, ctx);
    }

    /// Forgets what a context has. What it counts for, the budget knows still.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        self.allocations.forget(ctx);
        self.mapped.forget(ctx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MemoryLimits;

    #[test]
    fn memory_counts_until_what_it_counts_for_is_released() {
        const ONE: ContextId = ContextId(1);
        const TWO: ContextId = ContextId(2);
        let mut memory =
            Memory::new(Budget::new(MemoryLimits::all(1, 1 << 20), None), Arc::default(), None);
        for (ctx, address) in [(ONE, 0x1000), (ONE, 0x2000), (TWO, 0x3000)] {
            let charge = memory.budget.charge(0, 512, 0).unwrap();
            memory.add(ctx, DevicePtr(address), 512, charge);
        }
        assert_eq!((memory.budget.held(0), memory.allocations.len()), (3 * 512, 3));
        assert!(memory.allocations.check(DevicePtr(0x1000), 512).is_ok());
        drop(memory.budget.release(ONE, What::At(DevicePtr(0x1000))));
        assert_eq!(memory.budget.held(0), 2 * 512);
        memory.forget(ONE);
        assert_eq!((memory.budget.held(0), memory.allocations.len()), (2 * 512, 1));
        drop(memory.budget.release_all(ONE));
        assert_eq!(memory.budget.held(0), 512);
        assert!(memory.allocations.check(DevicePtr(0x3000), 512).is_ok());
    }
}
