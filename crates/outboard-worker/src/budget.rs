//! The session's use and limit of each device's memory.
//!
//! A session with a limit sees a smaller device: an allocation beyond the limit gets that device's
//! error, and memory counts until the driver has taken it back, not until the client frees it. The
//! worker asks pools for their size, since only they know how much they keep.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use outboard_abi::{CUarray_format_enum as Format, CUresult};
use outboard_control::account::Seat;
use outboard_wire::{ContextId, DevicePtr, ObjectId};

/// Allocations from this size on take whole pages of the device.
const WHOLE_PAGES_FROM: u64 = 1 << 20;
/// Those pages.
const PAGE: u64 = 2 << 20;
/// The granularity to which smaller ones are rounded up.
const ALIGN: u64 = 512;

/// How often sessions of a lease that want its last memory at the same time try again, ...
const MEETINGS: u32 = 8;
/// ... and how much longer each of them waits than the one before.
const MEETING: Duration = Duration::from_micros(100);

/// The purpose of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// What begins at this address.
    At(DevicePtr),
    Array(ObjectId),
    Mipmap(ObjectId),
    /// Variables of a module.
    Module(ObjectId),
    /// The memory of a context for this limit of `cuCtxSetLimit`.
    Limit(u32),
    /// Local memory of kernels.
    Local,
}

/// What the session may have of each device, by ordinal.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryLimits(Vec<Option<u64>>);

impl MemoryLimits {
    /// No limit, for devices with ordinals below that.
    pub(crate) fn none(devices: u32) -> MemoryLimits {
        MemoryLimits((0..devices).map(|_| None).collect())
    }

    /// The same limit for all of them.
    #[cfg(test)]
    pub(crate) fn all(devices: u32, bytes: u64) -> MemoryLimits {
        MemoryLimits((0..devices).map(|_| Some(bytes)).collect())
    }

    pub(crate) fn set(&mut self, device: u32, bytes: u64) {
        if let Some(limit) = self.0.get_mut(device as usize) {
            *limit = Some(bytes);
        }
    }

    pub(crate) fn of(&self, device: u32) -> Option<u64> {
        self.0.get(device as usize).copied().flatten()
    }
}

/// Bytes that each device holds for the session, by ordinal.
#[derive(Debug, Default)]
struct Held {
    devices: Vec<AtomicU64>,
    /// Where they are counted instead, if other sessions of a lease see them.
    seat: Option<Seat>,
    /// Since each looker last asked.
    changed: [AtomicBool; 2],
}

impl Held {
    fn of(&self, device: u32) -> Option<&AtomicU64> {
        let own = self.devices.get(device as usize)?;
        Some(self.seat.and_then(|seat| seat.charged(device)).unwrap_or(own))
    }

    /// What the other sessions of the lease hold.
    fn others(&self, device: u32) -> u64 {
        self.seat.map_or(0, |seat| seat.others(device))
    }

    fn changed(&self) {
        self.changed.iter().for_each(|changed| changed.store(true, Ordering::Release));
    }
}

/// The observers of changes, each with a mark of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Looker {
    /// The function that publishes the memory held.
    Board,
    /// The function that returns granted memory that is not needed any more.
    Grants,
}

/// Memory that counts while this lives.
#[derive(Debug)]
pub(crate) struct Charge {
    held: Arc<Held>,
    device: u32,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(held) = self.held.of(self.device) {
            held.fetch_sub(self.bytes, Ordering::AcqRel);
            self.held.changed();
        }
    }
}

/// Page-locked memory of this machine that counts while this lives.
#[derive(Debug)]
pub(crate) struct Pinned {
    all: Arc<AtomicU64>,
    bytes: u64,
    _charge: Charge,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Half of the machine's memory, for each session: locked pages are lost to everybody else.
fn most_pinned() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)) / 2
}

/// The account of a session.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: MemoryLimits,
    /// Page-locked memory of this machine, in bytes.
    pinned: Arc<AtomicU64>,
    held: Arc<Held>,
    /// With the context that each goes with.
    charges: HashMap<(ContextId, What), Charge>,
}

/// Bytes that an allocation takes of a device.
pub(crate) fn taken(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(if bytes >= WHOLE_PAGES_FROM { PAGE } else { ALIGN })
        .unwrap_or(u64::MAX)
}

