//! A driver's support for an arena: its addresses, and whether it must be told of allocations.

use std::ops::Range;

use outboard_abi::{CUdevice_attribute as A, CUmemAllocationGranularity_flags, CUresult, CUuuid};
use outboard_driver::{Table, call};
use outboard_wire::handshake::arena::Arena as Terms;
use outboard_wire::platform::{Device, Platform};
use outboard_wire::window::Window;

use crate::kinds::{location, memory_kind};

/// The driver's table for devices that check every access, and the slot in it.
static PARTS: CUuuid = CUuuid { bytes: bytes_of(b"outboard-parts-1") };
const SLOT: usize = 1;

const fn bytes_of(text: &[u8; 16]) -> [core::ffi::c_char; 16] {
    let (mut bytes, mut at) = ([0; 16], 0);
    while at < 16 {
        bytes[at] = text[at] as core::ffi::c_char;
        at += 1;
    }
    bytes
}

/// Says of which parts of a block may be used.
pub(super) type SetPart = unsafe extern "C" fn(u64, u64, u32) -> CUresult;
/// Its last argument.
pub(super) const CLOSED: u32 = 0;
pub(super) const OPEN: u32 = 1;
pub(super) const DIVIDED: u32 = 2;

/// The least arena that is of use.
const LEAST_ARENA: u64 = 16 << 30;

/// What a driver offers for an arena.
#[derive(Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) terms: Terms,
    pub(super) set_part: Option<SetPart>,
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
                    let set_part = set_part(table);
                    return Some(Offer {
                        terms: Terms { address, bytes, granule, told: set_part.is_some() },
                        set_part,
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

fn set_part(table: &Table) -> Option<SetPart> {
    let mut found: *const core::ffi::c_void = core::ptr::null();
    call!(table, cuGetExportTable(&raw mut found, &raw const PARTS)).ok()?;
    let words = found.cast::<usize>();
    if words.is_null() {
        return None;
    }
    // SAFETY: such a table begins with its bytes, and has that many.
    let function =
        unsafe { (words.read() > SLOT * size_of::<usize>()).then(|| words.add(SLOT).read()) }?;
    // SAFETY: what the table with this name has in this slot.
    (function != 0).then(|| unsafe { core::mem::transmute::<usize, SetPart>(function) })
}
