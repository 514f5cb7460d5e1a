//! Plans a copy: which of the back end's methods makes it, and how long the call waits.

use crate::backend::{CopyMode, Extent};

/// Whether a call returns before its copy is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Synchronous,
    Asynchronous,
    /// As [`Wait::Asynchronous`], but whatever the source is, the program may change it as soon as
    /// the call returns.
    SourceTaken,
}

/// The memory of a side, as far as the plan depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SideMemory {
    Host {
        /// Whether all of the side lies in page-locked memory.
        pinned: bool,
    },
    Device {
        managed: bool,
        /// Whether the program has asked that synchronous operations on it always wait.
        synchronous: bool,
    },
    Array,
}

/// The method of the back end that makes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// None: the stream's work comes first, then the calling thread copies.
    OnHost,
    /// `copy_to_device`
    ToDevice(CopyMode),
    /// `copy_to_host`
    ToHost(CopyMode),
    /// `copy_on_device`
    OnDevice,
    /// `copy_box`
    Box(CopyMode),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) method: Method,
    /// Whether the call waits for the stream behind the copy, beyond what the method does.
    pub(crate) waits: bool,
}

/// Plans a copy that is not empty.
#[inline]
pub(crate) fn plan(dst: SideMemory, src: SideMemory, extent: Extent, wait: Wait) -> Plan {
    use SideMemory::{Array, Device, Host};
    let (mode, is_row) = (mode(dst, src, wait), extent.height == 1 && extent.depth == 1);
    let method = match (dst, src) {
        (Host { .. }, Host { .. }) => return Plan { method: Method::OnHost, waits: false },
        (Device { .. }, Host { .. }) if is_row => Method::ToDevice(mode),
        (Host { .. }, Device { .. }) if is_row => Method::ToHost(mode),
        (Device { .. }, Device { .. }) if extent.depth == 1 => Method::OnDevice,
        (Device { .. } | Host { .. } | Array, _) => Method::Box(mode),
    };
    // The back end waits for larger copies, except from pageable memory, whose bytes it has taken.
    let is_early = src == Host { pinned: true }
        && extent.bytes().is_some_and(|bytes| bytes <= CopyMode::EARLY);
    let waits = wait == Wait::Synchronous && (is_early || dst.always_waits() || src.always_waits());
    Plan { method, waits }
}

/// The properties of host memory on which a copy may rely.
pub(crate) fn mode(dst: SideMemory, src: SideMemory, wait: Wait) -> CopyMode {
    match (wait, dst, src) {
        (Wait::Synchronous, ..) => CopyMode::Synchronous,
        (Wait::SourceTaken, _, SideMemory::Host { .. }) => CopyMode::Pageable,
        (_, SideMemory::Host { pinned: false }, _) | (_, _, SideMemory::Host { pinned: false }) => {
            CopyMode::Pageable
        }
        _ => CopyMode::Pinned,
    }
}

