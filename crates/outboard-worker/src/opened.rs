//! Memory of other sessions that this one has open.

use outboard_abi::{CUmemAccess_flags, CUmemAccessDesc, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::device_id::DeviceId;
use outboard_wire::{ContextId, DevicePtr};

use super::answer::Outcome;
use super::commands::vmm::location;

/// An allocation of another session, which has one address however often it is opened.
pub(super) struct Opened {
    pub(super) token: u128,
    pub(super) ctx: ContextId,
    pub(super) times: u32,
    pub(super) place: Place,
}

/// How it came to its address.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// The driver has opened it there.
    Driver(DevicePtr),
    /// The worker has mapped the block in which it lies: the block's address and bytes.
    Block(DevicePtr, u64),
}

impl Place {
    /// Maps a block for the devices with these ordinals where the driver likes.
    pub(super) fn map(
        table: &Table,
        handle: u64,
        bytes: u64,
        devices: &[u32],
    ) -> Result<Place, CUresult> {
        let mut address = 0;
        call!(table, cuMemAddressReserve(&raw mut address, bytes as usize, 0, 0, 0))?;
        let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let desc =
            |device: &u32| CUmemAccessDesc { location: location(DeviceId::new(*device)), flags };
        let access: Vec<CUmemAccessDesc> = devices.iter().map(desc).collect();
        let mapped = call!(table, cuMemMap(address, bytes as usize, 0, handle, 0)).and_then(|()| {
            let opened = call!(
                table,
                cuMemSetAccess(address, bytes as usize, access.as_ptr(), access.len())
            );
            opened.inspect_err(|_| {
                let _ = call!(table, cuMemUnmap(address, bytes as usize));
            })
        });
        match mapped {
            Ok(()) => Ok(Place::Block(DevicePtr(address), bytes)),
            Err(error) => {
                let _ = call!(table, cuMemAddressFree(address, bytes as usize));
                Err(error)
            }
        }
    }

    /// Closes it, once the work of the current context is done.
    pub(super) fn close(self, table: &Table) -> Outcome {
        match self {
            // The driver waits.
            Place::Driver(address) => call!(table, cuIpcCloseMemHandle(address.0)),
            Place::Block(..) => {
                let waited = call!(table, cuCtxSynchronize());
                self.unmap(table);
                waited
            }
        }
    }

    /// Takes a block away that no work uses any more. Memory that the driver has opened ends with
    /// its context.
    pub(super) fn unmap(self, table: &Table) {
        if let Place::Block(address, bytes) = self {
            let _ = call!(table, cuMemUnmap(address.0, bytes as usize))
                .and_then(|()| call!(table, cuMemAddressFree(address.0, bytes as usize)));
        }
    }
}
