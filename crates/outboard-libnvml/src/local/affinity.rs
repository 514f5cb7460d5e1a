//! Which processors and memory are near a device: none of this machine's is nearer than another,
//! since the device is on a server, or is all of the processors. Programs bind their threads to the
//! processors that are listed here, so those of a server's machine would be the wrong ones.

use std::ffi::{c_uint, c_ulong};

use outboard_abi::nvml::{
    NVML_AFFINITY_SCOPE_NODE, NVML_AFFINITY_SCOPE_SOCKET, nvmlAffinityScope_t, nvmlDevice_t,
};

use crate::border::{INVALID, NOT_SUPPORTED, Result};
use crate::{device, session};

/// Bits of a word of a set.
const WORD: usize = c_ulong::BITS as usize;

/// Where the kernel says which processors there are, and which nodes of memory.
const PROCESSORS: &str = "/sys/devices/system/cpu/online";
const NODES: &str = "/sys/devices/system/node/online";

/// Numbers as the kernel lists them, such as `0-3,8`: each as a bit.
fn parse_list(text: &str) -> Option<Vec<c_ulong>> {
    let mut set = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        for number in first..=last {
            let (word, bit) = (usize::from(number) / WORD, usize::from(number) % WORD);
            set.resize(set.len().max(word + 1), 0);
            set[word] |= 1 << bit;
        }
    }
    Some(set)
}

/// What the kernel lists there.
fn all(file: &str) -> Result<Vec<c_ulong>> {
    let text = std::fs::read_to_string(file).map_err(|_| NOT_SUPPORTED)?;
    parse_list(&text).ok_or(NOT_SUPPORTED)
}

/// Stores all that the kernel lists; what there is no room for is cut off, as NVML does.
///
/// # Safety
/// `set` is null or has room for so many words.
unsafe fn store(file: &str, device: nvmlDevice_t, room: c_uint, set: *mut c_ulong) -> Result<()> {
    let machine = session::machine()?;
    device::index(&machine, device)?;
    if set.is_null() || room == 0 {
        return Err(INVALID);
    }
    let mut words = all(file)?;
    words.resize(room as usize, 0);
    // SAFETY: there is room for as many, by the contract above.
    unsafe { core::ptr::copy_nonoverlapping(words.as_ptr(), set, words.len()) };
    Ok(())
}

fn check(scope: nvmlAffinityScope_t) -> Result<()> {
    let known = [NVML_AFFINITY_SCOPE_NODE, NVML_AFFINITY_SCOPE_SOCKET];
    if known.contains(&scope) { Ok(()) } else { Err(INVALID) }
}

pub(crate) unsafe fn nvmlDeviceGetCpuAffinity(
    device: nvmlDevice_t,
    room: c_uint,
    set: *mut c_ulong,
) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { store(PROCESSORS, device, room, set) }
}

pub(crate) unsafe fn nvmlDeviceGetCpuAffinityWithinScope(
    device: nvmlDevice_t,
    room: c_uint,
    set: *mut c_ulong,
    scope: nvmlAffinityScope_t,
) -> Result<()> {
    check(scope)?;
    // SAFETY: the same contract.
    unsafe { store(PROCESSORS, device, room, set) }
}

pub(crate) unsafe fn nvmlDeviceGetMemoryAffinity(
    device: nvmlDevice_t,
    room: c_uint,
    set: *mut c_ulong,
    scope: nvmlAffinityScope_t,
) -> Result<()> {
    check(scope)?;
    // SAFETY: the same contract.
    unsafe { store(NODES, device, room, set) }
}

/// Lets the calling thread run on all processors that are near the device.
pub(crate) unsafe fn nvmlDeviceSetCpuAffinity(device: nvmlDevice_t) -> Result<()> {
    let machine = session::machine()?;
    device::index(&machine, device)?;
    let set = all(PROCESSORS)?;
    // SAFETY: a set of as many bytes.
    let status = unsafe { libc::sched_setaffinity(0, size_of_val(&set[..]), set.as_ptr().cast()) };
    if status == 0 { Ok(()) } else { Err(NOT_SUPPORTED) }
}

pub(crate) unsafe fn nvmlDeviceClearCpuAffinity(device: nvmlDevice_t) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { nvmlDeviceSetCpuAffinity(device) }
}

/// The devices that are near a processor: all.
pub(crate) unsafe fn nvmlSystemGetTopologyGpuSet(
    processor: c_uint,
    count: *mut c_uint,
    devices: *mut nvmlDevice_t,
) -> Result<()> {
    let machine = session::machine()?;
    let online = all(PROCESSORS)?;
    let word = online.get(processor as usize / WORD).copied().unwrap_or(0);
    if word >> (processor as usize % WORD) & 1 == 0 || count.is_null() {
        return Err(INVALID);
    }
    let near: Vec<nvmlDevice_t> =
        (0..machine.platform().devices.len()).map(device::handle).collect();
    // SAFETY: valid, by the contract.
    let room = unsafe { count.replace(near.len() as c_uint) } as usize;
    if devices.is_null() {
        return if room == 0 { Ok(()) } else { Err(INVALID) };
    }
    // SAFETY: there is room for as many as was said, by the contract.
    unsafe { core::ptr::copy_nonoverlapping(near.as_ptr(), devices, room.min(near.len())) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(parse_list("0\n"), Some(vec![1]));
        assert_eq!(parse_list("0-3,8\n"), Some(vec![0x10f]));
        assert_eq!(parse_list("63-65"), Some(vec![1 << 63, 3]));
        for text in ["", "a", "1-", "-1", "0-99999"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
        assert!(all(PROCESSORS).unwrap().iter().any(|word| *word != 0));
    }
}
