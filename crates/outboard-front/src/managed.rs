//! Managed memory: allocations, and what a program says about where it wants them.

use core::ffi::c_int;
use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::backend::Result;
use crate::border::require;
use crate::memory::{self, Kind};
use crate::process::Front;

pub(crate) const NOWHERE: c_int = -2;
/// Advice is kept for pieces of this size, as drivers do.
pub(crate) const PIECE: u64 = 4096;

/// Where a program wants a piece of memory. Places are device ordinals, [`CPU`] or [`NOWHERE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: c_int,
    pub(crate) accessed_by: Vec<c_int>,
    pub(crate) prefetched: c_int,
}

pub(crate) const NO_WISHES: Wishes =
    Wishes { read_mostly: false, preferred: NOWHERE, accessed_by: Vec::new(), prefetched: NOWHERE };

/// What a process wishes of its managed memory.
pub(crate) struct Managed {
    /// By allocation and piece; pieces about which nothing was said are not there.
    pub(crate) wishes: Mutex<BTreeMap<u64, Wishes>>,
}

impl Managed {
    pub(crate) const fn new() -> Managed {
        Managed { wishes: Mutex::new(BTreeMap::new()) }
    }
}

/// Forgets what was said about an allocation that is gone.
pub(crate) fn forget(front: &'static Front, base: u64, bytes: u64) {
    let mut wishes = front.managed.wishes.lock();
    if !wishes.is_empty() {
        let gone: Vec<u64> = wishes.range(base..base + bytes).map(|(piece, _)| *piece).collect();
        gone.iter().for_each(|piece| drop(wishes.remove(piece)));
    }
}

/// Checks that `bytes` at `address` are managed memory, all of one allocation.
pub(crate) fn check(front: &'static Front, address: u64, bytes: u64) -> Result<()> {
    require(bytes > 0)?;
    let allocation = memory::check_device(front, address, bytes)?;
    require(matches!(allocation.kind, Kind::Managed | Kind::ManagedGlobal))
}

/// What is wished for the pieces of a range of managed memory.
pub(crate) fn wishes(front: &'static Front, address: u64, bytes: u64) -> Result<Vec<Wishes>> {
    check(front, address, bytes)?;
    let wishes = front.managed.wishes.lock();
    let pieces = (address & !(PIECE - 1)..address + bytes).step_by(PIECE as usize);
    let mut all: Vec<Wishes> = pieces.map(|piece| wishes.get(&piece).cloned().unwrap_or(NO_WISHES)).collect();
    all.dedup();
    Ok(all)
}
