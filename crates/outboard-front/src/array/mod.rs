//! Arrays and mipmapped arrays: their handles and parts.

use std::sync::Arc;

use outboard_abi::{CUarray, CUmipmappedArray, CUresult};

use crate::backend::{ArrayDescriptor, ContextId, ObjectId, Result};
use crate::context::Here;
use crate::process::Front;

pub(crate) use crate::parts::array::{Array, Mipmap};

/// The array of a handle.
pub(crate) fn resolve(front: &'static Front, array: CUarray) -> Result<Arc<Array>> {
    crate::state::ready(front)?;
    front.arrays.table.get(array as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// The mipmapped array of a handle.
pub(crate) fn resolve_mipmap(
    front: &'static Front,
    mipmap: CUmipmappedArray,
) -> Result<Arc<Mipmap>> {
    crate::state::ready(front)?;
    front.arrays.mipmaps.get(mipmap as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// Forgets the arrays of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.arrays.table.remove_where(|array| array.id == id);
    front.arrays.mipmaps.remove_where(|mipmap| mipmap.id == id);
}

/// Makes an array that the backend describes, under a new name.
pub(crate) fn insert(
    front: &'static Front,
    here: &Here,
    part_of: Option<(u64, u32)>,
    make: impl FnOnce(ObjectId) -> Result<ArrayDescriptor>,
) -> Result<u64> {
    let handle = front.arrays.table.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    match here.note(make(ObjectId(handle))) {
        Ok(descriptor) => {
            let array = Array { handle, context: here.context, id: here.id, descriptor, part_of };
            front.arrays.table.fill(handle, Arc::new(array));
            Ok(handle)
        }
        Err(error) => {
            front.arrays.table.release(handle);
            Err(error)
        }
    }
}
