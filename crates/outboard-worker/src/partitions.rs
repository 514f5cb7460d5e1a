//! Resources of devices, as the driver's opaque structures describe them.

use std::collections::{HashMap, HashSet};

use outboard_abi::{CUdevResource, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::{ContextId, ObjectId};

use super::bounds::Kind;
use super::objects::{Handle, Named};
use super::portion::{Green, Portion};

/// A resource on the wire.
pub(crate) type Bytes = [u8; size_of::<CUdevResource>()];

/// Resources that a session may have been handed out, and descriptors that it may have made: CUDA
/// has no call that ends one.
const MOST_RESOURCES: usize = 1 << 16;

/// What a session knows of resources. Their bytes hold what the driver makes of them, addresses
/// perhaps: so only bytes that the driver has written ever go back to it.
pub(crate) struct Partitions {
    /// The parts of devices that the session may use, by ordinal, if it may not use all of them.
    portions: HashMap<i32, Portion>,
    handed_out: HashSet<Bytes>,
    descriptions: HashMap<ObjectId, Handle<outboard_abi::CUdevResourceDesc_st>>,
    greens: Named<Green>,
}

impl Partitions {
    pub(crate) fn new(portions: HashMap<i32, Portion>) -> Partitions {
        Partitions {
            portions,
            handed_out: HashSet::new(),
            descriptions: HashMap::new(),
            greens: Named::new(Kind::GreenContext),
        }
    }

    /// Whether a green context may have this name.
    pub(crate) fn check_new_green(&self, name: ObjectId) -> Result<(), CUresult> {
        self.greens.check_new(name)
    }

    pub(crate) fn add_green(&mut self, ctx: ContextId, name: ObjectId, green: Green) {
        self.greens.insert(name, ctx, green);
    }

    pub(crate) fn green(&self, name: ObjectId) -> Result<Green, CUresult> {
        self.greens.get(name)
    }

    pub(crate) fn remove_green(&mut self, name: ObjectId) -> Result<Green, CUresult> {
        self.greens.remove(name)
    }

    /// Forgets the green contexts of a context.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        self.greens.forget(ctx);
    }

    /// Whether the session may use only a part of the device.
    pub(crate) fn has_portion(&self, device: i32) -> bool {
        self.portions.contains_key(&device)
    }

    /// The part of a device that the session may use, if that is not all of it.
    pub(crate) fn portion(&self, device: i32) -> Option<Portion> {
        self.portions.get(&device).copied()
    }

    /// A green context with all that the session may use of a device.
    pub(crate) fn stand_in(
        &mut self,
        table: &Table,
        device: i32,
    ) -> Result<Handle<outboard_abi::CUgreenCtx_st>, CUresult> {
        let portion = self.portions.get_mut(&device).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        if let Some(green) = portion.stand_in {
            return Ok(green);
        }
        let mut primary = core::ptr::null_mut();
        call!(table, cuDevicePrimaryCtxRetain(&raw mut primary, device))?;
        let green = portion.open(table, device).inspect_err(|_| {
            let _ = call!(table, cuDevicePrimaryCtxRelease_v2(device));
        })?;
        Ok(*portion.stand_in.insert(green.context))
    }

    /// The bytes of what the driver has made.
    pub(crate) fn hand_out(&mut self, resource: &CUdevResource) -> Result<Bytes, CUresult> {
        // SAFETY: it was zeroed before the driver filled it, so that every byte is written.
        let bytes = unsafe { core::ptr::from_ref(resource).cast::<Bytes>().read() };
        if self.handed_out.len() >= MOST_RESOURCES && !self.handed_out.contains(&bytes) {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        self.handed_out.insert(bytes);
        Ok(bytes)
    }

    /// The structure that the client returns, if it is one of the driver's.
    pub(crate) fn check(&self, bytes: &Bytes) -> Result<CUdevResource, CUresult> {
        if !self.handed_out.contains(bytes) {
            return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        // SAFETY: plain numbers of the same size, as the driver wrote them.
        Ok(unsafe { bytes.as_ptr().cast::<CUdevResource>().read_unaligned() })
    }

    /// Whether a descriptor may get this name.
    pub(crate) fn check_new(&self, name: ObjectId) -> Result<(), CUresult> {
        if name == ObjectId::NONE || self.descriptions.contains_key(&name) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        if self.descriptions.len() < MOST_RESOURCES {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        }
    }

    pub(crate) fn describe(
        &mut self,
        name: ObjectId,
        desc: Handle<outboard_abi::CUdevResourceDesc_st>,
    ) {
        self.descriptions.insert(name, desc);
    }

    pub(crate) fn description(
        &self,
        name: ObjectId,
    ) -> Result<Handle<outboard_abi::CUdevResourceDesc_st>, CUresult> {
        self.descriptions.get(&name).copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portion::empty;

    #[test]
    fn only_the_drivers_bytes_go_back_to_it() {
        let mut shares = Partitions::new(HashMap::new());
        let bytes = shares.hand_out(&empty()).unwrap();
        assert!(shares.check(&bytes).is_ok());
        for at in [0, 4, 95, 96, 143] {
            let mut forged = bytes;
            forged[at] ^= 1;
            assert!(shares.check(&forged).is_err(), "{at}");
        }
    }
}
