//! The addresses that the engines of a process have together: each has a part of its own, and they
//! share one for reservations.
//!
//! Compiled code of each engine checks against the whole arena, with a validity table of the
//! engine's own, so that kernels of every engine reach what is mapped into reservations as they
//! reach everything else.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::region::Region;
use super::{ALIGN, GRANULE_SHIFT, Mapping, page_bytes};

/// The most address space of an engine for shared and local memory of running blocks and kernel
/// parameters.
const MOST_INTERNAL: u64 = 64 << 30;
/// The least of it, where many engines share the addresses.
const LEAST_INTERNAL: u64 = 16 << 30;
/// The least address space for reservations, beyond as much as there is memory.
const LEAST_RESERVED: u64 = 1 << 30;

pub(crate) struct Arena {
    mapping: Mapping,
    /// Bytes of device memory of each engine.
    total: u64,
    /// Bytes of addresses of each engine for device memory, and for the engine's own.
    pub(super) device_span: u64,
    pub(super) internal_span: u64,
    /// First address for reservations.
    pub(super) reserved_base: u64,
    pub(super) reserved: Mutex<Region>,
}

impl Arena {
    /// Takes the addresses for so many engines with `total` bytes of device memory each:
    /// `addresses` bytes in all if these are enough. What the memory does not need is for
    /// reservations, at least half of it if the memory lets it.
    pub(super) fn new(engines: u64, total: u64, addresses: u64) -> io::Result<Arc<Arena>> {
        let total = total.max(ALIGN).next_multiple_of(ALIGN);
        // Twice the memory: fragmentation of addresses must not look like memory that is used up.
        let device_span = (total * 2).next_multiple_of(1 << 30) + (1 << 30);
        let half = (addresses / 2 / engines) & !(page_bytes() - 1);
        let internal_span = half.saturating_sub(device_span).clamp(LEAST_INTERNAL, MOST_INTERNAL);
        let own = engines * (device_span + internal_span);
        let reserved_span = addresses.saturating_sub(own).max(engines * total + LEAST_RESERVED)
            & !(page_bytes() - 1);
        let mapping = Mapping::new(own + reserved_span)?;
        let reserved_base = mapping.base + own;
        let reserved =
            Mutex::new(Region::new(reserved_base, reserved_base + reserved_span, reserved_span));
        Ok(Arc::new(Arena { mapping, total, device_span, internal_span, reserved_base, reserved }))
    }

    pub(super) fn base(&self) -> u64 {
        self.mapping.base
    }

    pub(super) fn span(&self) -> u64 {
        self.mapping.len
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// First address of device memory of the engine of this number.
    pub(super) fn device_base(&self, engine: u64) -> u64 {
        self.base() + engine * (self.device_span + self.internal_span)
    }

    /// A validity table of one engine.
    pub(super) fn validity(&self) -> io::Result<Mapping> {
        Mapping::new(self.span() >> GRANULE_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;

    /// What a server may reserve by address, wherever in the first 64 GiB of a window of 2 TiB the
    /// arena lies.
    #[test]
    fn the_upper_half_of_a_window_is_for_reservations() {
        for engines in 1..=16 {
            let arena = Arena::new(engines, 16 * GIB, 7 * (TIB / 4)).expect("reserve");
            assert_eq!(arena.span(), 7 * (TIB / 4));
            assert!(arena.reserved_base - arena.base() <= 7 * (TIB / 8), "{engines}");
            let mut reserved = arena.reserved.lock();
            for before in [0, 64 * GIB] {
                let window = arena.base() - before;
                let taken = reserved.alloc_at(window + TIB, 3 * (TIB / 4) - (2 << 20));
                assert_eq!(
                    taken,
                    Ok(window + TIB),
                    "{engines} engines, {before} bytes before them"
                );
                reserved.free(window + TIB);
            }
        }
    }

    #[test]
    fn engines_too_large_for_the_addresses_have_more() {
        let arena = Arena::new(4, 512 * GIB, TIB).expect("reserve");
        assert_eq!((arena.device_span, arena.internal_span), (1025 * GIB, LEAST_INTERNAL));
        assert_eq!(arena.span(), 4 * (1025 + 16) * GIB + 4 * 512 * GIB + LEAST_RESERVED);
    }
}