impl SideMemory {
    /// Whether a synchronous copy always ends before its call returns. The program may look at
    /// managed memory at once.
    fn always_waits(self) -> bool {
        matches!(
            self,
            SideMemory::Device { managed: true, .. } | SideMemory::Device { synchronous: true, .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state of the copy when the call returns.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Returned {
        /// The copy is queued.
        Queued,
        /// The source has been read.
        SourceRead,
        /// The bytes have arrived.
        Arrived,
    }
    use Returned::{Arrived, Queued, SourceRead};

    const DEVICE: SideMemory = SideMemory::Device { managed: false, synchronous: false };
    const PLACES: [SideMemory; 7] = [
        SideMemory::Host { pinned: false },
        SideMemory::Host { pinned: true },
        DEVICE,
        SideMemory::Device { managed: true, synchronous: false },
        SideMemory::Device { managed: false, synchronous: true },
        SideMemory::Device { managed: true, synchronous: true },
        SideMemory::Array,
    ];
    const WAITS: [Wait; 3] = [Wait::Synchronous, Wait::Asynchronous, Wait::SourceTaken];

    /// CUDA's rules under "API synchronization behavior", sentence by sentence; for cases that they
    /// leave open, the behaviour of its driver: a pageable copy of more than 64 KiB has arrived.
    fn cuda(dst: SideMemory, src: SideMemory, bytes: u64, wait: Wait) -> Returned {
        let is_host = |place| matches!(place, SideMemory::Host { .. });
        let (pageable, pinned) =
            (SideMemory::Host { pinned: false }, SideMemory::Host { pinned: true });
        let managed = |place| matches!(place, SideMemory::Device { managed: true, .. });
        let sync_memops = |place| matches!(place, SideMemory::Device { synchronous: true, .. });
        // "For transfers from any host memory to any host memory, the function is fully
        // synchronous", in both lists.
        if is_host(dst) && is_host(src) {
            return Arrived;
        }
        if wait == Wait::Synchronous {
            // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: "operations initiated on the memory region will
            // always be synchronized".
            if sync_memops(dst) || sync_memops(src) {
                return Arrived;
            }
            // Not of that page: managed memory is the host's as soon as the call returns.
            if managed(dst) || managed(src) {
                return Arrived;
            }
            // "From pageable host memory to device memory [...] the DMA to final destination may
            // not have completed."
            if src == pageable {
                return if bytes <= 65_536 { SourceRead } else { Arrived };
            }
            // "From pinned host memory to device memory, the function is synchronous with respect
            // to the host."
            if src == pinned {
                return Arrived;
            }
            // "From device to either pageable or pinned host memory, the function returns only once
            // the copy has completed."
            if is_host(dst) {
                return Arrived;
            }
            // "From device memory to device memory, no host-side synchronization is performed."
            return Queued;
        }
        // "For transfers between device memory and pageable host memory, the function might be
        // synchronous": it is.
        if dst == pageable {
            return Arrived;
        }
        if src == pageable {
            return SourceRead;
        }
        // CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL: "the accesses must be complete before the API
        // call returns". Device memory changes in the order of streams.
        if src == pinned && wait == Wait::SourceTaken {
            return SourceRead;
        }
        // "The function is fully asynchronous."
        Queued
    }

    /// What the methods of the back end promise.
    fn promised(plan: Plan, bytes: u64) -> Returned {
        let by_method = match plan.method {
            Method::OnHost => Arrived,
            Method::ToDevice(CopyMode::Synchronous) if bytes > CopyMode::EARLY => Arrived,
            Method::ToDevice(CopyMode::Synchronous | CopyMode::Pageable) => SourceRead,
            Method::ToHost(CopyMode::Synchronous | CopyMode::Pageable) => Arrived,
            Method::ToDevice(CopyMode::Pinned)
            | Method::ToHost(CopyMode::Pinned)
            | Method::OnDevice => Queued,
            Method::Box(_) => unreachable!("it is told apart by its sides"),
        };
        if plan.waits { Arrived } else { by_method }
    }

    /// `copy_box` promises what the method for the same sides does; without host memory, nothing.
    fn as_row(plan: Plan, dst: SideMemory, src: SideMemory) -> Plan {
        let method = match (plan.method, dst, src) {
            (Method::Box(mode), SideMemory::Host { .. }, _) => Method::ToHost(mode),
            (Method::Box(mode), _, SideMemory::Host { .. }) => Method::ToDevice(mode),
            (Method::Box(_), ..) => Method::OnDevice,
            (method, ..) => method,
        };
        Plan { method, ..plan }
    }

    #[test]
    fn every_copy_waits_as_long_as_cuda_says_and_no_longer() {
        let shapes = [
            (65_536, 1, 1),
            (65_537, 1, 1),
            (4096, 16, 1),
            (4096, 17, 1),
            (4096, 4, 4),
            (4096, 17, 2),
        ];
        let mut seen = 0;
        for (width, height, depth) in shapes {
            let extent = Extent { width, height, depth };
            let bytes = width * height * depth;
            for dst in PLACES {
                for src in PLACES {
                    for wait in WAITS {
                        let plan = plan(dst, src, extent, wait);
                        let what = format!("{dst:?} from {src:?}, {extent:?}, {wait:?}: {plan:?}");
                        assert_eq!(
                            promised(as_row(plan, dst, src), bytes),
                            cuda(dst, src, bytes, wait),
                            "{what}"
                        );
                        seen += 1;
                    }
                }
            }
        }
        assert_eq!(seen, 6 * 7 * 7 * 3);
    }

    #[test]
    fn the_method_is_the_plainest_one_for_the_sides() {
        let name = |dst, src, (width, height, depth)| {
            let plan = plan(dst, src, Extent { width, height, depth }, Wait::Asynchronous);
            match plan.method {
                Method::OnHost => "host",
                Method::ToDevice(_) => "to device",
                Method::ToHost(_) => "to host",
                Method::OnDevice => "on device",
                Method::Box(_) => "box",
            }
        };
        let host = SideMemory::Host { pinned: false };
        let (row, rows, slices) = ((64, 1, 1), (64, 2, 1), (64, 1, 2));
        for (dst, src, methods) in [
            (host, host, ["host", "host", "host"]),
            (DEVICE, host, ["to device", "box", "box"]),
            (host, DEVICE, ["to host", "box", "box"]),
            (DEVICE, DEVICE, ["on device", "on device", "box"]),
            (SideMemory::Array, host, ["box", "box", "box"]),
            (host, SideMemory::Array, ["box", "box", "box"]),
            (SideMemory::Array, DEVICE, ["box", "box", "box"]),
            (DEVICE, SideMemory::Array, ["box", "box", "box"]),
            (SideMemory::Array, SideMemory::Array, ["box", "box", "box"]),
        ] {
            assert_eq!(
                [row, rows, slices].map(|shape| name(dst, src, shape)),
                methods,
                "{dst:?} from {src:?}"
            );
        }
    }
}
