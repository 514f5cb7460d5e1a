//! Memory at addresses of the client's choice.
//!
//! The worker reserves a part of its window, the *arena*, before there is a client. The client
//! assigns its addresses and has whole *blocks* mapped there. A device that checks every access is
//! told which parts of a block are allocated; others need not know.

mod offer;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use outboard_abi::CUresult;
use outboard_driver::{Table, call};
use outboard_wire::handshake::arena::Arena as Terms;
use outboard_wire::{ContextId, DevicePtr};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::answer::Outcome;
use super::space::Mapping;

pub(super) use offer::Offer;

/// How long a block waits for another one to leave its addresses.
const PATIENCE: Duration = Duration::from_secs(2);

/// A block at its address.
struct Placed {
    /// The context whose memory it is.
    ctx: ContextId,
    bytes: u64,
}

/// The blocks that are mapped in the arena.
#[derive(Default)]
pub(super) struct Arena {
    offer: Option<Offer>,
    blocks: BTreeMap<DevicePtr, Placed>,
    /// Contexts that may use the memory of a context of another device, by that one, with the
    /// ordinals of their devices.
    peers: HashMap<ContextId, BTreeMap<ContextId, u32>>,
    /// Allocations that other sessions may have.
    shared: BTreeSet<DevicePtr>,
    leaving: Leaving,
}

impl Arena {
    pub(super) fn new(offer: Option<Offer>) -> Arena {
        Arena { offer, ..Arena::default() }
    }

    pub(super) fn terms(&self) -> Option<Terms> {
        self.offer.map(|offer| offer.terms)
    }

    /// Whether the driver is told of parts of blocks.
    pub(super) fn is_told(&self) -> bool {
        self.offer.is_some_and(|offer| offer.parts.is_some())
    }

    /// The block that all of these bytes lie in: where it begins, and its bytes.
    pub(super) fn block_of(&self, address: DevicePtr, bytes: u64) -> Option<(DevicePtr, u64)> {
        let (base, block) = self.blocks.range(..=address).next_back()?;
        let offset = address.since(*base);
        (offset < block.bytes && bytes <= block.bytes - offset).then_some((*base, block.bytes))
    }

    /// Whether a block of this context begins at an address.
    fn is_block(&self, address: DevicePtr, ctx: ContextId) -> bool {
        self.blocks.get(&address).is_some_and(|block| block.ctx == ctx)
    }

    /// Notes that other sessions may have the allocation at this address.
    pub(super) fn shared(&mut self, address: DevicePtr) {
        if self.block_of(address, 1).is_some() {
            self.shared.insert(address);
        }
    }
}

/// Blocks whose addresses will be free once the device is done with them.
#[derive(Clone, Default)]
struct Leaving(Arc<(Mutex<Vec<Range<u64>>>, Condvar)>);

impl Leaving {
    fn all(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.0.0.lock()
    }

    fn begin(&self, range: Range<u64>) {
        self.all().push(range);
    }

    fn end(&self, range: &Range<u64>) {
        self.all().retain(|other| other != range);
        self.0.1.notify_all();
    }

    /// Waits until none of these addresses is one of theirs, within reason.
    fn wait(&self, range: &Range<u64>) -> Outcome {
        let meets = |all: &mut Vec<Range<u64>>| {
            all.iter().any(|other| other.start < range.end && range.start < other.end)
        };
        let mut all = self.all();
        self.0.1.wait_while_for(&mut all, meets, PATIENCE);
        if meets(&mut all) { Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) } else { Ok(()) }
    }
}

/// A block on its way out of the arena; its memory counts until this is dropped.
pub(super) struct Gone {
    address: DevicePtr,
    bytes: u64,
    #[expect(dead_code, reason = "kept for what ends with it")]
    mapping: Mapping,
}

impl Gone {
    /// Unmaps it. No work uses it any more.
    pub(super) fn unmap(self, table: &Table) {
        let outcome = call!(table, cuMemUnmap(self.address.0, self.bytes as usize));
        if let Err(error) = outcome {
            tracing::warn!(
                error = error.0,
                address = self.address.0,
                "a block of memory could not be unmapped"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_beyond_a_block_is_in_none() {
        let mut arena = Arena::default();
        let base = DevicePtr(0x1000);
        arena.blocks.insert(base, Placed { ctx: ContextId(1), bytes: 0x400 });
        let block = Some((base, 0x400));
        assert_eq!(
            (arena.block_of(base, 0x400), arena.block_of(base.offset(0x3ff), 1)),
            (block, block)
        );
        for (address, bytes) in
            [(0xfff, 1), (0x1400, 1), (0x1400, 0), (0x1001, 0x400), (0x1200, u64::MAX), (0x9000, 8)]
        {
            assert_eq!(arena.block_of(DevicePtr(address), bytes), None, "{address:#x} {bytes:#x}");
        }
        assert!(arena.is_block(base, ContextId(1)) && !arena.is_block(base, ContextId(2)));
    }

    #[test]
    fn a_block_waits_for_one_that_leaves_its_addresses() {
        let leaving = Leaving::default();
        leaving.begin(10..20);
        assert_eq!((leaving.wait(&(20..30)), leaving.wait(&(0..10))), (Ok(()), Ok(())));
        let other = leaving.clone();
        let ended = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            other.end(&(10..20));
        });
        assert_eq!(leaving.wait(&(19..21)), Ok(()));
        ended.join().unwrap();
        assert!(leaving.all().is_empty());
    }
}
