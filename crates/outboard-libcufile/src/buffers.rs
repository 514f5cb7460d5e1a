//! Memory that is registered. Other memory can be used as well; registered memory has bounds.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::parameters;
use crate::status::{Failure, INVALID, Result, code, require};

/// Bytes by base.
static BUFFERS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// `CU_FILE_RDMA_REGISTER` and `CU_FILE_RDMA_RELAXED_ORDERING`, which have no meaning here.
const FLAGS: i32 = 3;

/// Registers `bytes` from `base` on.
pub(crate) fn register(base: u64, bytes: usize, flags: i32) -> Result<()> {
    require(base != 0 && bytes != 0 && flags & !FLAGS == 0)?;
    require(base.checked_add(bytes as u64).is_some())?;
    let mut buffers = BUFFERS.lock();
    if buffers.contains_key(&base) {
        return Err(Failure::Code(code::MEMORY_ALREADY_REGISTERED));
    }
    let all = buffers.values().fold(bytes, |all, more| all.saturating_add(*more));
    if all.div_ceil(1024) > parameters::number(parameters::PINNED) {
        return Err(Failure::Code(code::GPU_MEMORY_PINNING_FAILED));
    }
    buffers.insert(base, bytes);
    Ok(())
}

/// Forgets what is registered at `base`.
pub(crate) fn deregister(base: u64) -> Result<()> {
    BUFFERS.lock().remove(&base).map(drop).ok_or(INVALID)
}

/// Forgets all.
pub(crate) fn clear() {
    BUFFERS.lock().clear();
}

/// The address `offset` behind `base`, if `bytes` there are within what is registered at `base`.
pub(crate) fn address(base: u64, offset: i64, bytes: usize) -> Result<u64> {
    require(base != 0)?;
    let offset = u64::try_from(offset).map_err(|_| INVALID)?;
    let end = offset.checked_add(bytes as u64).ok_or(INVALID)?;
    base.checked_add(end).ok_or(INVALID)?;
    let known = BUFFERS.lock().get(&base).copied();
    if known.is_some_and(|known| end > known as u64) {
        return Err(Failure::Code(code::INVALID_MAPPING_RANGE));
    }
    Ok(base + offset)
}