/// Bytes that an array takes: no less than its elements.
pub(crate) fn array_bytes(format: u32, channels: u32, extent: [u64; 3], levels: u32) -> u64 {
    let element = match Format(format) {
        Format::CU_AD_FORMAT_UNSIGNED_INT8 | Format::CU_AD_FORMAT_SIGNED_INT8 => 1,
        Format::CU_AD_FORMAT_UNSIGNED_INT16
        | Format::CU_AD_FORMAT_SIGNED_INT16
        | Format::CU_AD_FORMAT_HALF => 2,
        // Those that are packed or compressed take less.
        _ => 4,
    };
    let pixel = u64::from(channels.max(1)) * element;
    let first = extent.iter().fold(pixel, |bytes, side| bytes.saturating_mul((*side).max(1)));
    // Each level has at most half of the one before, in one dimension.
    let all =
        (0..levels.clamp(1, 32)).fold(0, |sum: u64, level| sum.saturating_add(first >> level));
    taken(all)
}

impl Budget {
    /// With these limits, which the sessions of a lease have together.
    pub(crate) fn new(limits: MemoryLimits, seat: Option<Seat>) -> Budget {
        let devices = limits.0.iter().map(|_| AtomicU64::new(0)).collect();
        let held = Held { devices, seat, changed: Default::default() };
        Budget { limits, pinned: Arc::default(), held: Arc::new(held), charges: HashMap::new() }
    }

    /// Whether there is a limit on any device.
    pub(crate) fn is_limited(&self) -> bool {
        self.limits.0.iter().any(Option::is_some)
    }

    /// What the session may hold of a device now, if there is a limit: what other sessions of its
    /// lease leave.
    pub(crate) fn limit(&self, device: u32) -> Option<u64> {
        self.limits.of(device).map(|limit| limit.saturating_sub(self.held.others(device)))
    }

    /// The limit itself, which is the size of the device that the session sees.
    pub(crate) fn size(&self, device: u32) -> Option<u64> {
        self.limits.of(device)
    }

    /// Bytes that are held of a device, apart from pools.
    pub(crate) fn held(&self, device: u32) -> u64 {
        self.held.of(device).map_or(0, |held| held.load(Ordering::Acquire))
    }

    /// Tells the other sessions of the lease what pools and graphs hold.
    pub(crate) fn tell_elsewhere(&self, device: u32, bytes: u64) {
        if let Some(seat) = self.held.seat {
            seat.set_elsewhere(device, bytes);
        }
    }

    /// Counts memory from now on, if it fits beside the `others` that the account does not know.
    pub(crate) fn charge(&self, device: u32, bytes: u64, others: u64) -> Result<Charge, CUresult> {
        let held = self.held.of(device).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        for attempt in 1.. {
            let most = self.limit(device).unwrap_or(u64::MAX).saturating_sub(others);
            let add = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= most);
            let added = held.fetch_update(Ordering::SeqCst, Ordering::Acquire, add);
            added.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            let charge = Charge { held: Arc::clone(&self.held), device, bytes };
            // Another session of the lease may have added at the same time, without seeing this.
            let most = self.limit(device).unwrap_or(u64::MAX).saturating_sub(others);
            if self.held(device) <= most {
                self.changed();
                return Ok(charge);
            }
            drop(charge);
            if attempt == MEETINGS {
                break;
            }
            // Two that meet again and again would both go without what one could have.
            std::thread::sleep(MEETING * (self.held.seat.map_or(0, |seat| seat.number()) + 1));
        }
        Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Counts page-locked memory from now on, for which `charge` has been made, if the machine has
    /// so much to spare.
    pub(crate) fn pin(&self, bytes: u64, charge: Charge) -> Result<Pinned, CUresult> {
        let add = |all: u64| all.checked_add(bytes).filter(|sum| *sum <= most_pinned());
        let added = self.pinned.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        added.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(Pinned { all: Arc::clone(&self.pinned), bytes, _charge: charge })
    }

    /// The memory of pools has changed.
    pub(crate) fn changed(&self) {
        self.held.changed();
    }

    /// Whether anything has changed since this was asked last for the same looker.
    pub(crate) fn has_changed(&self, looker: Looker) -> bool {
        let changed = &self.held.changed[looker as usize];
        changed.load(Ordering::Acquire) && changed.swap(false, Ordering::AcqRel)
    }

    /// Keeps a charge for as long as the thing is there. What was kept for it before is free.
    pub(crate) fn keep(&mut self, ctx: ContextId, what: What, charge: Charge) {
        self.charges.insert((ctx, what), charge);
    }

    /// Bytes that count for a thing.
    pub(crate) fn kept(&self, ctx: ContextId, what: What) -> u64 {
        self.charges.get(&(ctx, what)).map_or(0, |charge| charge.bytes)
    }

    /// The charge of a thing that is about to go; it is to be dropped once the driver has taken the
    /// memory back.
    #[must_use]
    pub(crate) fn release(&mut self, ctx: ContextId, what: What) -> Option<Charge> {
        self.charges.remove(&(ctx, what))
    }

