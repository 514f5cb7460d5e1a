//! Attributes of streams, and batches of operations on memory.
//!
//! No attribute changes what this device does: it has no cache to set aside, one domain of memory,
//! and waits in its own way.

mod calls;

use std::collections::HashMap;

use outboard_abi::{CUlaunchAttributeID_enum as L, CUresult};
use outboard_front::backend::Result;
use parking_lot::Mutex;

use crate::sched::Lane;

/// The attributes that the program has set, by stream.
#[derive(Default)]
pub(crate) struct Attributes(Mutex<HashMap<Lane, HashMap<u32, [u8; 64]>>>);

impl Attributes {
    pub(crate) fn forget(&self, lane: Lane) {
        self.0.lock().remove(&lane);
    }
}

/// `CU_SYNC_POLICY_AUTO` and the last policy, `CU_SYNC_POLICY_BLOCKING_SYNC`.
const SYNC_POLICIES: std::ops::RangeInclusive<u32> = 1..=4;

fn word(value: &[u8; 64], at: usize) -> u32 {
    u32::from_ne_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]])
}

/// Whether the device takes this value.
fn check(attribute: L, value: &[u8; 64]) -> Result<()> {
    let takes = match attribute {
        // A window of no bytes: address, then length.
        L::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW => word(value, 8) == 0 && word(value, 12) == 0,
        L::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => SYNC_POLICIES.contains(&word(value, 0)),
        L::CU_LAUNCH_ATTRIBUTE_PRIORITY => true,
        // There is one domain.
        L::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => value[..2] == [0, 0],
        L::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => word(value, 0) <= 1,
        _ => false,
    };
    if takes { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// The value before any was set.
fn default(attribute: L) -> [u8; 64] {
    let mut value = [0; 64];
    if attribute == L::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY {
        value[..4].copy_from_slice(&SYNC_POLICIES.start().to_ne_bytes());
    }
    value
}
