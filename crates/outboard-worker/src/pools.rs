//! Memory pools, and what they hold of their devices.

use outboard_abi::{CUmemPool_attribute as Attribute, CUmemPoolHandle_st, CUmemoryPool, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::{ContextId, ObjectId};

use super::answer::Outcome;
use super::bounds::Kind;
use super::objects::{Handle, Named};

/// A pool and the ordinal of its device.
type Pool = (Handle<CUmemPoolHandle_st>, u32);

/// Pools stay when contexts go.
const NONE: ContextId = ContextId::NONE;

/// The pools of a session.
pub(crate) struct Pools {
    named: Named<Pool>,
    /// Those that the client has ended while there was memory in them.
    ended: Vec<Pool>,
    /// Whether memory has been allocated in a stream's order.
    are_used: bool,
}

impl Default for Pools {
    fn default() -> Pools {
        Pools { named: Named::new(Kind::Pool), ended: Vec::new(), are_used: false }
    }
}

/// What a pool holds of its device, used or kept.
fn reserved(table: &Table, pool: CUmemoryPool) -> u64 {
    let mut bytes = 0u64;
    let attribute = Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    // A driver that does not tell has no pools.
    let _ = call!(table, cuMemPoolGetAttribute(pool, attribute, (&raw mut bytes).cast()));
    bytes
}

impl Pools {
    /// Whether a pool may have this name.
    pub(crate) fn check_new(&self, name: ObjectId) -> Outcome {
        self.named.check_new(name)
    }

    pub(crate) fn add(&mut self, name: ObjectId, pool: CUmemoryPool, device: u32) {
        self.named.insert(name, NONE, (Handle::new(pool), device));
    }

    /// A pool and the ordinal of its device.
    pub(crate) fn get(&self, name: ObjectId) -> Result<Pool, CUresult> {
        self.named.get(name)
    }

    /// Memory is about to be allocated in a stream's order.
    pub(crate) fn use_them(&mut self) {
        self.are_used = true;
    }

    /// Whether memory has been allocated in a stream's order.
    pub(crate) fn are_used(&self) -> bool {
        self.are_used
    }

    /// The pools of a device that this session may have memory in, each once.
    fn of(&self, table: &Table, device: u32) -> Vec<CUmemoryPool> {
        let mut pools = Vec::new();
        if !self.are_used {
            return pools;
        }
        let mut default = core::ptr::null_mut();
        if call!(table, cuDeviceGetDefaultMemPool(&raw mut default, device as i32)).is_ok() {
            pools.push(default);
        }
        for (pool, of) in self.named.all().chain(&self.ended) {
            if *of == device && !pools.contains(&pool.get()) {
                pools.push(pool.get());
            }
        }
        pools
    }

    /// What they hold of a device.
    pub(crate) fn hold(&self, table: &Table, device: u32) -> u64 {
        self.of(table, device).into_iter().map(|pool| reserved(table, pool)).sum()
    }

    /// Has those of a device give back what they only keep.
    pub(crate) fn trim(&mut self, table: &Table, device: u32) {
        for pool in self.of(table, device) {
            let _ = call!(table, cuMemPoolTrimTo(pool, 0));
        }
        self.destroy_ended(table, |of| of == device);
    }

    /// Destroys pools of these devices that have ended and are empty.
    pub(crate) fn destroy_ended(&mut self, table: &Table, is_meant: impl Fn(u32) -> bool) {
        let is_empty = |(pool, of): &mut Pool| is_meant(*of) && reserved(table, pool.get()) == 0;
        for (pool, _) in self.ended.extract_if(.., is_empty) {
            let _ = call!(table, cuMemPoolDestroy(pool.get()));
        }
    }

    /// Ends a pool. It is there until its last allocation is freed: to be asked what it holds, and
    /// as NVIDIA's driver has crashed where a pool was destroyed before the device had done what
    /// frees its memory.
    pub(crate) fn end(&mut self, table: &Table, name: ObjectId) -> Outcome {
        let (pool, device) = self.named.remove(name)?;
        if reserved(table, pool.get()) == 0 {
            return call!(table, cuMemPoolDestroy(pool.get()));
        }
        let (attribute, mut keep) = (Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0u64);
        let _ = call!(table, cuMemPoolSetAttribute(pool.get(), attribute, (&raw mut keep).cast()));
        self.ended.push((pool, device));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{calls, table};

    const NAME: ObjectId = ObjectId(7);

    /// A pool of device 0, whose handle is 0x70 and which is empty, as the driver has it.
    fn pools() -> Pools {
        let mut pools = Pools::default();
        pools.check_new(NAME).unwrap();
        pools.add(NAME, 0x70 as CUmemoryPool, 0);
        pools
    }

    #[test]
    fn pools_are_asked_once_memory_has_been_allocated_from_any() {
        let (table, mut pools) = (table(), pools());
        assert_eq!(pools.hold(table, 0), 0);
        assert!(calls().is_empty(), "a session without them does not ask the driver");
        pools.use_them();
        pools.hold(table, 0);
        assert_eq!(calls(), ["cuMemPoolGetAttribute(0x70)"]);
        pools.hold(table, 1);
        assert!(calls().is_empty(), "it is of another device");
    }

    #[test]
    fn an_empty_pool_ends_at_once() {
        let (table, mut pools) = (table(), pools());
        pools.destroy_ended(table, |_| true);
        pools.end(table, NAME).unwrap();
        assert_eq!(calls(), ["cuMemPoolGetAttribute(0x70)", "cuMemPoolDestroy(0x70)"]);
        assert!(pools.get(NAME).is_err() && pools.end(table, NAME).is_err());
        assert!(pools.ended.is_empty() && calls().is_empty());
    }

    #[test]
    fn a_pool_that_has_ended_counts_until_it_is_empty() {
        let (table, mut pools) = (table(), pools());
        pools.use_them();
        pools.ended.push((Handle::new(0x90 as CUmemoryPool), 0));
        pools.hold(table, 0);
        assert_eq!(calls(), ["cuMemPoolGetAttribute(0x70)", "cuMemPoolGetAttribute(0x90)"]);
        pools.trim(table, 1);
        assert!(calls().is_empty());
        pools.trim(table, 0);
        assert!(calls().contains(&"cuMemPoolDestroy(0x90)".to_owned()));
        pools.hold(table, 0);
        assert_eq!(calls(), ["cuMemPoolGetAttribute(0x70)"]);
    }
}
