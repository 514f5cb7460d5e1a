//! What happens when a check in compiled code fails.

use crate::exec::context::{STATUS_FAULT, ThreadContext};
use crate::fault::{FaultKind, Space};

/// Spaces as compiled code passes them.
pub(crate) fn space_code(space: Space) -> u64 {
    match space {
        Space::Generic => 0,
        Space::Global => 1,
        Space::Shared => 2,
        Space::Local => 3,
        Space::Const => 4,
        Space::Param => 5,
    }
}

fn space_from(code: u64) -> Space {
    match code {
        1 => Space::Global,
        2 => Space::Shared,
        3 => Space::Local,
        4 => Space::Const,
        5 => Space::Param,
        _ => Space::Generic,
    }
}

/// `size | space << 8`
pub(crate) fn access_info(size: u32, space: Space) -> u64 {
    u64::from(size) | space_code(space) << 8
}

fn kind(addr: u64, info: u64) -> FaultKind {
    let (size, space) = ((info & 0xff) as u32, space_from(info >> 8));
    if addr.is_multiple_of(u64::from(size)) {
        FaultKind::IllegalAddress { addr, size, space }
    } else {
        FaultKind::MisalignedAddress { addr, size, space }
    }
}

/// An access to an address that is not valid device memory: finds registered host memory, or
/// records a fault and gives 0.
pub(crate) unsafe extern "C" fn resolve(
    thread: *const ThreadContext,
    addr: u64,
    site: u64,
    info: u64,
) -> u64 {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    let state = thread.state();
    let size = info & 0xff;
    let memory = &state.grid().core().memory;
    if addr.is_multiple_of(size) {
        // Neighbouring accesses hit the same range: it is looked up again only when registrations
        // have changed.
        let changes = memory.host_changes();
        let (mut start, mut bytes) = thread.host_range.get();
        if thread.host_seen.get() != changes || addr.wrapping_sub(start) >= bytes {
            (start, bytes) = memory.host_range(addr).unwrap_or_default();
            thread.host_range.set((start, bytes));
            thread.host_seen.set(changes);
        }
        let offset = addr.wrapping_sub(start);
        if offset < bytes && size <= bytes - offset {
            return addr;
        }
    }
    state.record_fault(thread, site, kind(addr, info));
    0
}

/// An access outside its window.
pub(crate) unsafe extern "C" fn window_fault(
    thread: *const ThreadContext,
    offset: u64,
    site: u64,
    info: u64,
) -> u32 {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    thread.state().record_fault(thread, site, kind(offset, info))
}

/// Reasons to fault that are no memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Stop {
    Trap = 0,
    StackOverflow = 1,
    InvalidCall = 2,
    DeviceLaunch = 3,
    HeapCorruption = 4,
}

/// Records a fault; `value` belongs to the reason.
pub(crate) unsafe extern "C" fn stop(
    thread: *const ThreadContext,
    reason: u64,
    value: u64,
    site: u64,
) -> u32 {
    // SAFETY: compiled code passes its own context.
    let thread = unsafe { &*thread };
    let kind = match reason {
        r if r == Stop::StackOverflow as u64 => FaultKind::StackOverflow,
        r if r == Stop::InvalidCall as u64 => FaultKind::InvalidCall(value),
        r if r == Stop::DeviceLaunch as u64 => {
            FaultKind::Unsupported("launching a kernel from a kernel".into())
        }
        r if r == Stop::HeapCorruption as u64 => {
            FaultKind::IllegalAddress { addr: value, size: 1, space: Space::Generic }
        }
        _ => FaultKind::Trap,
    };
    thread.state().record_fault(thread, site, kind);
    STATUS_FAULT
}
