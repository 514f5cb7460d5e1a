//! Addresses that programs reserve.

use outboard_front::backend::{DevicePtr, Result};
use outboard_wire::messages as msg;

use super::{NO_CONTEXT, Remote};

impl Remote {
    pub(super) fn vmm_reserve(&self, bytes: u64, align: u64, hint: DevicePtr) -> Result<DevicePtr> {
        let here = self.session()?.arena().and_then(|arena| arena.reserve(bytes, align, hint));
        match here {
            Some(address) => Ok(address),
            None => self.call_idle(NO_CONTEXT, &msg::VmmReserve { bytes, align, hint }, |reply| {
                reply.address
            }),
        }
    }

    pub(super) fn vmm_free(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        if self.session()?.arena().is_some_and(|arena| arena.unreserve(address)) {
            return Ok(());
        }
        self.post_idle(NO_CONTEXT, &msg::VmmUnreserve { address, bytes })
    }
}
