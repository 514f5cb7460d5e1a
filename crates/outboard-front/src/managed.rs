//! Managed memory: allocations, and what a program says about where it wants them.

use core::ffi::c_int;

use crate::backend::{Result, UnifiedPtr};
use crate::border::require;
use crate::memory::{self, Allocation, Kind};
use crate::process::Front;

pub(crate) use crate::parts::managed::Wishes;

pub(crate) const NOWHERE: c_int = -2;
/// Advice is kept for pieces of this size, as drivers do.
pub(crate) const PIECE: u64 = 4096;

pub(crate) const NO_WISHES: Wishes =
    Wishes { read_mostly: false, preferred: NOWHERE, accessed_by: Vec::new(), prefetched: NOWHERE };

/// Forgets the advice for a freed allocation.
pub(crate) fn forget(front: &'static Front, base: UnifiedPtr, bytes: u64) {
    let mut wishes = front.managed.wishes.lock();
    if !wishes.is_empty() {
        let gone: Vec<UnifiedPtr> =
            wishes.range(base.range(bytes)).map(|(piece, _)| *piece).collect();
        gone.iter().for_each(|piece| drop(wishes.remove(piece)));
    }
}

/// Checks that `bytes` at `address` are managed memory, all of one allocation.
pub(crate) fn check(front: &'static Front, address: UnifiedPtr, bytes: u64) -> Result<Allocation> {
    require(bytes > 0)?;
    let allocation = memory::check_device(front, address.device(), bytes)?;
    require(matches!(allocation.kind, Kind::Managed | Kind::ManagedGlobal))?;
    Ok(allocation)
}

/// The first addresses of the pieces that overlap a range of managed memory.
pub(crate) fn pieces(address: UnifiedPtr, bytes: u64) -> impl Iterator<Item = UnifiedPtr> {
    (address.0 & !(PIECE - 1)..address.0 + bytes).step_by(PIECE as usize).map(UnifiedPtr)
}

/// The advice for the pieces of a range of managed memory.
pub(crate) fn wishes(
    front: &'static Front,
    address: UnifiedPtr,
    bytes: u64,
) -> Result<Vec<Wishes>> {
    check(front, address, bytes)?;
    let wishes = front.managed.wishes.lock();
    let pieces = pieces(address, bytes);
    let mut all: Vec<Wishes> =
        pieces.map(|piece| wishes.get(&piece).cloned().unwrap_or(NO_WISHES)).collect();
    all.dedup();
    Ok(all)
}
