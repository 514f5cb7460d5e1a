//! Memory of this machine that the adapter knows which moves chunks itself.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use outboard_transport::rdma::direct::Own;
use outboard_wire::lane::{LaneHeader, LaneKind};

use super::Bulk;
use super::direct::Direct;
use super::told::Fact;

/// Memory that the adapter knows, while this lives.
pub(crate) struct KnownMemory {
    direct: Arc<Direct>,
    own: Option<Own>,
}

impl KnownMemory {
    fn new(direct: &Arc<Direct>, own: Own) -> KnownMemory {
        KnownMemory { direct: Arc::clone(direct), own: Some(own) }
    }
}

impl Drop for KnownMemory {
    fn drop(&mut self) {
        self.own.take().into_iter().for_each(|own| self.direct.remove_memory(own));
    }
}

impl Bulk {
    /// Whether there is an adapter that moves chunks itself from and to memory that it knows.
    pub(crate) fn has_mover(&self) -> bool {
        self.inner.direct.mover().is_some()
    }

    /// Whether that adapter may know memory of devices.
    pub(crate) fn takes_devices(&self) -> bool {
        self.inner.direct.takes_devices()
    }

    /// Whether the client lends memory for the bytes of a transfer to that adapter.
    pub(crate) fn is_lent(&self, transfer: u64) -> bool {
        self.has_mover() && self.inner.direct.is_lent(transfer)
    }

    /// Has that adapter know staging memory. `None` if it does not take it: then bytes go as
    /// without it.
    ///
    /// # Safety
    /// The memory stays mapped until what this returns has been dropped.
    pub(crate) unsafe fn make_known(&self, start: *mut u8, bytes: usize) -> Option<KnownMemory> {
        let direct = &self.inner.direct;
        // SAFETY: by the contract above.
        match unsafe { direct.mover()?.add_memory(start, bytes) } {
            Ok(own) => Some(KnownMemory::new(direct, own)),
            Err(error) => {
                if direct.told.is_first(Fact::NoStaging) {
                    tracing::warn!(%error, "copies go through the RDMA streams of the session");
                }
                None
            }
        }
    }

    /// Has that adapter know memory of a device: `bytes` from `start` on, by a dma-buf if there is
    /// one, else by the device's own driver. `None` if it does not take it: then bytes go through
    /// staging memory.
    ///
    /// # Safety
    /// Who frees the memory has what this returns dropped before, unless the driver keeps what an
    /// adapter knows.
    pub(crate) unsafe fn make_device_known(
        &self,
        (start, bytes): (u64, usize),
        dma_buf: Result<BorrowedFd<'_>, String>,
    ) -> Option<KnownMemory> {
        let direct = &self.inner.direct;
        let mover = direct.mover()?;
        // SAFETY: by the contract above.
        let add = |buffer| unsafe { mover.add_device_memory((start, bytes), buffer) };
        let by_buffer = dma_buf.and_then(|buffer| add(Some(buffer)).map_err(|e| e.to_string()));
        let by_driver = |refused: String| add(None).map_err(|error| (refused, error));
        match by_buffer.or_else(by_driver) {
            Ok(own) => {
                if mover.heeds() && direct.told.is_first(Fact::DeviceMemory) {
                    let (kind, transfer) = (LaneKind::Unstaged, 0);
                    self.inner.say(LaneHeader { kind, transfer, index: 0, len: 0 });
                }
                Some(KnownMemory::new(direct, own))
            }
            Err((by_buffer, by_driver)) => {
                if direct.told.is_first(Fact::NoDevice) {
                    tracing::info!(
                        by_buffer,
                        %by_driver,
                        "an RDMA adapter does not take device memory, and copies go through staging memory"
                    );
                }
                None
            }
        }
    }
}
