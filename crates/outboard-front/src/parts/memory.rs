//! Device memory, and the map of what is allocated.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::addresses::Addresses;
use crate::backend::{ContextId, ServerId, UnifiedPtr};

/// An allocation that the program knows by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) ctx: ContextId,
    /// The visible device's index.
    pub(crate) device: usize,
    /// The device's server.
    pub(crate) server: ServerId,
    /// The context's handle, for `cuPointerGetAttribute`.
    pub(crate) context: u64,
    pub(crate) kind: Kind,
    /// Whether synchronous operations on it always wait for the device:
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub(crate) synchronous: bool,
    /// Unique in the process, for `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub(crate) id: u64,
}

/// What kind of memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Device memory.
    Device,
    /// Device memory of a stream-ordered allocation, and the handle of its pool: 0 for the device's
    /// default one.
    Pooled(u64),
    /// Device memory that a graph allocates: it is known as long as the graph, whether a launch has
    /// it or not.
    Graph,
    /// Memory of another process.
    Opened,
    /// Managed memory: of the device, and the host's to touch.
    Managed,
    /// A variable of a module, which lives as long as the module.
    Global,
    /// A managed variable of a module.
    ManagedGlobal,
    /// Physical memory mapped by the virtual-memory calls.
    Mapped {
        /// The physical memory's handle.
        memory: u64,
        /// Whether any device may use it.
        accessible: bool,
    },
    /// Page-locked memory that we allocated, with the flags of `cuMemHostAlloc`.
    HostAllocated(u32),
    /// Page-locked memory of the program, with the flags of `cuMemHostRegister`.
    HostRegistered(u32),
}

/// The allocations of a process, by address.
pub(crate) struct Allocations {
    pub(crate) map: LazyLock<Addresses<Allocation>>,
    pub(crate) next_id: AtomicU64,
    pub(crate) shared: Bounds,
}

/// Bounds of all memory that a device has ever shared with the program: managed and page-locked.
pub(crate) struct Bounds {
    begin: AtomicU64,
    end: AtomicU64,
}

impl Bounds {
    const fn new() -> Bounds {
        Bounds { begin: AtomicU64::new(u64::MAX), end: AtomicU64::new(0) }
    }

    pub(crate) fn include(&self, base: UnifiedPtr, bytes: u64) {
        self.begin.fetch_min(base.0, Ordering::Relaxed);
        self.end.fetch_max(base.0.saturating_add(bytes), Ordering::Relaxed);
    }

    /// Whether any word of these bytes could be an address of such memory.
    #[inline]
    pub(crate) fn contain_any(&self, bytes: &[u8]) -> bool {
        let begin = self.begin.load(Ordering::Relaxed);
        let len = self.end.load(Ordering::Relaxed).saturating_sub(begin);
        let (words, _) = bytes.as_chunks();
        words.iter().any(|word| u64::from_ne_bytes(*word).wrapping_sub(begin) < len)
    }
}

impl Allocations {
    pub(crate) const fn new() -> Allocations {
        Allocations {
            map: LazyLock::new(Addresses::new),
            next_id: AtomicU64::new(1),
            shared: Bounds::new(),
        }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.map.count()
    }
}

impl Kind {
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Kind::HostAllocated(_) | Kind::HostRegistered(_))
    }

    pub(crate) fn is_managed(self) -> bool {
        matches!(self, Kind::Managed | Kind::ManagedGlobal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_within_the_bounds_are_found() {
        let bounds = Bounds::new();
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let contain = |all: &[u64]| {
            let bytes: Vec<u8> = words(all);
            bounds.contain_any(&bytes)
        };
        assert!(!contain(&[0, 100, u64::MAX]), "nothing is shared");
        bounds.include(UnifiedPtr(1000), 10);
        bounds.include(UnifiedPtr(2000), 10);
        assert!(contain(&[0, 1000]) && contain(&[2009]) && contain(&[1500, 7]));
        assert!(!contain(&[999, 2010, 0, u64::MAX]) && !bounds.contain_any(&[1, 2, 3]));
    }
}
