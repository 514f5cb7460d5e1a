//! A driver's support for an arena: its addresses, and whether it must be told of allocations.

use std::ops::Range;

use outboard_abi::own_tables::Parts;
use outboard_abi::{CUdevice_attribute as A, CUmemAllocationGranularity_flags};
use outboard_driver::{Table, call};
use outboard_wire::handshake::arena::Arena as Terms;
use outboard_wire::platform::{Device, Platform};
use outboard_wire::window::Window;

use crate::kinds::{location, memory_kind};
use crate::own_table::own_table;

/// The least arena that is of use.
const LEAST_ARENA: u64 = 16 << 30;

/// What a driver offers for an arena.
#[derive(Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) terms: Terms,
    pub(super) parts: Option<&'static Parts>,
}

impl Offer {
    /// Reserves a part of the window, its upper half if that is free, if all devices can have
    /// memory at addresses that are given.
    pub(crate) fn reserve(table: &Table, platform: &Platform, window: Window) -> Option<Offer> {
        let granule = granule(table, platform)?;
        let Range { start, end } = window.range();
        let mut bytes = (end - start) / 2;
        while bytes >= LEAST_ARENA {
            let (mut address, hint) = (0, end - bytes);
            if call!(
                table,
                cuMemAddressReserve(&raw mut address, bytes as usize, granule as usize, hint, 0)
            )
            .is_ok()
            {
                if window.contains(address, bytes) && address.is_multiple_of(granule) {
                    let parts = own_table(table, Parts::NAME);
                    return Some(Offer {
                        terms: Terms { address, bytes, granule, told: parts.is_some() },
                        parts,
                    });
                }
                let _ = call!(table, cuMemAddressFree(address, bytes as usize));
            }
            bytes /= 2;
        }
        None
    }

    /// It, if a session with these devices can do with memory that one of them has access to. Of
    /// copies between NVIDIA's it is not known. Otherwise the driver has the addresses back.
    pub(crate) fn suiting(self, table: &Table, platform: &Platform) -> Option<Offer> {
        if self.terms.told || platform.devices.len() == 1 {
            return Some(self);
        }
        let _ = call!(table, cuMemAddressFree(self.terms.address, self.terms.bytes as usize));
        None
    }
}

pub(super) fn has(device: &Device, attribute: A) -> bool {
    device.attribute(attribute.0) == Some(1)
}

/// Bytes of which blocks must be multiples on all devices.
fn granule(table: &Table, platform: &Platform) -> Option<u64> {
    let of = |device: &Device| {
        let prop = memory_kind(location(device.id), 0, false);
        let option = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let mut bytes = 0usize;
        let asked =
            call!(table, cuMemGetAllocationGranularity(&raw mut bytes, &raw const prop, option));
        (has(device, A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) && asked.is_ok())
            .then_some(bytes as u64)
    };
    platform.devices.iter().map(of).try_fold(1, |most: u64, bytes| Some(most.max(bytes?)))
}
