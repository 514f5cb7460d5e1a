//! Memory of other sessions that this one has open.

use std::collections::HashMap;

use outboard_abi::{CUmemAccess_flags, CUmemAccessDesc, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::device_id::DeviceId;
use outboard_wire::{ContextId, DevicePtr};

use super::answer::Outcome;
use super::bounds::Kind;
use super::kinds::location;

/// What is open, by address.
#[derive(Default)]
pub(crate) struct Opened(HashMap<DevicePtr, Allocation>);

/// An allocation of another session, which lies at one address however often it is opened.
struct Allocation {
    token: u128,
    ctx: ContextId,
    times: u32,
    place: Place,
}

impl Opened {
    /// Whether there may be one more.
    pub(super) fn check_room(&self) -> Outcome {
        Kind::Opened.room(self.0.len())
    }

    /// Opens an allocation once more that a context has open: its address.
    pub(super) fn open_again(&mut self, token: u128, ctx: ContextId) -> Option<DevicePtr> {
        let mut all = self.0.iter_mut();
        let (address, opened) =
            all.find(|(_, opened)| (opened.token, opened.ctx) == (token, ctx))?;
        opened.times += 1;
        Some(*address)
    }

    /// A context has opened an allocation.
    pub(super) fn add(
        &mut self,
        address: DevicePtr,
        (token, ctx): (u128, ContextId),
        place: Place,
    ) {
        self.0.insert(address, Allocation { token, ctx, times: 1, place });
    }

    /// Closes an allocation. If nothing has it open any more, gives what is left to be closed.
    pub(super) fn close(&mut self, address: DevicePtr) -> Result<Option<Place>, CUresult> {
        let opened = self.0.get_mut(&address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        opened.times -= 1;
        if opened.times > 0 {
            return Ok(None);
        }
        Ok(self.0.remove(&address).map(|opened| opened.place))
    }

    /// Forgets what a context has open, and gives where it is.
    pub(super) fn forget(&mut self, ctx: ContextId) -> Vec<Place> {
        let of = self.0.extract_if(|_, opened| opened.ctx == ctx);
        of.map(|(_, opened)| opened.place).collect()
    }
}

/// How it came to its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_there_until_it_is_closed_as_often_as_it_was_opened() {
        const ONE: ContextId = ContextId(1);
        const TWO: ContextId = ContextId(2);
        let mut opened = Opened::default();
        let [at, other] = [0x1000, 0x2000].map(DevicePtr);
        assert_eq!(opened.open_again(9, ONE), None);
        opened.add(at, (9, ONE), Place::Driver(at));
        assert_eq!(opened.open_again(9, TWO), None, "another context has it elsewhere");
        opened.add(other, (9, TWO), Place::Block(other, 64));
        assert_eq!(opened.open_again(9, ONE), Some(at));
        assert_eq!(opened.close(at), Ok(None));
        assert_eq!(opened.close(at), Ok(Some(Place::Driver(at))));
        assert_eq!(opened.close(at), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!(opened.forget(ONE), []);
        assert_eq!(opened.forget(TWO), [Place::Block(other, 64)]);
        assert!(opened.close(other).is_err());
    }
}
