//! Limits of a context that were asked for once: libraries ask again before many a launch.

use std::sync::atomic::{AtomicU64, Ordering};

use outboard_abi::CUlimit_enum as Limit;
use parking_lot::Mutex;

use crate::backend::Result;

/// The limits that are known of a context.
#[derive(Default)]
pub(crate) struct Limits {
    known: Mutex<Known>,
    /// Bytes of local memory for a thread of the kernel that needs most: to launch it, a driver
    /// raises the limit of the stack.
    local: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Known {
    values: Vec<(u32, u64)>,
    /// How often something was forgotten.
    changes: u64,
}

impl Limits {
    /// The limit, by `ask` if it is not known.
    pub(crate) fn get(&self, limit: u32, ask: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let changes = {
            let known = self.known.lock();
            let found = known.values.iter().find(|(which, _)| *which == limit);
            if let Some((_, value)) = found.filter(|(_, value)| self.is_lasting(limit, *value)) {
                return Ok(*value);
            }
            known.changes
        };
        let value = ask()?;
        let mut known = self.known.lock();
        // Another thread may have changed the limit meanwhile.
        if known.changes == changes {
            known.values.retain(|(which, _)| *which != limit);
            known.values.push((limit, value));
        }
        Ok(value)
    }

    /// The stack's limit may rise at a launch as long as a kernel needs more.
    fn is_lasting(&self, limit: u32, value: u64) -> bool {
        limit != Limit::CU_LIMIT_STACK_SIZE.0 || value >= self.local.load(Ordering::Relaxed)
    }

    /// One of them is set, or all are new.
    pub(crate) fn forget(&self) {
        let mut known = self.known.lock();
        known.values.clear();
        known.changes += 1;
    }

    /// There is a kernel that needs so much local memory.
    pub(super) fn needs_local(&self, bytes: u64) {
        self.local.fetch_max(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use outboard_abi::CUresult;

    use super::*;

    const STACK: u32 = Limit::CU_LIMIT_STACK_SIZE.0;
    const HEAP: u32 = Limit::CU_LIMIT_MALLOC_HEAP_SIZE.0;

    #[test]
    fn what_was_told_is_known_until_it_is_set() {
        let limits = Limits::default();
        assert_eq!(
            limits.get(HEAP, || Err(CUresult::CUDA_ERROR_UNKNOWN)),
            Err(CUresult::CUDA_ERROR_UNKNOWN)
        );
        assert_eq!(limits.get(HEAP, || Ok(8)), Ok(8));
        assert_eq!(limits.get(STACK, || Ok(1024)), Ok(1024));
        assert_eq!(limits.get(HEAP, || Ok(9)), Ok(8));
        limits.forget();
        let while_it_is_set = || {
            limits.forget();
            Ok(9)
        };
        assert_eq!(limits.get(HEAP, while_it_is_set), Ok(9));
        assert_eq!(limits.get(HEAP, || Ok(10)), Ok(10), "it was set while it was asked for");
    }

    #[test]
    fn the_stack_is_asked_for_while_a_kernel_may_raise_it() {
        let limits = Limits::default();
        assert_eq!(limits.get(STACK, || Ok(1024)), Ok(1024));
        limits.needs_local(32768);
        assert_eq!(limits.get(STACK, || Ok(1024)), Ok(1024));
        assert_eq!(limits.get(STACK, || Ok(32768)), Ok(32768), "it was launched");
        assert_eq!(limits.get(STACK, || Ok(0)), Ok(32768));
    }
}
