//! Resources of devices, as the driver describes them to itself.

use std::collections::{HashMap, HashSet};

use outboard_abi::{CUdevResource, CUresult};
use outboard_wire::ObjectId;

use super::objects::Handle;

/// A resource on the wire.
pub(crate) type Bytes = [u8; size_of::<CUdevResource>()];

/// More groups than any device has multiprocessors.
pub(crate) const MOST_GROUPS: u32 = 4096;
/// Resources that a session may have been handed out, and descriptors that it may have made: CUDA
/// has no call that ends one.
const MOST: usize = 1 << 16;

/// A green context, and the context that it is for calls that take one.
#[derive(Clone, Copy)]
pub(crate) struct Green {
    pub(crate) context: Handle<outboard_abi::CUgreenCtx_st>,
    pub(crate) real: Handle<outboard_abi::CUctx_st>,
}

/// What a session knows of resources. Their bytes hold what the driver makes of them, addresses
/// perhaps: so only bytes that the driver has written ever go back to it.
#[derive(Default)]
pub(crate) struct Partitions {
    handed_out: HashSet<Bytes>,
    descriptions: HashMap<ObjectId, Handle<outboard_abi::CUdevResourceDesc_st>>,
}

/// A resource for the driver to fill.
pub(crate) fn empty() -> CUdevResource {
    // SAFETY: plain numbers, for which zeros are a value.
    unsafe { core::mem::zeroed() }
}

impl Partitions {
    /// The bytes of what the driver has made.
    pub(crate) fn hand_out(&mut self, resource: &CUdevResource) -> Result<Bytes, CUresult> {
        // SAFETY: it was zeroed before the driver filled it, so that every byte is written.
        let bytes = unsafe { core::ptr::from_ref(resource).cast::<Bytes>().read() };
        if self.handed_out.len() >= MOST && !self.handed_out.contains(&bytes) {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        self.handed_out.insert(bytes);
        Ok(bytes)
    }

    /// What the client hands back, if it is the driver's.
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
        if self.descriptions.len() < MOST {
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

    #[test]
    fn only_the_drivers_bytes_go_back_to_it() {
        let mut shares = Partitions::default();
        let bytes = shares.hand_out(&empty()).unwrap();
        assert!(shares.check(&bytes).is_ok());
        for at in [0, 4, 95, 96, 143] {
            let mut forged = bytes;
            forged[at] ^= 1;
            assert!(shares.check(&forged).is_err(), "{at}");
        }
    }
}
