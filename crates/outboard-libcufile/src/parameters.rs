//! Settings. What only NVIDIA's way to the disk depends on is kept and told, and does nothing.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use parking_lot::Mutex;

use crate::status::{INVALID, Result, require};

/// A number: its value unless it is set, the least and the greatest one.
type Number = (usize, usize, usize);

const MOST: usize = u32::MAX as usize;
/// By `CUFileSizeTConfigParameter_t`.
const NUMBERS: [Number; 12] = [
    (0, 0, 3),
    (128, 1, 256),
    (4, 0, 128),
    (1024, 4, MOST),
    (4, 0, 8),
    (16384, 64, 16384),
    (131_072, 0, MOST),
    (1024, 64, 16384),
    (MOST - 3, 64, MOST),
    (128, 1, 256),
    (4, 4, usize::MAX / 1024),
    (5, 1, 1000),
];
pub(crate) const STATISTICS: u32 = 0;
pub(crate) const DIRECT_IO: u32 = 5;
pub(crate) const DEVICE_CACHE: u32 = 6;
pub(crate) const BUFFER_CACHE: u32 = 7;
pub(crate) const PINNED: u32 = 8;
pub(crate) const BATCH: u32 = 9;
pub(crate) const POLL_THRESHOLD: u32 = 10;
pub(crate) const BATCH_TIMEOUT: u32 = 11;

/// By `CUFileBoolConfigParameter_t`; one is no more.
const FLAGS: [Option<bool>; 14] = {
    let mut flags = [Some(false); 14];
    flags[ALLOW_COMPATIBILITY as usize] = Some(true);
    flags[PARALLEL as usize] = Some(true);
    flags[SYSTEM_MEMORY as usize] = Some(true);
    flags[NVTX as usize] = None;
    flags
};
pub(crate) const USE_POLLING: u32 = 0;
pub(crate) const ALLOW_COMPATIBILITY: u32 = 1;
const PARALLEL: u32 = 4;
const NVTX: u32 = 5;
const SYSTEM_MEMORY: u32 = 6;

/// By `CUFileStringConfigParameter_t`.
const TEXTS: u32 = 4;

/// What was set.
struct Set {
    numbers: BTreeMap<u32, usize>,
    flags: BTreeMap<u32, bool>,
    texts: BTreeMap<u32, CString>,
    slabs: [Vec<(usize, usize)>; 2],
}

static SET: Mutex<Set> = Mutex::new(Set {
    numbers: BTreeMap::new(),
    flags: BTreeMap::new(),
    texts: BTreeMap::new(),
    slabs: [const { Vec::new() }; 2],
});

/// A number's value, least and greatest one.
fn known(which: u32) -> Result<Number> {
    NUMBERS.get(which as usize).copied().ok_or(INVALID)
}

pub(crate) fn get_number(which: u32) -> Result<usize> {
    let (unless_set, ..) = known(which)?;
    Ok(SET.lock().numbers.get(&which).copied().unwrap_or(unless_set))
}

/// One that there is.
pub(crate) fn number(which: u32) -> usize {
    get_number(which).unwrap_or(0)
}

pub(crate) fn set_number(which: u32, value: usize) -> Result<()> {
    let (least, greatest) = limits(which)?;
    require((least..=greatest).contains(&value))?;
    SET.lock().numbers.insert(which, value);
    Ok(())
}

/// The least and the greatest value of a number.
pub(crate) fn limits(which: u32) -> Result<(usize, usize)> {
    known(which).map(|(_, least, greatest)| (least, greatest))
}

pub(crate) fn get_flag(which: u32) -> Result<bool> {
    let unless_set = FLAGS.get(which as usize).copied().flatten().ok_or(INVALID)?;
    Ok(SET.lock().flags.get(&which).copied().unwrap_or(unless_set))
}

/// One that there is.
pub(crate) fn flag(which: u32) -> bool {
    get_flag(which).unwrap_or(false)
}

pub(crate) fn set_flag(which: u32, value: bool) -> Result<()> {
    get_flag(which)?;
    SET.lock().flags.insert(which, value);
    Ok(())
}

pub(crate) fn get_text(which: u32) -> Result<CString> {
    require(which < TEXTS)?;
    Ok(SET.lock().texts.get(&which).cloned().unwrap_or_default())
}

pub(crate) fn set_text(which: u32, value: &CStr) -> Result<()> {
    require(which < TEXTS)?;
    SET.lock().texts.insert(which, value.to_owned());
    Ok(())
}

/// Two lists of buffers, each a size and a count.
#[derive(Clone, Copy)]
pub(crate) enum Slabs {
    Host,
    Device,
}

pub(crate) fn get_slabs(which: Slabs) -> Vec<(usize, usize)> {
    SET.lock().slabs[which as usize].clone()
}

pub(crate) fn set_slabs(which: Slabs, slabs: Vec<(usize, usize)>) -> Result<()> {
    let grow = slabs.windows(2).all(|pair| pair[0].0 < pair[1].0);
    require(grow && slabs.iter().all(|(size, count)| *size > 0 && size % 4 == 0 && *count > 0))?;
    SET.lock().slabs[which as usize] = slabs;
    Ok(())
}
