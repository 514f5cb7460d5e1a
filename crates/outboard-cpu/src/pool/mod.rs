//! Memory pools of the software device.
//!
//! A pool is a count of what is allocated from it: freed memory goes back to the device at once, so
//! that nothing is ever kept in reserve.

mod calls;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use outboard_abi::{CUmemPool_attribute_enum as A, CUresult};
use outboard_front::backend::{ContextId, Result};
use outboard_simt::Engine;
use parking_lot::Mutex;

use crate::ipc::Opened;

/// A pool. Several names may stand for a device's default one.
pub(crate) struct Pool {
    pub(crate) engine: Arc<Engine>,
    pub(crate) device: u32,
    /// 0 for as much as there is.
    max_bytes: u64,
    state: Mutex<PoolState>,
}

struct PoolState {
    used: u64,
    used_high: u64,
    reserved_high: u64,
    /// The three flags of how memory may be used again, and the release threshold.
    settings: [u64; 4],
    /// What devices other than its own may do.
    access: BTreeMap<u32, u32>,
}

/// What is allocated from pools, by address.
#[derive(Default)]
pub(crate) struct Pooled(Mutex<HashMap<u64, Allocation>>);

/// An allocation from a pool.
struct Allocation {
    ctx: ContextId,
    bytes: u64,
    from: From,
}

enum From {
    Pool(Arc<Pool>),
    /// Mapped from another process.
    Opened(Opened),
}

impl Pool {
    fn new(engine: Arc<Engine>, device: u32, max_bytes: u64) -> Pool {
        let state = PoolState {
            used: 0,
            used_high: 0,
            reserved_high: 0,
            settings: [1, 1, 1, 0],
            access: BTreeMap::new(),
        };
        Pool { engine, device, max_bytes, state: Mutex::new(state) }
    }

    fn alloc(&self, bytes: u64) -> Result<u64> {
        let mut state = self.state.lock();
        let used = state
            .used
            .checked_add(bytes)
            .filter(|used| self.max_bytes == 0 || *used <= self.max_bytes);
        let used = used.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let address =
            self.engine.memory().alloc(bytes, 1).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        state.used = used;
        state.used_high = state.used_high.max(used);
        state.reserved_high = state.reserved_high.max(used);
        Ok(address)
    }

    fn free(&self, address: u64, bytes: u64) {
        let mut state = self.state.lock();
        self.engine.memory().free(address);
        state.used -= bytes;
    }
}

impl Pooled {
    /// The allocation at an address, if it is of a pool of this process: its bytes and the pool's
    /// engine.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, Arc<Engine>)> {
        match self.0.lock().get(&address) {
            Some(Allocation { bytes, from: From::Pool(pool), .. }) => {
                Some((*bytes, pool.engine.clone()))
            }
            _ => None,
        }
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        self.0.lock().contains_key(&address)
    }

    pub(crate) fn insert_opened(&self, ctx: ContextId, address: u64, bytes: u64, opened: Opened) {
        self.0.lock().insert(address, Allocation { ctx, bytes, from: From::Opened(opened) });
    }

    /// Frees what nothing queued uses any more. Whether there was such an allocation.
    pub(crate) fn free(&self, address: u64) -> bool {
        let allocation = self.0.lock().remove(&address);
        match allocation {
            Some(Allocation { bytes, from: From::Pool(pool), .. }) => pool.free(address, bytes),
            Some(Allocation { from: From::Opened(opened), .. }) => drop(opened),
            None => return false,
        }
        true
    }

    /// Frees all that was allocated in a context.
    pub(crate) fn free_context(&self, ctx: ContextId) {
        let all = self.0.lock();
        let addresses: Vec<u64> =
            all.iter().filter(|(_, a)| a.ctx == ctx).map(|(address, _)| *address).collect();
        drop(all);
        for address in addresses {
            self.free(address);
        }
    }
}

/// Where an attribute that can be set to anything stands.
fn setting(attribute: u32) -> Result<usize> {
    match A(attribute) {
        A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => Ok(0),
        A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => Ok(1),
        A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => Ok(2),
        A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => Ok(3),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}
