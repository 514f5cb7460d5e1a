//! Arrays and mipmapped arrays: rows in device memory, one after another.

mod calls;

use std::sync::Arc;

use outboard_abi::{CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED, CUresult};
use outboard_front::backend::{ArrayDescriptor, ContextId, Extent, Layout, Result};

use crate::context::Context;
use crate::device;

/// Device memory that goes with the last array in it.
struct Storage {
    context: Arc<Context>,
    address: u64,
}

impl Drop for Storage {
    fn drop(&mut self) {
        // A context that has ended has freed it already.
        let _ = self.context.free(self.address);
    }
}

/// An array, or a level of a mipmapped one.
pub(crate) struct Array {
    pub(crate) ctx: ContextId,
    pub(crate) descriptor: ArrayDescriptor,
    pub(crate) address: u64,
    /// Bytes of a row, rows, slices or layers.
    pub(crate) extent: Extent,
    _storage: Arc<Storage>,
}

/// A mipmapped array.
pub(crate) struct Mipmap {
    pub(crate) ctx: ContextId,
    pub(crate) levels: Vec<Arc<Array>>,
}

/// Flags of arrays that there are: layered, surface load and store, cubemap, texture gather, colour
/// attachment.
const FLAGS: u32 = 0x2f;

fn invalid() -> CUresult {
    CUresult::CUDA_ERROR_INVALID_VALUE
}

/// Checks a description.
fn check(d: &ArrayDescriptor) -> Result<()> {
    let element = d.element().ok_or_else(invalid)?;
    let (layered, cubemap) =
        (d.flags & CUDA_ARRAY3D_LAYERED != 0, d.flags & CUDA_ARRAY3D_CUBEMAP != 0);
    let shape = match (layered, cubemap) {
        (false, false) => d.depth == 0 || d.height > 0,
        (true, false) => d.depth > 0,
        (false, true) => d.width == d.height && d.depth == 6,
        (true, true) => d.width == d.height && d.depth > 0 && d.depth.is_multiple_of(6),
    };
    let [width, height, depth] = device::most_elements(d);
    let fits = d.width > 0 && d.width <= width && d.height <= height && d.depth <= depth;
    if shape && fits && d.flags & !FLAGS == 0 && element > 0 { Ok(()) } else { Err(invalid()) }
}

/// A level of a mipmapped array: each dimension half of that of the level before; layers stay.
fn level(d: &ArrayDescriptor, level: u32) -> ArrayDescriptor {
    let half = |n: u64| if n == 0 { 0 } else { (n >> level).max(1) };
    let stays = d.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
    ArrayDescriptor {
        width: half(d.width),
        height: half(d.height),
        depth: if stays { d.depth } else { half(d.depth) },
        ..*d
    }
}

impl Array {
    /// Where a box in it lies.
    pub(crate) fn place(
        &self,
        (x, y, z): (u64, u64, u64),
        extent: Extent,
    ) -> Result<(u64, Layout)> {
        if !self.descriptor.holds((x, y, z), extent) {
            return Err(invalid());
        }
        let layout = self.layout();
        let offset = layout.offset((x, y, z)).ok_or_else(invalid)?;
        Ok((self.address + offset, layout))
    }

    /// Where its rows lie.
    pub(crate) fn layout(&self) -> Layout {
        Layout::packed(self.extent)
    }
}

/// Levels begin at multiples of this, as allocations do.
const ALIGNMENT: u64 = 512;

/// Allocates levels of an array, one behind another.
fn allocate(context: &Arc<Context>, descriptors: &[ArrayDescriptor]) -> Result<Vec<Arc<Array>>> {
    let extents =
        descriptors.iter().map(|d| d.extent().ok_or_else(invalid)).collect::<Result<Vec<_>>>()?;
    let mut total = 0u64;
    let mut offsets = Vec::new();
    for extent in &extents {
        offsets.push(total);
        let bytes = extent.bytes().and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT));
        total = bytes
            .and_then(|bytes| total.checked_add(bytes))
            .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    }
    let storage = Arc::new(Storage { context: context.clone(), address: context.alloc(total)? });
    let arrays =
        descriptors.iter().zip(extents).zip(offsets).map(|((descriptor, extent), offset)| {
            Arc::new(Array {
                ctx: context.id,
                descriptor: *descriptor,
                address: storage.address + offset,
                extent,
                _storage: storage.clone(),
            })
        });
    Ok(arrays.collect())
}
