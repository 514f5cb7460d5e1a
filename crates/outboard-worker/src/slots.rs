//! Page-locked memory for small copies.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use outboard_abi::{CUevent_flags, CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_wire::ContextId;
use parking_lot::{Mutex, MutexGuard};

use super::bounds::Kind;
use super::objects::Handle;

/// Page-locked buffers of one size, by context: their memory goes with it.
#[derive(Clone, Default)]
pub(crate) struct Slots(Arc<Mutex<HashMap<ContextId, Vec<usize>>>>);

/// A buffer of [`Slots::BYTES`] on loan; dropped, it is free again.
pub(crate) struct Slot {
    address: usize,
    ctx: ContextId,
    slots: Slots,
}

impl Slots {
    /// Bytes of a buffer: the largest copy that travels in a reply.
    pub(crate) const BYTES: usize = outboard_wire::limits::MAX_INLINE;

    /// A free buffer of the context, which is current.
    pub(crate) fn take(&self, table: &Table, ctx: ContextId) -> Result<Slot, CUresult> {
        let free = self.lock().get_mut(&ctx).and_then(Vec::pop);
        let address = match free {
            Some(address) => address,
            None => {
                let mut address = core::ptr::null_mut();
                call!(table, cuMemHostAlloc(&raw mut address, Slots::BYTES, 0))?;
                address as usize
            }
        };
        Ok(Slot { address, ctx, slots: self.clone() })
    }

    /// Forgets the buffers of a context that is gone.
    pub(crate) fn forget(&self, ctx: ContextId) {
        self.lock().remove(&ctx);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ContextId, Vec<usize>>> {
        self.0.lock()
    }
}

impl Slot {
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.address as *mut u8
    }

    /// The first `len` bytes.
    ///
    /// # Safety
    /// The device has finished writing them, and the context still exists.
    pub(crate) unsafe fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: the slot has that many bytes, and by the contract above nobody writes them.
        unsafe { std::slice::from_raw_parts(self.pointer(), len.min(Slots::BYTES)) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().entry(self.ctx).or_default().push(self.address);
    }
}

/// Buffers whose bytes the device has yet to read.
#[derive(Default)]
pub(crate) struct Parcels(VecDeque<(Slot, Handle<outboard_abi::CUevent_st>)>);

impl Parcels {
    /// How many are looked at each time: few, since one whose stream stands still stays.
    const LOOKS: usize = 4;

    /// A buffer that holds `data`, and takes back some that the device has read. The context is
    /// current.
    pub(crate) fn pack(
        &mut self,
        table: &Table,
        slots: &Slots,
        ctx: ContextId,
        data: &[u8],
    ) -> Result<Slot, CUresult> {
        for _ in 0..Parcels::LOOKS.min(self.0.len()) {
            let Some((slot, event)) = self.0.pop_front() else { break };
            match call!(table, cuEventQuery(event.get())) {
                Err(CUresult::CUDA_ERROR_NOT_READY) => self.0.push_back((slot, event)),
                // Its context may have a fault, or be gone: nobody reads the buffer any more.
                _ => drop(call!(table, cuEventDestroy_v2(event.get()))),
            }
        }
        while Kind::Parcel.room(self.0.len()).is_err() {
            // As a driver does that copies from pageable memory.
            let Some((_slot, event)) = self.0.pop_front() else { break };
            let _ = call!(table, cuEventSynchronize(event.get()));
            let _ = call!(table, cuEventDestroy_v2(event.get()));
        }
        if data.len() > Slots::BYTES {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let slot = slots.take(table, ctx)?;
        // SAFETY: the buffer is that large, nobody else has it, and the device has let go of it.
        unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), slot.pointer(), data.len()) };
        Ok(slot)
    }

    /// Keeps a buffer until the stream has come this far.
    pub(crate) fn sent(
        &mut self,
        table: &Table,
        slot: Slot,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        let mut event = core::ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
        let recorded = call!(table, cuEventCreate(&raw mut event, flags))
            .and_then(|()| call!(table, cuEventRecord(event, stream)));
        match recorded {
            Ok(()) => self.0.push_back((slot, Handle::new(event))),
            // Nobody knows when it is free.
            Err(_) => std::mem::forget(slot),
        }
        recorded
    }

    /// Forgets the buffers of a context that is gone.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        for (slot, event) in std::mem::take(&mut self.0) {
            if slot.ctx == ctx {
                std::mem::forget(slot);
            } else {
                self.0.push_back((slot, event));
            }
        }
    }
}