    /// The charges of a context that is about to go.
    #[must_use]
    pub(crate) fn release_all(&mut self, ctx: ContextId) -> Vec<Charge> {
        self.charges.extract_if(|(owner, _), _| *owner == ctx).map(|(_, charge)| charge).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_until_there_is_room() {
        let mut budget = Budget::new(MemoryLimits::all(2, 100), None);
        let first = budget.charge(0, 60, 0).unwrap();
        assert_eq!(budget.charge(0, 41, 0).err(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert_eq!(
            budget.charge(0, 40, 1).err(),
            Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
            "others count"
        );
        assert_eq!(budget.charge(0, u64::MAX, 0).err(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(budget.charge(0, 1, u64::MAX).is_err());
        budget.keep(ContextId(1), What::At(DevicePtr(0x1000)), first);
        let second = budget.charge(1, 100, 0).unwrap();
        budget.keep(ContextId(1), What::Array(ObjectId(7)), second);
        assert_eq!((budget.held(0), budget.held(1), budget.held(2)), (60, 100, 0));
        let going = budget.release(ContextId(1), What::At(DevicePtr(0x1000)));
        assert_eq!(budget.held(0), 60, "until the driver has it");
        drop(going);
        assert!(budget.charge(0, 100, 0).is_ok());
        assert!(
            budget.release(ContextId(2), What::Array(ObjectId(7))).is_none(),
            "another context's"
        );
        drop(budget.release_all(ContextId(1)));
        assert_eq!((budget.held(0), budget.held(1)), (0, 0));
        assert!(budget.charge(2, 1, 0).is_err(), "no such device");
    }

    #[test]
    fn each_looker_hears_of_every_change() {
        let budget = Budget::new(MemoryLimits::none(1), None);
        assert!(!budget.has_changed(Looker::Board) && !budget.has_changed(Looker::Grants));
        let charge = budget.charge(0, 60, 0).unwrap();
        assert!(budget.has_changed(Looker::Board) && !budget.has_changed(Looker::Board));
        drop(charge);
        assert!(budget.has_changed(Looker::Board));
        assert!(budget.has_changed(Looker::Grants), "though the other has asked before");
        assert!(!budget.has_changed(Looker::Board) && !budget.has_changed(Looker::Grants));
    }

    #[test]
    fn sessions_of_a_lease_have_its_memory_together() {
        let account = outboard_control::account::Account::create().unwrap();
        let budget = |seat| {
            let seat = Seat::at(account.memory(), seat).unwrap();
            Budget::new(MemoryLimits::all(2, 100), Some(seat))
        };
        let (one, two) = (budget(0), budget(1));
        let first = one.charge(0, 60, 0).unwrap();
        assert_eq!((two.limit(0), two.size(0), two.limit(1)), (Some(40), Some(100), Some(100)));
        assert!(two.charge(0, 41, 0).is_err());
        let second = two.charge(0, 40, 0).unwrap();
        assert_eq!((one.held(0), two.held(0), one.limit(0)), (60, 40, Some(60)));
        drop(first);
        one.tell_elsewhere(0, 50);
        assert!(two.charge(0, 11, 0).is_err() && two.charge(0, 10, 0).is_ok());
        drop(second);
        account.clear(0);
        assert!(two.charge(0, 100, 0).is_ok());
    }

    /// Whoever wins, they never have more than there is, and one of two has what is there.
    #[test]
    fn sessions_that_ask_at_once_never_have_too_much() {
        let account = outboard_control::account::Account::create().unwrap();
        let budgets: Vec<Budget> = (0..4)
            .map(|seat| {
                let seat = Seat::at(account.memory(), seat).unwrap();
                Budget::new(MemoryLimits::all(1, 100), Some(seat))
            })
            .collect();
        let now = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for budget in &budgets {
                let now = &now;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        if let Ok(charge) = budget.charge(0, 30, 0) {
                            assert!(now.fetch_add(30, Ordering::SeqCst) + 30 <= 100);
                            now.fetch_sub(30, Ordering::SeqCst);
                            drop(charge);
                        }
                    }
                });
            }
        });
        assert!(budgets[0].charge(0, 100, 0).is_ok());
    }

    #[test]
    fn sizes_are_what_devices_take() {
        assert_eq!(
            (taken(1), taken(513), taken(1 << 20), taken((2 << 20) + 1)),
            (512, 1024, 2 << 20, 4 << 20)
        );
        assert_eq!(taken(u64::MAX), u64::MAX);
        let float = Format::CU_AD_FORMAT_FLOAT.0;
        assert_eq!(array_bytes(float, 4, [1024, 1024, 0], 1), 16 << 20);
        assert_eq!(array_bytes(float, 4, [1024, 1024, 0], 2), 24 << 20);
        assert_eq!(array_bytes(float, 4, [u64::MAX, 9, 9], 99), u64::MAX);
    }
}
